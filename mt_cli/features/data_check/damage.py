"""Text of corpora that other programs have processed, or that is damaged, with counts and places. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mt_cli.batching.encoded import SIDES
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.rows import Languages
from mt_cli.features.data_check.contradictions import notes_on_contradictions
from mt_cli.features.data_check.findings import Finding, Kind, Sentences, Tally, sentences_of
from mt_cli.features.data_check.marks import DAMAGED, IN_MARKUP, PROCESSED, Detector
from mt_cli.features.data_check.usage import Usage, Usages, count_usage, notes_on_usage


def find_damage(corpora: Mapping[str, Corpus], config: CorpusConfig) -> Iterator[Finding]:
    """Find processed and damaged text in the kept sentences of corpora."""
    usages: Usages = {}
    for name, corpus in corpora.items():
        for number in config.once(name):
            part, languages = corpus.parts[number], config.languages_of(name)[number]
            blocks = list(sentences_of(corpus, part, config.tags))
            yield from _find_marks(name, part.name, blocks, languages, config)
            for side, language in enumerate(languages):
                usage = usages.setdefault((name, language), Usage())
                for block in blocks:
                    count_usage(usage, language, part.name, block.numbers, block.sides[side])
    yield from notes_on_usage(usages, config)
    if "train" in corpora:
        yield from notes_on_contradictions(corpora["train"], config)


def _find_marks(
    name: str, part: str, blocks: Sequence[Sentences], languages: Languages, config: CorpusConfig
) -> Iterator[Finding]:
    """Find each kind of mark on each side; markup, on any side of a pair."""
    kinds = [(detector, (side,)) for detector in (*PROCESSED, *DAMAGED) for side in (0, 1)]
    for detector, sides in [*kinds, *((detector, (0, 1)) for detector in IN_MARKUP)]:
        tally, num_relevant = _count(part, blocks, detector, sides, languages)
        level = detector.level(tally.num, num_relevant, sum(map(len, blocks)))
        if level is None:
            continue
        what = "pairs" if len(sides) > 1 else f"{SIDES[sides[0]]} sentences"
        counts = f"{tally.num:,} of {num_relevant:,} {what} ({tally.num / num_relevant:.1%})"
        text = f"{counts} have {detector.name}, {tally.shown(name, config)}"
        kind: Kind = "segmented" if detector.is_segmentation else "processed" if detector in PROCESSED else "text"
        yield Finding(name, part, tally.rows[0][1], tally.last, text, kind, is_note=level == "note")


def _count(
    part: str, blocks: Sequence[Sentences], detector: Detector, sides: tuple[int, ...], languages: Languages
) -> tuple[Tally, int]:
    """Tally of the sentences with a mark, and the number of those that could have it."""
    tally, num_relevant = Tally(), 0
    for block in blocks:
        texts = [block.sides[side] for side in sides]
        masks = [detector.mark(side, languages[index]) for side, index in zip(texts, sides, strict=True)]
        is_relevant = detector.is_relevant
        num_relevant += len(block) if is_relevant is None else int(is_relevant(texts[0], languages[sides[0]]).sum())
        marked_side = pc.if_else(pa.array(masks[0]), texts[0], texts[-1])
        tally.add(part, block.numbers, marked_side, np.logical_or.reduce(masks))
    return tally, num_relevant
