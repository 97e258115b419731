"""Corpora of the parent of a run, mixed with its own against forgetting. Knows counts of pairs, no model."""

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
    """The config with the corpora of its parent, if `init.replay` asks for them and it does not have them yet.

    Weights make them the share `init.replay` of the pairs of an epoch. The test set of a parent with the same languages
    becomes an extra test. Raises ConfigError if corpora cannot be mixed, and CorpusError if one cannot be read or is
    not the text that the parent was trained on.
    """
    parent = run.config
    share, own, theirs = config.init.replay, config.corpus, parent.corpus
    if share is None or _is_mixed(own, theirs, parent.name):
        return config
    _check_corpora(config, parent)
    if is_imported(parent):
        raise ConfigError(f"init.replay: {parent.name} was imported, so its pairs are not known; add pairs yourself")
    _check_tags(config, parent)
    _check_unchanged(run, cache)
    new = [_dumped(source) for source in own.train]
    old = _adopted(theirs.train, theirs, own, parent.name)
    train = read(_with_corpora(config, train=[*new, *old]), cache)["train"]
    counts = [train.num_kept(part) for part in train.parts]
    totals = [
        sum(number * (source.get("weight") or 1.0) for number, source in zip(some, sources, strict=True))
        for some, sources in ((counts[: len(new)], new), (counts[len(new) :], old))
    ]
    if not totals[1]:
        raise CorpusError(f"init.replay: no pair of {parent.name} is left beside the pairs of this run")
    factor = share / (1 - share) * totals[0] / totals[1]
    for source in old:
        source["weight"] = float(f"{(source.get('weight') or 1.0) * factor:.4g}")
    say(f"init.replay: {share:.0%} of the pairs of an epoch are pairs of {parent.name}, each {factor:.3g} times")
    tests = {name: [_dumped(source) for source in sources] for name, sources in own.extra_tests.items()}
    if theirs.test is not None and theirs.languages == own.languages:
        tests[parent.name] = _adopted(theirs.test, theirs, own, parent.name)
    return _with_corpora(config, train=[*new, *old], extra_tests=tests)


def _check_corpora(config: Config, parent: Config) -> None:
    """Raise ConfigError if the corpora of both runs cannot be mixed in known proportions, or would be other pairs."""
    own, theirs = config.corpus, parent.corpus
    for is_problem, problem in (
        (own.is_streaming or theirs.is_streaming, "the sizes of streams are not known"),
        (own.temperature is not None, "corpus.temperature sets the weights of all corpora; remove it"),
        (isinstance(own.valid[0], HeldOut), "corpus.valid would hold out pairs of both runs; name pairs for it"),
        (
            _compared(own) != _compared(theirs)
            and any(theirs.filters_of(source).other_orthography for source in theirs.train),
            f"corpus.filters.other_orthography of {parent.name} compares with its own valid or test; write the pairs "
            f"that it keeps with mt data check --config {config.init.run}/config.yaml --write-clean FILE.tsv, and list "
            "that file in corpus.train",
        ),
    ):
        if is_problem:
            raise ConfigError(f"init.replay: {problem}")


def _compared(corpus: CorpusConfig) -> tuple[TextSource, ...]:
    """The text with which the orthography of `train` is compared."""
    return corpus.groups.get(corpus.compared or "", ())


def _check_tags(config: Config, parent: Config) -> None:
    """Raise ConfigError if other languages are to be mixed without tags."""
    own, theirs = config.corpus, parent.corpus
    named = ((config.name, own), (parent.name, theirs))
    untagged = [name for name, corpus in named if any(source.tag is None for source in corpus.train)]
    if own.languages != theirs.languages and untagged:
        both = " and ".join(" to ".join(each) for each in (own.languages, theirs.languages))
        raise ConfigError(
            f"init.replay: a model for {both} needs a tag for each corpus, and {' and '.join(untagged)} has none; set "
            "corpus.tag: to_target where a model has tags; otherwise remove replay and list the old files in "
            "corpus.train, with tags and languages, and vocabulary: extend"
        )


def _is_mixed(own: CorpusConfig, theirs: CorpusConfig, name: str) -> bool:
    return {source.name for source in own.train}.issuperset(f"{name}/{title}" for title in names_of(theirs.train))


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


def _dumped(source: Any) -> Tree:
    return dict(source.model_dump(mode="json", exclude_unset=True))


def _adopted(sources: Sequence[TextSource], theirs: CorpusConfig, own: CorpusConfig, name: str) -> list[Tree]:
    """The sources of the parent, with its name before theirs, and with its languages and filters if they differ."""
    found = []
    for source, title in zip(sources, names_of(sources), strict=True):
        tree = _dumped(source) | {"name": f"{name}/{title}"}
        if source.languages is None and theirs.languages != own.languages:
            tree["languages"] = list(theirs.languages)
        if source.filters is None and theirs.filters != own.filters and source in theirs.train:
            tree["filters"] = theirs.filters.model_dump(mode="json")
        found.append(tree)
    return found


def _with_corpora(config: Config, **corpora: Any) -> Config:
    tree = config.model_dump(mode="json", exclude_unset=True)
    tree["corpus"] |= corpora
    return parse_config(tree, "init.replay")


def replayed_before(config: Config, previous: Config) -> Config:
    """The config of a run that resumes with the corpora that it took from its parent in the beginning."""
    own, before = config.corpus, previous.corpus
    added = before.train[len(own.train) :]
    parent = (added[-1].name or "").partition("/")[0] if added else ""
    is_same = list(own.train) == list(before.train[: len(own.train)])
    is_same = is_same and all((source.name or "").startswith(f"{parent}/") for source in added)
    if config.init.replay is None or config.init.replay != previous.init.replay or not is_same:
        return config
    tests = {name: sources for name, sources in before.extra_tests.items() if name == parent}
    corpus = own.model_copy(update={"train": before.train, "extra_tests": tests | dict(own.extra_tests)})
    return config.model_copy(update={"corpus": corpus})
