"""Models that were not trained here, written as runs, and the runs that the weights of a run come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import save_checkpoint
from mt_cli.checkpoint.state import Ancestor, RunState
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import Config, InitConfig
from mt_cli.errors import InputError, RunError
from mt_cli.machine.storage import new_folder
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.tokenizer import TokenizerPair


def ancestor_of(run: TrainedRun) -> Ancestor:
    """What the state and the report of a run say about this one, which it began with."""
    return Ancestor(run.config.name, run.config.corpus.languages, run.state.best_step, run.digest, run.state.parents)


def describe_lineage(parents: Sequence[Ancestor], depth: int = 0) -> Iterator[str]:
    """A line for each run that a run comes from, the nearest first, indented by generation."""
    for parent in parents:
        source, target = parent.languages
        indent = "  " * depth
        yield f"{indent}from {parent.run}, {source} to {target}, step {parent.step:,} ({parent.weights[:12]})"
        yield from describe_lineage(parent.parents, depth + 1)


def write_run(
    output: Path,
    config: Config,
    tokenizers: TokenizerPair,
    model: Transformer,
    longest_source: int,
    parents: Sequence[Ancestor] = (),
) -> TrainedRun:
    """Write a model that was not trained here as a run into the new folder `output`, whose name it gets.

    Raises RunError, and keeps nothing, if the run cannot be read again.
    """
    config = config.model_copy(update={"name": output.name, "init": InitConfig()})
    with new_folder(output) as folder:
        directory = RunDirectory(folder)
        directory.create(config, tokenizers)
        try:
            digests = directory.fixed_digests()
            state = RunState(fingerprints=digests, longest_source=longest_source, parents=list(parents))
            save_checkpoint(directory.best_path, model, asdict(state))
            return TrainedRun.load(folder)
        except InputError as error:
            raise RunError(f"{output}: the run cannot be read again, so nothing of it is kept: {error}") from None
