"""Text of corpora that other programs have processed, or that is damaged, with counts and places. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.rows import Languages
from mt_cli.features.data_check.contradictions import Contradictions, find_contradictions
from mt_cli.features.data_check.marks import DAMAGED, IN_MARKUP, PROCESSED, Detector
from mt_cli.features.data_check.problems import Kind, Problem
from mt_cli.features.data_check.sentences import SIDES, Sentences, Tally, sentences_of
from mt_cli.features.data_check.usage import Usages, count_usage, notes_on_usage

_ANY = "any"


def find_damage(corpora: Mapping[str, Corpus], config: CorpusConfig) -> Iterator[Problem]:
    """Processed and damaged text in the kept sentences of corpora, as problems and notes."""
    usages: Usages = {}
    for name, corpus in corpora.items():
        for number in config.once(name):
            part, languages = corpus.parts[number], config.languages_of(name)[number]
            blocks = list(sentences_of(corpus, part, config.tags))
            yield from _marked(name, part.name, blocks, languages, config)
            for side, language in zip(SIDES, languages, strict=True):
                count_usage(usages, name, language, part.name, [(each.numbers, each.side(side)) for each in blocks])
    yield from notes_on_usage(usages, config)
    if "train" in corpora and (found := contradictions_in(corpora["train"], config)).are_many:
        text = f"{found}, {_places_of(found.example, corpora['train'], config)}; keep one target of each source"
        yield Problem("train", "", 0, 0, text, "text", is_note=True)


def contradictions_in(train: Corpus, config: CorpusConfig) -> Contradictions:
    """Sources of `train`, with the tags that tell them apart, that have several different targets."""
    blocks = (block for number in config.once("train") for block in sentences_of(train, train.parts[number], ()))
    return find_contradictions((block.source, block.target) for block in blocks)


def _marked(
    name: str, part: str, blocks: Sequence[Sentences], languages: Languages, config: CorpusConfig
) -> Iterator[Problem]:
    """Problems and notes for each kind of mark on each side; for markup, on any side of a pair."""
    kinds = [(detector, side) for detector in (*PROCESSED, *DAMAGED) for side in SIDES]
    for detector, side in [*kinds, *((detector, _ANY) for detector in IN_MARKUP)]:
        tally, num_relevant = _tally(part, blocks, detector, side, languages)
        level = detector.level(tally.num, num_relevant, sum(map(len, blocks)))
        if level is not None:
            whose = "pairs" if side == _ANY else f"{side} sentences"
            counts = f"{tally.num:,} of {num_relevant:,} {whose} ({tally.num / num_relevant:.1%})"
            text = f"{counts} have {detector.name}, {tally.shown(name, config)}"
            kind: Kind = "segmented" if detector.is_segmentation else "processed" if detector in PROCESSED else "text"
            yield Problem(name, part, tally.rows[0][1], tally.last, text, kind, is_note=level == "note")


def _tally(
    part: str, blocks: Sequence[Sentences], detector: Detector, side: str, languages: Languages
) -> tuple[Tally, int]:
    """The sentences with a mark, and the number of those that could have it."""
    tally, num_relevant = Tally(), 0
    for block in blocks:
        sides = [(block.side(name), language) for name, language in zip(SIDES, languages, strict=True)]
        if side != _ANY:
            sides = [sides[SIDES.index(side)]]
        masks = [detector.mark(texts, language) for texts, language in sides]
        is_relevant = detector.is_relevant
        num_relevant += len(block) if is_relevant is None else int(is_relevant(*sides[0]).sum())
        marked_side = pc.if_else(pa.array(masks[0]), sides[0][0], sides[-1][0])
        tally.add(part, block.numbers, marked_side, np.logical_or.reduce(masks))
    return tally, num_relevant


def _places_of(source: str, train: Corpus, config: CorpusConfig) -> str:
    """A source of `train`, as it is stored, with its first places."""
    tally = Tally()
    for number in config.once("train"):
        part = train.parts[number]
        for block in sentences_of(train, part, ()):
            mask = pc.equal(block.source, source).to_numpy(zero_copy_only=False)
            tally.add(part.name, block.numbers, block.source, mask)
    return tally.shown("train", config)
