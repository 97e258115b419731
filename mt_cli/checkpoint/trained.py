"""Trained runs: loaded for use, or written for models that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mt_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import Ancestor, RunState
from mt_cli.config.sections import Config, InitConfig
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.errors import DamagedFileError, InputError
from mt_cli.model.adapters import add_adapters, merge_adapters
from mt_cli.model.transformer import Transformer, outline
from mt_cli.runtime.console import say
from mt_cli.runtime.files import new_folder, writing
from mt_cli.tokenizer.tokenizer import TokenizerPair


@dataclass(frozen=True)
class TrainedRun:
    """Config, tokenizers and model of a checkpoint of a run."""

    config: Config
    tokenizers: TokenizerPair
    model: Transformer
    """Model in fp32, on the CPU."""
    checkpoint: Checkpoint
    max_tokens: int
    """Number of tokens of the longest source in training, at most `corpus.max_tokens`."""

    @property
    def state(self) -> RunState:
        return self.checkpoint.state

    @property
    def ancestor(self) -> Ancestor:
        """Record of this run for runs that begin with its weights; part of their state and report."""
        name, languages, digest = self.config.name, self.config.corpus.languages, self.checkpoint.digest
        return Ancestor(name, languages, self.state.best_step, digest, self.state.parents)

    @classmethod
    def load(cls, path: str | Path, checkpoint: str | None = None, is_merged: bool = True) -> TrainedRun:
        """Load a checkpoint by its name, such as `last`; None is the best one, or the last if none was validated.

        For `last` and `step-N` of a run with `training.ema_decay`, load the averaged weights. Merge adapters into the
        weights that they adapt unless `is_merged` is false.

        Raises RunError if the directory is not a run, has no such checkpoint, or its files do not fit together. Raises
        DamagedFileError if the checkpoint is damaged; the message says what to do.
        """
        directory = RunDirectory(Path(path))
        config = directory.config()
        tokenizers = directory.tokenizers(config)
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
        checkpoint_path = directory.path_of(checkpoint)
        try:
            saved = Checkpoint(checkpoint_path)
        except DamagedFileError as error:
            advice = f"have `mt train --config {directory.config_path}` make another of the last state"
            if checkpoint not in (None, "best"):
                advice = "use another checkpoint"
            raise DamagedFileError(f"{error}; restore it, or {advice}") from None
        directory.check_frozen_files(saved.state)
        model = outline(config.model, *sizes)
        if config.init.adapter_rank is not None:
            directory.load_frozen_weights(model)
            add_adapters(model, config.init)
        saved.load_weights_into(model)
        if is_merged and config.init.adapter_rank is not None:
            merge_adapters(model)
        if checkpoint is None and checkpoint_path != directory.best_path and saved.state.best_value is not None:
            say(
                f"note: {directory.best_path} is missing, the best checkpoint (step {saved.state.best_step:,}); using "
                f"the last one (step {saved.state.position.step:,}), which may translate worse"
            )
        max_tokens = min(config.corpus.max_tokens, saved.state.longest_source or config.corpus.max_tokens)
        return cls(config, tokenizers, model, saved, max_tokens)


def load_together(paths: Sequence[str | Path], purpose: str, checkpoint: str | None = None) -> list[TrainedRun]:
    """Load several runs; raise InputError, with the `purpose`, unless languages, vocabularies and tags are equal."""
    first, *others = runs = [TrainedRun.load(path, checkpoint) for path in paths]
    for path, run in zip(paths[1:], others, strict=True):
        corpora = run.config.corpus, first.config.corpus
        sides = [(f"translates {' to '.join(of.languages)}", f"has {of.tagging.describe()}") for of in corpora]
        for one, other in zip(*sides, strict=True):
            if one != other:
                raise InputError(f"{path}: {one}, and {paths[0]} {other}; {purpose} needs equal ones")
        vocabularies = [[tokenizer.to_json() for tokenizer in of.tokenizers] for of in (run, first)]
        if vocabularies[0] != vocabularies[1]:
            raise InputError(f"{path}: has other vocabularies than {paths[0]}; {purpose} needs equal ones")
    return runs


def write_run(
    output: Path,
    config: Config,
    tokenizers: TokenizerPair,
    model: Transformer,
    longest_source: int,
    parents: Sequence[Ancestor] = (),
    sentences_seen: SentencesSeen | None = None,
) -> TrainedRun:
    """Write a model that was trained elsewhere as a run; the new folder `output` gives the run its name.

    Raises the errors of `TrainedRun.load`, and keeps nothing then.
    """
    config = config.model_copy(update={"name": output.name, "init": InitConfig()})
    with new_folder(output) as folder, writing(output):
        directory = RunDirectory(folder)
        directory.create(config, tokenizers)
        state = RunState(longest_source=longest_source, sentences_seen=sentences_seen, parents=list(parents))
        state.fingerprints = directory.tokenizer_digests()
        save_checkpoint(directory.best_path, model, asdict(state))
        return TrainedRun.load(folder)
