"""Check of corrections, one by one: which of them `mt learn` refuses, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.advice.marks import PROCESSED
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import KEPT, STATUS_NAMES, Mask, clean
from mt_cli.corpus.corrections import Correction
from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.corpus.text_hashes import Hashes
from mt_cli.corpus.varieties import variety_of
from mt_cli.runtime.console import truncate
from mt_cli.translation.translator import Translator

_NUM_EXAMPLES = 3
_ADDED_CHARACTERS, _OUTLIERS, _MARGIN = 10, 0.001, 1.25
"""A ratio of lengths is unusual if it is by this margin beyond all but this share of the ratios of the corpus."""
_FEWEST_PAIRS = 100
_RARE = 0.01
"""Share of sentences with a mark up to which the corpus is without it."""
_LONGEST_NAME, _PUNCTUATION = 3, ".,;:!?"
_NUM_OTHERS = 4
_MANY, _CAUGHT = 0.1, 0.9
"""If more than a tenth of the targets seem to be unrelated, nine in ten of these are refused, and some good ones."""


class Direction(NamedTuple):
    """Direction of a model, and pairs without tags."""

    languages: Languages
    tag: str | None
    pairs: Sequence[Pair]


Refused = Mapping[str, Sequence[Correction]]
"""Refused corrections by reason."""


def check_corrections(
    corrections: Sequence[Correction],
    directions: Sequence[Direction],
    corpus: CorpusConfig,
    evaluation_hashes: Hashes,
    translator: Translator,
) -> tuple[list[Direction], Refused]:
    """Pairs to learn from, by direction, and refused corrections by the filter that drops them, or another reason.

    `directions` have samples of the training pairs. `unknown_direction`: the model does not translate so. `overlap`: a
    sentence of an evaluation set. `length_ratio`: unusual in the corpus. `processed`: marks of another program, such as
    spaces before punctuation, which the corpus lacks. `unrelated`: the target is as likely for other sources, by the
    model.
    """
    refused = defaultdict[str, list[Correction]](list)
    by_place = defaultdict[int, list[Correction]](list)
    for item in corrections:
        place = _place_of(item.languages, directions)
        (refused["unknown_direction"] if place is None else by_place[place]).append(item)
    kept = []
    for place, items in by_place.items():
        direction = directions[place]
        reasons = _reasons(items, direction, corpus, evaluation_hashes)
        likely = [item for item, reason in zip(items, reasons, strict=True) if reason is None]
        unrelated, pairs = iter(_are_unrelated(likely, direction, translator)), list[Pair]()
        for item, reason in zip(items, reasons, strict=True):
            if dropped_by := reason or ("unrelated" if next(unrelated) else None):
                refused[dropped_by].append(item)
            else:
                pairs.append(item.pair)
        kept.append(direction._replace(pairs=pairs))
    return kept, refused


def _place_of(languages: Languages, directions: Sequence[Direction]) -> int | None:
    """Index of the direction in these varieties or, without one, of the first in these languages."""
    for key in (variety_of, primary):
        wanted = [*map(key, languages)]
        for number, direction in enumerate(directions):
            if [*map(key, direction.languages)] == wanted:
                return number
    return None


def describe_refused(refused: Refused) -> list[str]:
    """A line for each reason, with the number of corrections and the first ones."""
    return [
        f"  {reason:<17}{len(items):>6,}  "
        + " | ".join(f"{truncate(item.source, 40)} → {truncate(item.target, 40)}" for item in items[:_NUM_EXAMPLES])
        for reason, items in refused.items()
    ]


def _reasons(
    items: Sequence[Correction], direction: Direction, corpus: CorpusConfig, evaluation_hashes: Hashes
) -> list[str | None]:
    """Reason against each correction by its text; None for a good one."""
    rows = [(number, *item.pair) for number, item in enumerate(items, start=1)]
    block = clean(rows, corpus.filters.model_copy(update={"identical": False}), direction.languages)
    masks: dict[str, Mask] = {"overlap": np.asarray(np.isin(block.hashes[:2], evaluation_hashes).any(axis=0))}
    if corpus.filters.identical:
        masks["identical"] = np.array([_is_untranslated(*item.pair) for item in items])
    if len(direction.pairs) >= _FEWEST_PAIRS:
        ratios, usual = _log_ratios([item.pair for item in items]), _log_ratios(direction.pairs)
        low, high = np.quantile(usual, [_OUTLIERS, 1 - _OUTLIERS])
        masks["length_ratio"] = np.asarray((ratios < low - np.log(_MARGIN)) | (ratios > high + np.log(_MARGIN)))
    if not corpus.accept_processed:
        masks["processed"] = _are_processed([item.target for item in items], direction)
    names = [None if code == KEPT else STATUS_NAMES[code] for code in block.statuses]
    return [name or next((key for key, mask in masks.items() if mask[row]), None) for row, name in enumerate(names)]


def _is_untranslated(source: str, target: str) -> bool:
    """True if a text was not translated; shorter ones, such as `OK`, may be names, and others code."""
    words = source.split()
    return words == target.split() and sum(word.rstrip(_PUNCTUATION).isalpha() for word in words) > _LONGEST_NAME


def _log_ratios(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    lengths = np.array([[len(source), len(target)] for source, target in pairs]) + _ADDED_CHARACTERS
    ratios: NDArray[np.float64] = np.log(lengths[:, 1] / lengths[:, 0])
    return ratios


def _are_processed(targets: Sequence[str], direction: Direction) -> Mask:
    language, mask = direction.languages[1], np.zeros(len(targets), dtype=bool)
    of_corpus = pa.array([target for _, target in direction.pairs], pa.string())
    for detector in PROCESSED:
        if detector.mark(of_corpus, language).sum() <= max(detector.note_share, _RARE) * len(of_corpus):
            mask |= detector.mark(pa.array(targets, pa.string()), language)
    return mask


def _are_unrelated(items: Sequence[Correction], direction: Direction, translator: Translator) -> Mask:
    """Mask of the targets that are at most as likely for their source as for others of about the same length.

    Names and code that stay as they are belong together, however unlikely.
    """
    sources = {*(item.source for item in items), *(source for source, _ in direction.pairs[:_FEWEST_PAIRS])}
    pool = sorted(sorted(sources), key=len)  # The order of a set differs between processes.
    places, targets = {source: place for place, source in enumerate(pool)}, [item.target for item in items]
    if len(pool) <= _NUM_OTHERS or not items:
        return np.zeros(len(items), dtype=bool)

    def log_probs(shift: int) -> NDArray[np.float64]:
        shifted = [pool[(places[item.source] + shift) % len(pool)] for item in items]
        return np.array([score.log_prob for score in translator.score(shifted, targets, direction.tag)])

    own, *others = (log_probs(shift) for shift in range(_NUM_OTHERS + 1))
    gains, limit = own - np.mean(others, axis=0), 0.0
    if 2 * np.mean(gains <= 0) > _MANY:  # Half of the unrelated targets are by chance above zero.
        by_chance = [one - (np.sum(others, axis=0) - one) / (_NUM_OTHERS - 1) for one in others]
        limit = float(np.quantile(by_chance, _CAUGHT))
    is_copy = np.array([item.source.split() == item.target.split() for item in items])
    return np.asarray((gains <= limit) & ~is_copy)
