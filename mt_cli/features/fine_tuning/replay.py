"""Replay: corpora of the parent, mixed with those of the run against forgetting. Knows counts of pairs, no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mt_cli.checkpoint.directory import is_imported
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.config.sources import HeldOut, TextSource
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.sources import names_of
from mt_cli.data.prepare import fingerprints_of, read
from mt_cli.errors import ConfigError, CorpusError
from mt_cli.machine.console import say

Tree = dict[str, Any]


def with_replay(config: Config, run: TrainedRun, cache: Cache) -> Config:
    """Return the config with the corpora of its parent, if `init.replay` asks for them and they are not there yet.

    Their weights make them the share `init.replay` of the pairs of an epoch. The test set of a parent with the same
    languages becomes an extra test. Raises ConfigError if corpora cannot be mixed, and CorpusError if one cannot be
    read or has changed since the parent was trained.
    """
    share, corpus, parent = config.init.replay, config.corpus, run.config
    if share is None or _has_corpora_of(parent, corpus):
        return config
    _check_corpora(config, parent)
    _check_tags(config, parent)
    _check_unchanged(run, cache)
    new, replayed = [_as_tree(source) for source in corpus.train], _replayed(parent.corpus.train, parent, corpus)
    train = read(_with_corpora(config, train=[*new, *replayed]), cache)["train"]
    counts = [train.num_kept(part) for part in train.parts]
    num_new, num_replayed = _num_pairs(counts[: len(new)], new), _num_pairs(counts[len(new) :], replayed)
    if not num_replayed:
        raise CorpusError(f"init.replay: no pair of {parent.name} is left beside the pairs of this run")
    factor = share / (1 - share) * num_new / num_replayed
    for source in replayed:
        source["weight"] = float(f"{_weight(source) * factor:.4g}")
    say(f"init.replay: {share:.0%} of the pairs of an epoch are pairs of {parent.name}, each {factor:.3g} times")
    tests = {name: [_as_tree(source) for source in sources] for name, sources in corpus.extra_tests.items()}
    if parent.corpus.test is not None and parent.corpus.languages == corpus.languages:
        tests[parent.name] = _replayed(parent.corpus.test, parent, corpus)
    return _with_corpora(config, train=[*new, *replayed], extra_tests=tests)


def _has_corpora_of(parent: Config, corpus: CorpusConfig) -> bool:
    names = {f"{parent.name}/{name}" for name in names_of(parent.corpus.train)}
    return names <= {source.name for source in corpus.train}


def _num_pairs(counts: Sequence[int], sources: Sequence[Tree]) -> float:
    """Number of pairs of an epoch."""
    return sum(count * _weight(source) for count, source in zip(counts, sources, strict=True))


def _weight(source: Tree) -> float:
    return source.get("weight") or 1.0


def _check_corpora(config: Config, parent: Config) -> None:
    """Raise ConfigError if the corpora of both runs cannot be mixed in known proportions, or would be other pairs."""
    new, old = config.corpus, parent.corpus
    compares = any(old.filters_of(source).other_orthography for source in old.train)
    for is_problem, problem in (
        (new.is_streaming or old.is_streaming, "the sizes of streams are not known"),
        (new.temperature is not None, "corpus.temperature sets the weights of all corpora; remove it"),
        (isinstance(new.valid[0], HeldOut), "corpus.valid would hold out pairs of both runs; name pairs for it"),
        (
            compares and _evaluation_text(new) != _evaluation_text(old),
            f"corpus.filters.other_orthography of {parent.name} compares with its own valid or test; write the pairs "
            f"that it keeps with mt data check --config {config.init.run}/config.yaml --write-clean FILE.tsv, and list "
            "that file in corpus.train",
        ),
        (is_imported(parent), f"{parent.name} was imported, so its pairs are not known; add pairs yourself"),
    ):
        if is_problem:
            raise ConfigError(f"init.replay: {problem}")


def _evaluation_text(corpus: CorpusConfig) -> tuple[TextSource, ...]:
    """Text with which the orthography of `train` is compared."""
    return corpus.groups.get(corpus.compared or "", ())


def _check_tags(config: Config, parent: Config) -> None:
    """Raise ConfigError if other languages are to be mixed without tags."""
    untagged = [run.name for run in (config, parent) if any(source.tag is None for source in run.corpus.train)]
    if config.corpus.languages != parent.corpus.languages and untagged:
        directions = " and ".join(" to ".join(run.corpus.languages) for run in (config, parent))
        names = " and ".join(untagged)
        raise ConfigError(
            f"init.replay: a model for {directions} needs a tag for each corpus, and {names} has none; set "
            "corpus.tag: to_target where a model has tags; otherwise remove replay and list the old files in "
            "corpus.train, with tags and languages, and vocabulary: extend"
        )


def _check_unchanged(run: TrainedRun, cache: Cache) -> None:
    """Raise CorpusError unless the corpora of the parent have the text that it was trained on."""
    before = run.state.fingerprints
    try:
        now = fingerprints_of(read(run.config, cache), run.config)
    except CorpusError as error:
        raise CorpusError(f"{error} (init.replay reads the corpora of {run.config.name} again)") from None
    if changed := [name for name, digest in now.items() if before.get(name, digest) != digest]:
        raise CorpusError(
            f"init.replay: {', '.join(changed)}: not the text that {run.config.name} was trained on; relative paths of "
            "its config begin in the folder in which it was trained, so run mt train there, or restore the files"
        )


def _as_tree(source: Any) -> Tree:
    return dict(source.model_dump(mode="json", exclude_unset=True))


def _replayed(sources: Sequence[TextSource], parent: Config, corpus: CorpusConfig) -> list[Tree]:
    """Sources of the parent, with its name before theirs, and with its languages and filters if they differ."""
    old, trees = parent.corpus, []
    for source, name in zip(sources, names_of(sources), strict=True):
        tree = _as_tree(source) | {"name": f"{parent.name}/{name}"}
        if source.languages is None and old.languages != corpus.languages:
            tree["languages"] = list(old.languages)
        if source.filters is None and old.filters != corpus.filters and source in old.train:
            tree["filters"] = old.filters.model_dump(mode="json")
        trees.append(tree)
    return trees


def _with_corpora(config: Config, **corpora: Any) -> Config:
    tree = config.model_dump(mode="json", exclude_unset=True)
    tree["corpus"] |= corpora
    return parse_config(tree, "init.replay")


def replayed_before(config: Config, previous: Config) -> Config:
    """Return the config of a run that resumes with the corpora that it took from its parent in the beginning."""
    corpus, before = config.corpus, previous.corpus
    replayed = before.train[len(corpus.train) :]
    parent = (replayed[-1].name or "").partition("/")[0] if replayed else ""
    is_same = [*corpus.train] == [*before.train[: len(corpus.train)]]
    is_same = is_same and all((source.name or "").startswith(f"{parent}/") for source in replayed)
    if config.init.replay is None or config.init.replay != previous.init.replay or not is_same:
        return config
    tests = {name: sources for name, sources in before.extra_tests.items() if name == parent}
    update = {"train": before.train, "extra_tests": tests | dict(corpus.extra_tests)}
    return config.model_copy(update={"corpus": corpus.model_copy(update=update)})
