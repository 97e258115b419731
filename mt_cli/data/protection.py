"""Protected spans in corpora: kinds that `mt init` proposes, and pairs whose spans do not match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from mt_cli.config.sections import Config
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.protected_text import PATTERNS, Protection
from mt_cli.corpus.rows import Pair, untagged
from mt_cli.corpus.sources import places_in
from mt_cli.data.prepare import Data, sample
from mt_cli.runtime.console import listed

_PAIRS_EXAMINED, _PAIRS_CHECKED = 5_000, 200_000
_MIN_PAIRS, _MIN_SHARE, _MIN_MATCHED = 10, 0.002, 0.8
_NEVER_PROPOSED = "numbers"
"""Numbers are often written in words, or otherwise, in the other language."""
_NUM_NAMED = 5


class Kind(NamedTuple):
    """A kind of span in a sample of pairs."""

    name: str
    num_pairs: int
    """Number of pairs whose source has such spans."""
    matched: float
    """Share of the spans of sources that the targets have, 0 to 1."""


def kinds_in(pairs: Sequence[Pair]) -> list[Kind]:
    """Kinds of span that pairs have on both sides: in enough pairs, and mostly with the same text."""
    kinds = []
    for name in (name for name in PATTERNS if name != _NEVER_PROPOSED):
        protection, num_pairs, num_spans, num_matched = Protection((name,)), 0, 0, 0
        for source, target in pairs:
            if spans := _spans(protection, source):
                num_pairs += 1
                num_spans += spans.total()
                num_matched += (spans & _spans(protection, target)).total()
        if num_pairs >= max(_MIN_PAIRS, _MIN_SHARE * len(pairs)) and num_matched >= _MIN_MATCHED * num_spans:
            kinds.append(Kind(name, num_pairs, num_matched / num_spans))
    return kinds


def proposed_kinds(train: Corpus, config: Config) -> tuple[list[Kind], int]:
    """Kinds of span that `corpus.protect` can name, by a sample of the training pairs; also the size of the sample."""
    pairs = [pair for _, pair in train.untagged_pairs(sample(train, _PAIRS_EXAMINED, config.training.seed))]
    return kinds_in(pairs), len(pairs)


def notes_on_spans(data: Data, config: Config) -> Iterator[str]:
    """Note pairs of each corpus whose protected spans are not the same on both sides, with places."""
    protection = Protection.of(config.corpus)
    for name, corpus in data.corpora.items() if protection else ():
        mask = sample(corpus, _PAIRS_CHECKED, config.training.seed)
        origins = np.repeat([part.name for part in corpus.parts], [part.num_rows for part in corpus.parts])[mask]
        num_pairs, places = 0, list[tuple[str, int]]()
        for origin, (number, source, target) in zip(origins.tolist(), corpus.rows(mask), strict=True):
            spans = [_spans(protection, text) for text in (untagged(source, config.corpus.tags), target)]
            num_pairs += any(spans)
            if spans[0] != spans[1]:
                places.append((origin, number))
        if places:
            named = places_in(config.corpus, name, places[:_NUM_NAMED])
            shown = [named.get(place, "") for place in places]  # Only the first ones are named.
            yield (
                f"{name}: {len(places):,} of {num_pairs:,} pairs with protected spans have other spans on the target "
                f"side, which are trained on as text: {listed(shown, _NUM_NAMED)}"
            )


def _spans(protection: Protection, text: str) -> Counter[str]:
    return Counter(text[start:end] for start, end in protection.spans(text))
