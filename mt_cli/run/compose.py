"""Connections between a run and its features. To remove a feature, delete its folder and its lines here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, prepare
from mt_cli.features.data_check.findings import Finding
from mt_cli.features.data_check.problems import find_problems
from mt_cli.features.exchange.destinations import describe_destinations as describe_destinations
from mt_cli.features.fine_tuning.parent import ParentRun, adopt, inherited


def prepare_new(
    config: Config,
    cache: Cache,
    path: Path | None = None,
    stream_rows: int | None = None,
) -> tuple[Config, Data, ParentRun | None]:
    """Complete the config of a new run, train its tokenizers and prepare its data; also return its parent.

    `path` is the directory of the new run; see `prepare` for `stream_rows`. Raises the errors of `prepare`. Raises
    RunError if the parent cannot be loaded or lacks a tag of the config. Raises ConfigError with every option that must
    equal the parent's and differs, or if `init.freeze` does not fit.
    """
    tokenizers, parent = None, None
    if config.init.run is not None:
        config, tokenizers, parent = adopt(config, cache, path, stream_rows)
    return config, prepare(config, cache, tokenizers, stream_rows), parent


def resumed_config(config: Config, previous: Config, path: Path) -> Config:
    """Config of a run that resumes, completed with the values that the run chose when it began."""
    if config.init.run is not None:
        config = inherited(config, previous, f"{path}: this run began with another config")
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, previous.training.tokens_per_batch)
    return config


def with_batch_tokens(config: Config, size: int) -> Config:
    """Config with this number for `training.batch_tokens`."""
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})


def problems_to_show(data: Data, config: Config, cache: Cache) -> Sequence[Finding]:
    """Problems and notes on the text of a run, except findings of the kind `text`, which `mt data check` reports."""
    return [problem for problem in find_problems(data.corpora, config, cache) if problem.kind != "text"]
