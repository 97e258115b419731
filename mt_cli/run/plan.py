"""What a start of `mt train` does, decided once; it prepares the data and makes the directory of a new run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.lineage import ancestor_of
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import TUNED, Config, DecodingConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.identity import pair_hashes
from mt_cli.corpus.sources import with_commits
from mt_cli.errors import InputError, RunError
from mt_cli.machine.console import say
from mt_cli.machine.group import Group
from mt_cli.machine.storage import write_text
from mt_cli.model.transformer import Transformer
from mt_cli.run.data import Data, prepare, read, training_pair_hashes
from mt_cli.run.memory import automatic_batch_tokens, check_memory, with_batch_tokens
from mt_cli.run.report import Report, finished_report
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.steps import Position

_ROWS_OF_STREAM = 10_000
"""Rows of a stream that are examined before a run begins."""


@dataclass(frozen=True)
class Plan:
    """The decisions of the main process, which the others get. They never change."""

    config: Config
    """Complete: no preset and no `auto` is left."""
    tokenizers: TokenizerPair
    state: RunState
    """That of the newest checkpoint that is not damaged or, of a new run, the first one."""
    state_path: Path | None = None
    """That checkpoint, which is verified; None for a new run."""
    changes: str = ""
    """For people: each option that is not as it was when the run was saved."""
    report: Report | None = None
    """The report of a run that is finished."""
    is_new: bool = False
    parent: hooks.ParentRun | None = None
    """The run that a new one begins with; the main process alone has it."""
    data: Data | None = None
    """The data of a new run, for which its tokenizers were trained; the main process alone has them."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "parent": None, "data": None}


def decide(
    config: Config, directory: RunDirectory, cache: Cache, device: torch.device, fresh: bool, group: Group
) -> Plan:
    """Decide what a start does, in the main process, and make the directory of a new run.

    An existing run is not changed before the corpora have been read and the model is known to fit the machine. Raises
    the errors of `prepare_new`, `_refuse_processed` and `_plan_to_resume`, and DeviceMemoryError.
    """
    if (not fresh or _created_by_this_launch(group.launch_id, directory)) and directory.can_resume():
        return _plan_to_resume(config, directory, cache)
    config = _with_commits(config)
    if config.init.run is None:  # Now, and not after the tokenizers are trained; replayed text is known later.
        _refuse_processed(config, cache)
    config, data, parent = prepare_new(config, cache, directory.path, num_processes=group.size)
    if parent is not None:
        _refuse_processed(config, cache)
    sizes = [tokenizer.vocab_size for tokenizer in data.tokenizers]
    check_memory(config, sizes, device, group.size)
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, automatic_batch_tokens(config, data, device))
    if fresh and not directory.is_empty():
        say(f"The old run was moved to {directory.move_aside()}.")
    directory.create(config, data.tokenizers)
    _save_training_pairs(directory, config, data, parent)
    if config.init.adapter_rank is not None and parent is not None:
        model = Transformer(config.model, *sizes)
        parent.load_weights_into(model)
        directory.save_frozen_weights(model)
    state = RunState(Position(group.size), launch_id=group.launch_id)
    if parent is not None:
        state.parents, state.longest_source = [ancestor_of(parent.run)], parent.run.max_tokens
    return Plan(config, data.tokenizers, state, is_new=True, parent=parent, data=data)


def _save_training_pairs(directory: RunDirectory, config: Config, data: Data, parent: hooks.ParentRun | None) -> None:
    """Save hashes of all pairs that the run and its parent are trained on; a note on evaluation pairs among those.

    Nothing is saved if not all of them are known, as for streams and for imported parents.
    """
    own, inherited = training_pair_hashes(data, config), None
    if parent is not None:
        inherited = RunDirectory(parent.path).training_pairs()
        for name, corpus in data.corpora.items():
            if name == "train" or inherited is None:
                continue
            pairs = corpus.pairs
            if number := int(np.isin(pair_hashes(pairs, config.corpus.tags), inherited).sum()):
                seen = f"{parent.path} was trained on {number:,} of the {len(pairs):,} pairs of {name}"
                say(f"note: {seen}, so scores on them are too high")
    if own is not None and (parent is None or inherited is not None):
        directory.save_training_pairs(own if inherited is None else np.concatenate([own, inherited]))


