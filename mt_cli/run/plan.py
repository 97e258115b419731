"""The config that a run has: that of its file, with what presets, a parent and an earlier start add."""

from __future__ import annotations

from pathlib import Path

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.errors import InputError, RunError
from mt_cli.run.data import Data, prepare
from mt_cli.run.setup import with_batch_tokens
from mt_cli.tokenizer.tokenizer import TokenizerPair


def prepare_new(
    config: Config, cache_path: Path, path: Path | None = None, stream_rows: int | None = None
) -> tuple[Config, Data, hooks.Parent | None]:
    """The config of a new run with all its values, its data and its parent; see `prepare` for `stream_rows`.

    `path` is the directory of the new run. Raises the errors of `prepare`; RunError if the parent cannot be loaded or
    lacks a tag of the config; and ConfigError with every option that differs from the parent's and may not, or if
    `init.freeze` does not fit.
    """
    tokenizers, parent, data = None, None, None
    num_own = len(config.corpus.train)
    if config.init.run is not None:
        config, tokenizers, parent = hooks.adopt(config, cache_path, path, stream_rows)
        config = hooks.with_replay(config, parent.run, cache_path)
    if config.preset is not None:
        known = hooks.Circumstances(tokenizers=tokenizers, num_own=num_own, stream_rows=stream_rows)
        config, data = hooks.resolve_preset(config, cache_path, known)
    return config, data or prepare(config, cache_path, tokenizers, stream_rows), parent


def config_to_resume(directory: RunDirectory, config: Config) -> tuple[Config, TokenizerPair, list[str]]:
    """Check that the run in a directory can resume with a config; raises RunError if it cannot.

    Returns the config, with what the run chose for `preset: auto` and `batch_tokens: auto`, the tokenizers of the run,
    and a line for each option that changed.
    """
    try:
        previous = directory.config()
        tokenizers = directory.tokenizers(previous)
    except InputError as error:
        advice = "Restore the file, or use --fresh to start over (the old run is moved aside)."
        raise RunError(f"{error}\n{advice}") from None
    num_own = len(config.corpus.train)
    if config.init.run is not None:
        config = hooks.inherited(config, previous, f"{directory.path}: this run began with another config")
        config = hooks.replayed_before(config, previous)
    if config.preset is not None:
        known = hooks.Circumstances(previous, tokenizers, num_own=num_own)
        config, _ = hooks.resolve_preset(config, directory.path.parent / ".cache", known)
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, previous.training.tokens_per_batch)
    return config, tokenizers, directory.check_resumable(previous, config)
