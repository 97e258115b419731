"""Start from another run, the parent: its architecture, tokenizers and weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.config.tags import direction_of
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import read, tokenizer_pairs
from mt_cli.errors import ConfigError, RunError
from mt_cli.model.adapters import check_trainable
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.files import real_path
from mt_cli.tokenizer.spacing import untrained_backend
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair
from mt_cli.tokenizer.vocabulary_extension import extended_pair, old_ids_of_entries
from mt_cli.tokenizer.vocabulary_training import reserved_characters

_MAY_DIFFER: Mapping[str, frozenset[str]] = {
    "tokenizer": frozenset({"bpe_dropout", "normalize", "letters"}),
    "model": frozenset({"dropout", "attention_dropout", "feed_forward_dropout"}),
}
"""Options that may have other values than in the parent."""
_FIXED_BY_SENTENCEPIECE = frozenset({"normalize", "letters"})
"""Exceptions for a SentencePiece model."""


@dataclass(frozen=True)
class ParentRun:
    """Run that another run begins with."""

    path: Path
    run: TrainedRun
    new_entries: tuple[list[list[int]], list[list[int]]]
    """For each entry that is added to the source or target vocabulary, the ids that spelled it before."""

    def load_weights_into(self, model: Transformer) -> None:
        """Load the weights of the parent into a model of the same architecture, with rows for the new entries."""
        source, target = self.new_entries
        new_rows = {"source_embedding.table.weight": source, "target_embedding.table.weight": target}
        weights = self.run.model.state_dict()
        new_rows |= {name: target for name in ("projection.weight", "projection.bias") if name in weights}
        for name, entries in new_rows.items():
            rows = weights[name]
            weights[name] = torch.cat([rows, *(rows[ids].mean(dim=0, keepdim=True) for ids in entries)])
        model.load_state_dict(weights)

    def describe(self) -> str:
        corpus = self.run.config.corpus
        directions = dict.fromkeys(corpus.languages_of("train"))
        languages = f"{len(directions)} directions" if len(directions) > 1 else " to ".join(corpus.languages)
        sides = ("shared",) if self.run.config.tokenizer.shared else ("source", "target")
        new = zip(sides, self.new_entries, strict=False)
        added = [f"{len(entries):,} new {side} entries" for side, entries in new if entries]
        return ", ".join([str(self.path), languages, f"step {self.run.state.best_step:,}", *added])


def adopt(
    config: Config, cache: Cache, path: Path | None, stream_rows: int | None
) -> tuple[Config, TokenizerPair, ParentRun]:
    """Return the config completed with the options of its parent, the parent's tokenizers, and the parent.

    The tokenizers are extended and normalize text as the config says. `path` is the directory of the new run.
    """
    assert config.init.run is not None
    parent_path = Path(config.init.run)
    if path is not None and real_path(parent_path) == real_path(path):
        raise ConfigError(f"init.run: {parent_path} is the directory of this run itself; give the config another name")
    try:
        run = TrainedRun.load(parent_path)
        config = inherited(config, run.config, f"init.run: {parent_path} is another model")
        _check_tags(config, run, parent_path)
        check_trainable(run.model, config.init)
        is_kept, tokenizers = config.init.vocabulary == "keep", run.tokenizers
        if is_kept:  # Loaded again with the tags of the child.
            of_parent = config.model_copy(update={"tokenizer": run.config.tokenizer})
            tokenizers = RunDirectory(parent_path).tokenizers(of_parent)
    except RunError as error:
        raise RunError(f"init.run: {error}") from None
    if config.corpus.has_protection and not all(tokenizer.reserved_ids for tokenizer in tokenizers):
        raise ConfigError(
            f"corpus.protect: {parent_path} has no entries for protected spans in its vocabulary; remove this option, "
            "or train a new model"
        )
    if config.corpus.terms and not all(tokenizer.has_term_marks for tokenizer in tokenizers):
        raise ConfigError(
            f"corpus.terms: {parent_path} has no entries for the marks of terms in its vocabulary; remove this option, "
            "or train a new model"
        )
    spellings = [of.tokenizer.changes_of_spelling for of in (config, run.config)]
    if spellings[0] != spellings[1]:
        tags = config.corpus.tags if is_kept else run.config.corpus.tags
        tokenizers = _with_spelling(tokenizers, config, tags)
    if is_kept:
        return config, tokenizers, ParentRun(parent_path, run, ([], []))
    pairs = tokenizer_pairs(read(config, cache, stream_rows), config)
    tokenizers = extended_pair(tokenizers, pairs, config.corpus.tags, config.tokenizer.shared)
    source, target = (old_ids_of_entries(old, new) for old, new in zip(run.tokenizers, tokenizers, strict=True))
    return config, tokenizers, ParentRun(parent_path, run, (source, target))


def _check_tags(config: Config, run: TrainedRun, path: Path) -> None:
    """Raise ConfigError if the parent has a tag before every sentence, and corpora of the config have none.

    If its vocabulary has languages, as M2M100 and NLLB have, the tags must be of directions between them.
    """
    parent, languages = run.config, run.tokenizers[0].languages
    for tag in config.corpus.tags if languages else ():
        missing = [language for language in direction_of(tag) or [tag] if language not in languages]
        if missing:
            known = ", ".join(languages[:10]) + (", ..." if len(languages) > 10 else "")
            raise ConfigError(
                f"init.run: {path} has no entry for {missing[0]}; set corpus.tag: direction, and name the languages as "
                f"there ({known}) in source, target and `languages`; mt import --new-language adds one"
            )
    if parent.corpus.tagging.is_required and any(source.tag is None for source in config.corpus.train):
        tags = f"`tag` of each: {', '.join(parent.corpus.tags)}"
        advice = "corpus.tag: to_target" if parent.corpus.has_target_tags else tags
        advice = "corpus.tag: direction" if languages else advice
        raise ConfigError(
            f"init.run: {path} has a tag before every sentence, which corpora of this config lack; set {advice}"
        )


def _with_spelling(pair: TokenizerPair, config: Config, tags: Sequence[str]) -> TokenizerPair:
    """Tokenizers with the same entries that normalize text as a config says; not for SentencePiece models."""
    normalizer = json.loads(
        untrained_backend(config.tokenizer, reserved=reserved_characters(config.corpus))[0].to_str()
    )["normalizer"]

    def changed(tokenizer: Tokenizer, tags: Sequence[str]) -> Tokenizer:
        state = json.loads(tokenizer.to_json()) | {"normalizer": normalizer}
        return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)

    source, target = pair
    first = changed(source, tags)
    return first, first if source is target else changed(target, ())


def inherited(config: Config, previous: Config, origin: str) -> Config:
    """Return the config with `tokenizer` and `model` of a previous config, except for options that may differ.

    `tokenizer.letters` of the previous config applies only to its languages. Raises ConfigError with every other option
    that differs.
    """
    tree, problems = config.model_dump(mode="json", exclude_unset=True), list[str]()
    for section, may_differ in _MAY_DIFFER.items():
        before, options = getattr(previous, section).model_dump(mode="json"), tree.get(section, {})
        if section == "tokenizer" and not _languages_of(config) <= _languages_of(previous):
            before["letters"] = {}
        if before.get("algorithm") == "sentencepiece":
            may_differ -= _FIXED_BY_SENTENCEPIECE
        for key, value in options.items():
            if key not in may_differ and value != before[key]:
                problems.append(f"{section}.{key}: is {on_one_line(before[key])} there, not {on_one_line(value)}")
        tree[section] = before | options
    for key in ("protect", "terms"):
        tree["corpus"].setdefault(key, previous.corpus.model_dump(mode="json")[key])
    if problems:
        raise ConfigError("\n  ".join([f"{origin}:", *problems]) + "\nRemove these options, or train a new model.")
    return parse_config(tree, origin)


def _languages_of(config: Config) -> set[str]:
    return {language for direction in config.corpus.languages_of("train") for language in direction}
