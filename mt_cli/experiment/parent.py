"""Beginning with another run, the parent: its architecture, tokenizers and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.console import say
from mt_cli.corpus.cache import Cache
from mt_cli.errors import ConfigError, RunError
from mt_cli.experiment.data import Data, prepare, read, tokenizer_pairs
from mt_cli.experiment.presets import Circumstances, resolve_preset
from mt_cli.experiment.replay import with_replay
from mt_cli.model.trainable import check_trainable
from mt_cli.model.transformer import Transformer
from mt_cli.storage import real_path
from mt_cli.tokenizer import TokenizerPair
from mt_cli.vocabulary import extended_pair, spellings

_MAY_DIFFER: Mapping[str, frozenset[str]] = {
    "tokenizer": frozenset({"bpe_dropout", "unigram_alpha", "sample_pairs"}),
    "model": frozenset(
        {"dropout", "embedding_dropout", "word_dropout", "attention_dropout", "feed_forward_dropout", "max_positions"}
    ),
}
"""Options that may have other values than those of the parent; with learned positions, `max_positions` may not."""


@dataclass(frozen=True)
class Parent:
    """The run that another run begins with."""

    path: Path
    run: TrainedRun
    new_entries: tuple[list[list[int]], list[list[int]]]
    """For each entry that is added to the source and to the target vocabulary, the ids that spelled it before."""

    def fill(self, model: Transformer) -> None:
        """Fill a model of the same architecture, with rows for the new entries, with the weights of the parent."""
        source, target = self.new_entries
        new_rows = {"source_embedding.table.weight": source, "target_embedding.table.weight": target}
        weights = self.run.model.state_dict()
        new_rows |= {name: target for name in ("projection.weight", "projection.bias") if name in weights}
        for name, entries in new_rows.items():
            old = weights[name]
            weights[name] = torch.cat([old, *(old[ids].mean(dim=0, keepdim=True) for ids in entries)])
        model.load_state_dict(weights)

    def describe(self) -> str:
        """Where training begins, for people."""
        source, target = self.run.config.corpus.languages
        added = [f"{len(entries):,} new {side} entries" for side, entries in self._sides() if entries]
        return ", ".join([str(self.path), f"{source} to {target}", f"step {self.run.state.best_step:,}", *added])

    def _sides(self) -> Iterator[tuple[str, list[list[int]]]]:
        names = ("shared",) if self.run.config.tokenizer.shared else ("source", "target")
        return zip(names, self.new_entries, strict=False)


def prepare_new(
    config: Config, cache_path: Path, path: Path | None = None, stream_rows: int | None = None
) -> tuple[Config, Data, Parent | None]:
    """The config of a new run with all its values, its data and its parent; see `prepare` for `stream_rows`.

    `path` is the directory of the new run. Raises the errors of `prepare`; RunError if the parent cannot be loaded or
    lacks a tag of the config; and ConfigError with every option that differs from the parent's and may not, or if
    `init.freeze` does not fit.
    """
    config, tokenizers, parent = _adopt(config, cache_path, path, stream_rows)
    num_own = len(config.corpus.train)
    if parent is not None:
        config = with_replay(config, parent.run, cache_path)
    known = Circumstances(tokenizers=tokenizers, num_own=num_own, stream_rows=stream_rows)
    config, data = resolve_preset(config, cache_path, known)
    return config, data or prepare(config, cache_path, tokenizers, stream_rows), parent


def _adopt(
    config: Config, cache_path: Path, path: Path | None, stream_rows: int | None
) -> tuple[Config, TokenizerPair | None, Parent | None]:
    """The config with what it takes from its parent, the tokenizers of this, and the parent."""
    if config.init.run is None:
        return config, None, None
    parent_path = Path(config.init.run)
    if path is not None and real_path(parent_path) == real_path(path):
        raise ConfigError(f"init.run: {parent_path} is the directory of this run itself; give the config another name")
    try:
        run = TrainedRun.load(parent_path)
        config = inherited(config, run.config, f"init.run: {parent_path} is another model")
        check_trainable(run.model, config.init)
        if config.init.vocabulary == "keep":
            return config, RunDirectory(parent_path).tokenizers(config), Parent(parent_path, run, ([], []))
    except RunError as error:
        raise RunError(f"init.run: {error}") from None
    pairs = tokenizer_pairs(read(config, Cache(cache_path, say), stream_rows), config)
    limit, is_shared = config.init.max_new_entries, config.tokenizer.shared
    tokenizers = extended_pair(run.tokenizers, pairs, config.corpus.tags, limit, is_shared)
    source, target = (spellings(*each) for each in zip(run.tokenizers, tokenizers, strict=True))
    return config, tokenizers, Parent(parent_path, run, (source, target))


def inherited(config: Config, previous: Config, origin: str) -> Config:
    """The config with `tokenizer` and `model` of another one, except where it sets options that may differ.

    Raises ConfigError with every other option that differs.
    """
    tree, problems = config.model_dump(mode="json", exclude_unset=True), list[str]()
    for section, may_differ in _MAY_DIFFER.items():
        theirs, given = getattr(previous, section).model_dump(mode="json"), tree.get(section, {})
        for key, value in given.items():
            is_fixed = key not in may_differ or (key == "max_positions" and theirs["positions"] == "learned")
            if is_fixed and value != theirs[key]:
                problems.append(f"{section}.{key}: is {_shown(theirs[key])} there, not {_shown(value)}")
        tree[section] = theirs | given
    if problems:
        raise ConfigError("\n  ".join([f"{origin}:", *problems]) + "\nRemove these options, or train a new model.")
    return parse_config(tree, origin)


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