def prepare_new(
    config: Config,
    cache: Cache,
    path: Path | None = None,
    stream_rows: int | None = None,
    num_processes: int = 1,
    is_quiet: bool = False,
) -> tuple[Config, Data, hooks.ParentRun | None]:
    """The config of a new run with all its values, its data and its parent; see `prepare` for `stream_rows`.

    `path` is the directory of the new run. If `is_quiet`, what `preset: auto` chose is not printed. Raises the errors
    of `prepare`; RunError if the parent cannot be loaded or lacks a tag of the config; and ConfigError with every
    option that differs from the parent's and may not, or if `init.freeze` does not fit.
    """
    tokenizers, parent, data = None, None, None
    num_own = len(config.corpus.train)
    if config.init.run is not None:
        config, tokenizers, parent = hooks.adopt(config, cache, path, stream_rows)
        config = hooks.with_replay(config, parent.run, cache)
    if config.preset is not None:
        known = hooks.Circumstances(None, tokenizers, num_own, stream_rows, num_processes, is_quiet)
        config, data = hooks.resolve_preset(config, cache, known)
    return config, data or prepare(config, cache, tokenizers, stream_rows), parent


def _refuse_processed(config: Config, cache: Cache) -> None:
    """Raise CorpusError if the training text, or the beginning of a stream, is processed already and not accepted."""
    if hooks.has("refuse_processed"):
        hooks.refuse_processed(hooks.known_problems(read(config, cache, _ROWS_OF_STREAM), config, cache))


def _with_commits(config: Config, previous: Config | None = None) -> Config:
    previous_corpus = None if previous is None else previous.corpus
    return config.model_copy(update={"corpus": with_commits(config.corpus, previous_corpus)})


def _with_tuned_decoding(config: Config, chosen: DecodingConfig) -> Config:
    """The config with the options of the search that were chosen when the run ended, and a note if it names others."""
    values = {name: getattr(chosen, name) for name in TUNED}
    for name, value in values.items():
        given = getattr(config.decoding, name)
        if given != value and name in config.decoding.model_fields_set:
            say(
                f"note: decoding.{name} is {value}, as training.tune_decoding chose, and not {given} as "
                "in the config; set training.tune_decoding to false to change it"
            )
    return config.model_copy(update={"decoding": config.decoding.model_copy(update=values)})


def _created_by_this_launch(launch_id: str, directory: RunDirectory) -> bool:
    """Whether this launch already created the run, so that a restart must not apply `--fresh` again."""
    with suppress(RunError):
        return bool(launch_id) and directory.newest_state()[1].launch_id == launch_id
    return False


def _plan_to_resume(config: Config, directory: RunDirectory, cache: Cache) -> Plan:
    """The plan to resume the run in a directory with a config; raises RunError if it cannot.

    What the run chose for `preset: auto`, `batch_tokens: auto` and `tune_decoding` is kept.
    """
    try:
        previous = directory.config()
        tokenizers = directory.tokenizers(previous)
    except InputError as error:
        advice = "Restore the file, or use --fresh to start over (the old run is moved aside)."
        raise RunError(f"{error}\n{advice}") from None
    config = _with_commits(config, previous)
    num_own = len(config.corpus.train)
    if config.init.run is not None:
        config = hooks.inherited(config, previous, f"{directory.path}: this run began with another config")
        config = hooks.replayed_before(config, previous)
    if config.preset is not None:
        known = hooks.Circumstances(previous, tokenizers, num_own=num_own)
        config, _ = hooks.resolve_preset(config, cache, known)
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, previous.training.tokens_per_batch)
    if config.training.tune_decoding and directory.report_path.exists():
        if previous.training.tune_decoding:
            config = _with_tuned_decoding(config, previous.decoding)
        else:
            say(f"note: the search is tuned when training ends; now: mt tune-decoding --run {directory.path}")
    changes = "".join(f"\n  {line}" for line in directory.check_resumable(previous, config))
    path, state = directory.newest_state()  # Without a usable one, loading a checkpoint says what is wrong.
    report = finished_report(directory, config, state)
    if report is not None:
        write_text(directory.config_path, config.to_yaml())
    return Plan(config, tokenizers, state, path, changes and f"The config has changed:{changes}", report)
