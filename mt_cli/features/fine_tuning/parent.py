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
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import read, tokenizer_pairs
from mt_cli.errors import ConfigError, RunError
from mt_cli.features.fine_tuning.spelling import with_spelling
from mt_cli.features.fine_tuning.vocabulary_extension import extended_pair, old_ids_of_entries
from mt_cli.machine.storage import real_path
from mt_cli.model.trainable import check_trainable
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.tokenizer import TokenizerPair

_MAY_DIFFER: Mapping[str, frozenset[str]] = {
    "tokenizer": frozenset({"bpe_dropout", "unigram_alpha", "sample_pairs", "normalize", "letters"}),
    "model": frozenset(
        {"dropout", "embedding_dropout", "word_dropout", "attention_dropout", "feed_forward_dropout", "max_positions"}
    ),
}
"""Options that may have other values than those of the parent; `_is_fixed` has the exceptions."""


@dataclass(frozen=True)
class ParentRun:
    """The run that another run begins with."""

    path: Path
    run: TrainedRun
    new_entries: tuple[list[list[int]], list[list[int]]]
    """For each entry that is added to the source and to the target vocabulary, the ids that spelled it before."""

    def load_weights_into(self, model: Transformer) -> None:
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
        corpus = self.run.config.corpus
        directions = dict.fromkeys(corpus.languages_of("train"))
        languages = f"{len(directions)} directions" if len(directions) > 1 else " to ".join(corpus.languages)
        added = [f"{len(entries):,} new {side} entries" for side, entries in self._sides() if entries]
        return ", ".join([str(self.path), languages, f"step {self.run.state.best_step:,}", *added])

    def _sides(self) -> Iterator[tuple[str, list[list[int]]]]:
        names = ("shared",) if self.run.config.tokenizer.shared else ("source", "target")
        return zip(names, self.new_entries, strict=False)


def adopt(
    config: Config, cache: Cache, path: Path | None, stream_rows: int | None
) -> tuple[Config, TokenizerPair, ParentRun]:
    """The config with what it takes from its parent, the tokenizers of this, and the parent."""
    assert config.init.run is not None
    parent_path = Path(config.init.run)
    if path is not None and real_path(parent_path) == real_path(path):
        raise ConfigError(f"init.run: {parent_path} is the directory of this run itself; give the config another name")
    try:
        run = TrainedRun.load(parent_path)
        config = inherited(config, run.config, f"init.run: {parent_path} is another model")
        if run.config.corpus.tagging.is_required and any(source.tag is None for source in config.corpus.train):
            listed = ", ".join(run.config.corpus.tags)
            advice = "corpus.tag: to_target" if run.config.corpus.has_target_tags else f"`tag` of each: {listed}"
            raise ConfigError(
                f"init.run: {parent_path} has a tag before every sentence, which corpora of this config lack; set "
                f"{advice}"
            )
        check_trainable(run.model, config.init)
        is_kept, tokenizers = config.init.vocabulary == "keep", run.tokenizers
        if is_kept:  # With the tags of the child.
            of_parent = config.model_copy(update={"tokenizer": run.config.tokenizer})
            tokenizers = RunDirectory(parent_path).tokenizers(of_parent)
    except RunError as error:
        raise RunError(f"init.run: {error}") from None
    if config.tokenizer.changes_of_spelling != run.config.tokenizer.changes_of_spelling:
        tags = config.corpus.tags if is_kept else run.config.corpus.tags
        tokenizers = with_spelling(tokenizers, config.tokenizer, tags)
    if is_kept:
        return config, tokenizers, ParentRun(parent_path, run, ([], []))
    pairs = tokenizer_pairs(read(config, cache, stream_rows), config)
    limit, is_shared = config.init.max_new_entries, config.tokenizer.shared
    tokenizers = extended_pair(tokenizers, pairs, config.corpus.tags, limit, is_shared)
    source, target = (old_ids_of_entries(*each) for each in zip(run.tokenizers, tokenizers, strict=True))
    return config, tokenizers, ParentRun(parent_path, run, (source, target))


def inherited(config: Config, previous: Config, origin: str) -> Config:
    """The config with `tokenizer` and `model` of another one, except where it sets options that may differ.

    `tokenizer.letters` is for the languages of the other one: in others, letters stay as they are. Raises ConfigError
    with every other option that differs.
    """
    tree, problems = config.model_dump(mode="json", exclude_unset=True), list[str]()
    for section, may_differ in _MAY_DIFFER.items():
        theirs, given = getattr(previous, section).model_dump(mode="json"), tree.get(section, {})
        if section == "tokenizer" and not _languages_of(config) <= _languages_of(previous):
            theirs["letters"] = {}
        for key, value in given.items():
            if (key not in may_differ or _is_fixed(key, theirs)) and value != theirs[key]:
                problems.append(f"{section}.{key}: is {_shown(theirs[key])} there, not {_shown(value)}")
        tree[section] = theirs | given
    if problems:
        raise ConfigError("\n  ".join([f"{origin}:", *problems]) + "\nRemove these options, or train a new model.")
    return parse_config(tree, origin)


def _languages_of(config: Config) -> set[str]:
    return {language for both in config.corpus.languages_of("train") for language in both}


def _is_fixed(key: str, theirs: Mapping[str, Any]) -> bool:
    """Whether the option of a parent is one that its positions or its SentencePiece model need."""
    if key == "max_positions":
        return bool(theirs["positions"] == "learned")
    return key in ("normalize", "letters") and bool(theirs["algorithm"] == "sentencepiece")


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
