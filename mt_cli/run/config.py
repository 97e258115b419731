"""Completion of a config: the one place for values of a parent and of an earlier start."""

from __future__ import annotations

from pathlib import Path

from mt_cli.checkpoint.parent import ParentRun, adopt, inherited
from mt_cli.config.sections import TUNED, Config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.source_rows import with_commits
from mt_cli.data.prepare import Data, prepare


def prepare_new(
    config: Config,
    cache: Cache,
    path: Path | None = None,
    stream_rows: int | None = None,
) -> tuple[Config, Data, ParentRun | None]:
    """Complete the config of a new run except for `batch_tokens`, and prepare its data; also return its parent.

    `path` is the directory of the new run; see `prepare` for `stream_rows`. Raises the errors of `prepare`. Raises
    RunError if the parent cannot be loaded or lacks a tag of the config. Raises ConfigError with every option that must
    equal the parent's and differs, or if `init.freeze` does not fit.
    """
    tokenizers, parent = None, None
    if config.init.run is not None:
        config, tokenizers, parent = adopt(config, cache, path, stream_rows)
    return config, prepare(config, cache, tokenizers, stream_rows), parent


def resumed_config(config: Config, previous: Config, path: Path, is_tuned: bool) -> tuple[Config, list[str]]:
    """Config of a run that resumes, completed with the values that the run chose when it began, and notes.

    `is_tuned` says that the run has ended before, so that `tune_decoding` has chosen values, too.
    """
    config = config.model_copy(update={"corpus": with_commits(config.corpus, previous.corpus)})
    if config.init.run is not None:
        config = inherited(config, previous, f"{path}: this run began with another config")
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, previous.training.tokens_per_batch)
    if not (config.training.tune_decoding and is_tuned):
        return config, []
    if not previous.training.tune_decoding:
        return config, [f"the search is tuned when training ends; now: mt tune-decoding --run {path}"]
    tuned = {name: getattr(previous.decoding, name) for name in TUNED}
    notes = [
        f"decoding.{name} is {value}, as training.tune_decoding chose, and not {given} as in the config; set "
        "training.tune_decoding to false to change it"
        for name, value in tuned.items()
        if (given := getattr(config.decoding, name)) != value and name in config.decoding.model_fields_set
    ]
    return config.model_copy(update={"decoding": config.decoding.model_copy(update=tuned)}), notes


def with_batch_tokens(config: Config, size: int) -> Config:
    """Config with this number of tokens a micro-batch."""
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})
