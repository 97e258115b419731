"""Stretches of lines in which two sides of a corpus do not translate each other line by line.

A missing line shifts all lines after it: line N of the source then belongs to line N + 1 of the target. This difference
is called the slip; here it is 1.
Four features measure how well a line matches its candidate lines in any language: length (Gale and Church 1993),
numbers, the final mark, and words that occur in corresponding lines more often than by chance. Words are counted over
all candidate slips, so that no slip is favoured. Dynamic programming finds the most likely sequence of slips, with a
cost for each change of slip.

Legend of the shapes: F features, S slips, N lines, W units of a line.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from mt_cli.corpus.languages import SPACELESS, SPACELESS_CHARACTER
from mt_cli.corpus.rows import is_of_word

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Features = tuple[Floats, Integers, Integers]
"""Length, numbers and final mark of each line."""
Units = tuple[Integers, Floats]
"""NxW indices of units, -1 for padding, and their frequencies."""
_MIN_LINES = 100
"""Fewer lines give no reliable statistics."""
_NEAR_SLIPS = 5
"""Slips up to this number of lines are always candidates."""
_FAR_SLIPS = 200
"""Slips up to this number of lines are candidates if the lengths of lines suggest them."""
_LINES_PER_WINDOW = 500
"""Number of lines of a window; neighbouring windows overlap by half."""
_CLEAR_CORRELATION = 7.0
"""Minimum correlation of lengths at a far slip, in standard errors."""
_COST_OF_A_CHANGE = 20.0
"""Evidence in nats that a change of slip needs."""
_CLEAR_FIT, _CLEAR_FIT_ERRORS = 0.7, 7.0
"""Minimum advantage of a line's partner over other lines, in nats per line and in standard errors. Lists of terms among
sentences have an advantage of 1 to 2 nats; shuffled lines and lines after a large slip have at most 0.5."""
_NUMBERS = 1
"""Index of the feature for numbers."""
_WEAK_EVIDENCE = 0.3
"""Mean evidence in nats per line below which sides are unrelated: parallel text has 1.4 to 4 (19 languages), shuffled
text 0.1."""
_MIN_LINES_TO_CALL_UNRELATED = 300
_MIN_UNITS = 3
"""Minimum mean number of units per line for sides without evidence to count as unrelated."""
_UNITS_PER_LINE = 10
_LARGEST_SHARE = 0.1
"""Words in more than this share of the lines are ignored."""
_TABLE_BITS = 22
_WORD = regex.compile(rf"(?:(?![\u3000-\u3020\uff00-\uffef])[{SPACELESS}])+|[^\W\d_{SPACELESS}]+")
_FIRST_HAN_OR_KANA = "\u2e80"
_NUMBER = re.compile(r"\d{1,15}")
_SENTENCE_ENDS = {
    mark: kind for kind, marks in enumerate((".。।။།៕።", "?？؟;", "!！", ":：", ",،、")) for mark in marks
}
Stretch = tuple[int, int, int | None]
"""First and last line, from 1, and the slip; None if no candidate slip fits."""


@dataclass(frozen=True)
class Alignment:
    """Misaligned stretches of two sides, and whether the sides are unrelated."""

    stretches: list[Stretch]
    is_unrelated: bool
    """True if the sides do not translate each other at any candidate slip."""
    lines_alone: frozenset[int] = frozenset()
    """Lines of the source, from 1, that a change of slip leaves without a partner."""


def features_of(lines: Iterable[str]) -> Features:
    """Logarithm of the length of each line, hash of its numbers (0 for none), and kind of its final mark."""
    lines = list(lines)
    numbers = [sorted(map(int, _NUMBER.findall(line))) for line in lines]
    ends = [_SENTENCE_ENDS.get(line[-1:], -1 if is_of_word(line[-1:]) else -2) for line in lines]
    hashes = [hash(tuple(group)) if group else 0 for group in numbers]
    lengths: Floats = np.log(np.array([len(line) + 1 for line in lines], float))
    return lengths, np.array(hashes, np.int64), np.array(ends, np.int64)


def find_misaligned_stretches(sources: Sequence[str], targets: Sequence[str]) -> Alignment:
    """Find the slips between two sides; the longer side is truncated to the length of the shorter."""
    num_lines = min(len(sources), len(targets))
    if num_lines < _MIN_LINES:
        return Alignment([], False)
    sources, targets = sources[:num_lines], targets[:num_lines]
    is_equal = np.fromiter(map(str.__eq__, sources, targets), bool, num_lines)
    if num_lines - np.count_nonzero(is_equal) < _MIN_LINES:
        return Alignment([], False)
    features, units = (features_of(sources), features_of(targets)), (_rarest_units(sources), _rarest_units(targets))
    slips = _candidate_slips(features[0][0], features[1][0])
    values, exists = _compare(features, units, slips)
    exists[:, is_equal] = False  # Names that are not translated are no evidence for or against any slip.
    log_odds, evidence = _log_odds(values, exists)
    if evidence < _WEAK_EVIDENCE:
        # Lists of words, for example, give no evidence.
        has_units = all((matrix >= 0).sum(axis=1).mean() >= _MIN_UNITS for matrix, _ in units)
        return Alignment([], has_units and num_lines >= _MIN_LINES_TO_CALL_UNRELATED)
    nowhere, straight = np.zeros((1, num_lines)), slips.index(0)
    stretches = _stretches([*slips, None], _likeliest_slips(np.concatenate([log_odds, nowhere]), straight))
    stretches = [stretch for stretch in stretches if not _is_clean(stretch, log_odds, exists, straight)]
    return Alignment(stretches, False, frozenset(_lines_alone(stretches, dict(zip(slips, log_odds, strict=True)))))


def _lines_alone(stretches: Sequence[Stretch], odds_of_slips: Mapping[int, Floats]) -> Iterator[int]:
    """Lines without a partner at changes to a smaller slip, after which lines claim the partners of lines before it.

    Such a change from slip A to slip B leaves A - B lines without a partner. The evidence says which of these lines.
    """
    slips: list[int | None] = [0] * (len(odds_of_slips[0]) + 1)
    for first, last, slip in stretches:
        slips[first - 1 : last] = [slip] * (last - first + 1)
    for change, (before, after) in enumerate(pairwise(slips[:-1]), start=1):
        if before is None or after is None or before <= after:
            continue
        number = before - after
        first = max(0, change - number)
        with_before = odds_of_slips[before][first:change].sum() - np.append(
            0.0, odds_of_slips[before][first:change][::-1].cumsum()
        )
        with_after = odds_of_slips[after][first + number : change + number][::-1].cumsum()
        with_after = np.append(0.0, np.pad(with_after, (change - first - len(with_after), 0)))
        start = change - int((with_before + with_after).argmax())
        yield from range(start + 1, start + number + 1)


def _is_clean(stretch: Stretch, log_odds: Floats, exists: Bools, straight: int) -> bool:
    """True if a stretch for which no slip fits is aligned after all, and only unlike other text, as a list of terms is.

    The lines of such a stretch fit their partners clearly better than the lines a few places up or down.
    """
    first, last, slip = stretch
    lines = first - 1 + np.flatnonzero(exists[straight, first - 1 : last])
    if slip is not None or not len(lines):
        return slip is None
    odds, fitting = log_odds[:, lines], exists[:, lines]
    num_others = (fitting.sum(axis=0) - fitting[straight]).clip(min=1)
    gains = odds[straight] - np.delete(odds, straight, axis=0).sum(axis=0) / num_others
    return bool(gains.mean() > max(_CLEAR_FIT, _CLEAR_FIT_ERRORS * gains.std() / np.sqrt(len(lines))))


def first_misaligned_line(sources: Sequence[str], targets: Sequence[str]) -> int | None:
    """First line, from 1, that does not belong to the line with its number on the other side; None if all do."""
    stretches = find_misaligned_stretches(sources, targets).stretches
    return stretches[0][0] if stretches else None


def _candidate_slips(source_lengths: Floats, target_lengths: Floats) -> list[int]:
    """Small slips, and larger ones at which the lengths of a window of lines are clearly correlated."""
    slips = set(range(-_NEAR_SLIPS, _NEAR_SLIPS + 1))
    size = min(_LINES_PER_WINDOW, len(source_lengths) // 2)
    for start in range(0, len(source_lengths) - size + 1, size // 2):
        window = _standardised(source_lengths[start : start + size])
        first = max(0, start - _FAR_SLIPS)
        around = _standardised(target_lengths[first : start + size + _FAR_SLIPS])
        correlations = np.correlate(around, window, "valid") / np.sqrt(size)
        best = int(correlations.argmax())
        if correlations[best] > _CLEAR_CORRELATION:
            slips.add(first + best - start)
    return sorted(slips)


def _standardised(values: Floats) -> Floats:
    of_texts = values[values > 0] if values.any() else values  # Without those of blank lines.
    result: Floats = (values - of_texts.mean()) / max(float(of_texts.std()), 0.1)
    return result


def _overlap(slip: int, num_lines: int) -> tuple[slice, slice]:
    first, last = max(0, -slip), min(num_lines, num_lines - slip)
    return slice(first, last), slice(first + slip, last + slip)


def _compare(
    features: tuple[Features, Features], units: tuple[Units, Units], slips: Sequence[int]
) -> tuple[Floats, Bools]:
    """Similarity FxSxN of lines and partners in length, numbers, final mark and words; mask SxN of the partners."""
    num_lines = len(features[0][0])
    overlaps = [_overlap(slip, num_lines) for slip in slips]
    table = np.zeros(1 << _TABLE_BITS, np.float32)
    for here, there in overlaps:
        codes, is_pair = _pairs_of_units(units[0][0][here], units[1][0][there])
        table += np.bincount(codes[is_pair], minlength=len(table)).astype(np.float32)
    values = np.zeros((4, len(slips), num_lines))
    exists = np.zeros((len(slips), num_lines), dtype=bool)
    lengths = [_standardised(side[0]) for side in features]
    for index, (here, there) in enumerate(overlaps):
        exists[index, here] = (features[0][0][here] > 0) & (features[1][0][there] > 0)  # Blank lines say nothing.
        values[0, index, here] = -np.abs(lengths[0][here] - lengths[1][there])
        for feature in (1, 2):
            values[feature, index, here] = features[0][feature][here] == features[1][feature][there]
        pair = [(matrix[rows], counts[rows]) for (matrix, counts), rows in zip(units, (here, there), strict=True)]
        values[3, index, here] = _commonness(pair[0], pair[1], table, len(slips) / num_lines)
    return values, exists


def _units_of(line: str) -> set[bytes]:
    """Words with their prefixes and suffixes, or short character sequences where no spaces separate words."""
    units: set[str] = set()
    for word in _WORD.findall(line.lower()):
        if SPACELESS_CHARACTER.match(word):
            size = 2 if word[0] >= _FIRST_HAN_OR_KANA else 3
            units.update(word[start : start + size] for start in range(max(1, len(word) - size + 1)))
        else:
            units.add(word)
            if len(word) > 5:
                units.update((word[:4], word[-4:]))
    return {unit.encode() for unit in units}


def _rarest_units(lines: Sequence[str]) -> Units:
    """Rarest units of each line that also occur in other lines."""
    units = [[zlib.crc32(unit) for unit in _units_of(line)] for line in lines]
    sizes = np.fromiter(map(len, units), np.int64, len(units))
    flat = np.fromiter((unit for line in units for unit in line), np.int64, int(sizes.sum()))
    _, indices, counts = np.unique(flat, return_inverse=True, return_counts=True)
    rows, frequencies = np.repeat(np.arange(len(lines)), sizes), counts[indices]
    informative = np.flatnonzero((frequencies >= 2) & (frequencies <= max(2, _LARGEST_SHARE * len(lines))))
    order = informative[np.lexsort((indices[informative], frequencies[informative], rows[informative]))]
    ranks = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])
    order, ranks = order[ranks < _UNITS_PER_LINE], ranks[ranks < _UNITS_PER_LINE]
    matrix = np.full((len(lines), _UNITS_PER_LINE), -1, np.int64)
    matrix[rows[order], ranks] = indices[order]
    occurrences = np.ones(matrix.shape)
    occurrences[rows[order], ranks] = frequencies[order]
    return matrix, occurrences


def _commonness(source: Units, target: Units, table: NDArray[np.float32], share: float) -> Floats:
    """Score of how much more often than by chance the units of a line and its partner occur in corresponding lines.

    A unit is scored by its best partner: the logarithm of the observed over the expected number of pairs of lines that
    contain both. `table` counts pairs of units by hash; the pair of lines that is scored does not count. `share` is the
    number of slips per line.
    """
    (source_units, source_counts), (target_units, target_counts) = source, target
    codes, is_pair = _pairs_of_units(source_units, target_units)
    expected = (source_counts[:, :, None] - 1) * (target_counts[:, None, :] - 1) * share
    gain = np.where(is_pair, np.log(np.maximum(table[codes] - 0.5, 0.5) / (expected + 0.5)), 0.0).clip(min=0.0)
    num_units = (source_units >= 0).sum(axis=1) + (target_units >= 0).sum(axis=1)
    scores: Floats = (gain.max(axis=2).sum(axis=1) + gain.max(axis=1).sum(axis=1)) / num_units.clip(min=1)
    return scores


def _pairs_of_units(source_units: Integers, target_units: Integers) -> tuple[Integers, Bools]:
    """Hashes of all pairs of units of corresponding lines, lines x W x W, and mask of the pairs without padding."""
    source, target = source_units[:, :, None], target_units[:, None, :]
    mixed = (source * 0x2545F491 + target * 0x9E3779B1) * 0x1B873593
    return (mixed >> 17) & ((1 << _TABLE_BITS) - 1), (source >= 0) & (target >= 0)


def _log_odds(values: Floats, exists: Bools) -> tuple[Floats, float]:
    """Evidence in nats for each slip of each line, SxN, and the mean evidence for the right slip.

    A linear discriminant for features of equal variance: the weight of a feature is the distance of its mean at the
    right slip from its mean at other slips. In the first round all features count equally, and the best slip of a
    window counts as right.
    """
    num_slips, num_lines = exists.shape
    means = (values * exists).sum(axis=1, keepdims=True) / exists.sum(axis=0).clip(min=1)
    centred = np.where(exists, values - means, 0.0)
    variances = (centred**2).sum(axis=(1, 2)) / exists.sum() + 1e-9
    weights = 1 / np.sqrt(variances)
    windows = np.array_split(np.arange(num_lines), max(1, num_lines // _MIN_LINES))
    gains = np.zeros(len(weights))
    for _ in range(2):
        log_odds = np.tensordot(weights, centred, 1)
        best = np.concatenate([np.full(len(window), log_odds[:, window].sum(axis=1).argmax()) for window in windows])
        gains = centred[:, best, np.arange(num_lines)].mean(axis=1).clip(min=0.0) * num_slips / (num_slips - 1)
        weights = gains / variances
        # Consecutive numbers do not prove a slip: numbers only support other evidence.
        without_numbers = float(weights @ gains - weights[_NUMBERS] * gains[_NUMBERS])
        weights[_NUMBERS] *= min(1.0, without_numbers / max(1e-9, float(weights[_NUMBERS] * gains[_NUMBERS])))
    evidence = float(weights @ gains)
    # A line without a partner at a slip is no evidence for or against it.
    return np.where(exists, np.tensordot(weights, centred, 1) - evidence / 2, 0.0), evidence


def _likeliest_slips(log_odds: Floats, straight: int) -> list[int]:
    """Index of the slip of each line: the sequence with the most evidence (Viterbi 1967) that begins `straight`."""
    num_slips, num_lines = log_odds.shape
    total = np.full(num_slips, -_COST_OF_A_CHANGE)
    total[straight] = 0.0
    stays = np.empty((num_lines, num_slips), dtype=bool)
    previous_best = np.empty(num_lines, np.int64)
    for line, odds in enumerate(log_odds.T):
        previous_best[line] = total.argmax()
        changed = total[previous_best[line]] - _COST_OF_A_CHANGE
        stays[line] = total >= changed
        total = np.maximum(total, changed) + odds
    path = [int(total.argmax())]
    for line in range(num_lines - 1, 0, -1):
        path.append(path[-1] if stays[line, path[-1]] else int(previous_best[line]))
    return path[::-1]


def _stretches(slips: Sequence[int | None], path: Sequence[int]) -> list[Stretch]:
    changes = [0, *(line for line in range(1, len(path)) if path[line] != path[line - 1]), len(path)]
    stretches: list[Stretch] = []
    for first, end in pairwise(changes):
        slip = slips[path[first]]
        while stretches and stretches[-1][1] == first and _belongs_to_next(stretches[-1], slip):
            first = stretches.pop()[0] - 1
        if slip != 0:
            stretches.append((first + 1, end, slip))
    return stretches


def _belongs_to_next(stretch: Stretch, slip: int | None) -> bool:
    """True if a stretch covers only the lines that a change to this slip leaves without a partner."""
    first, last, own_slip = stretch
    if own_slip == slip:
        return True
    return slip is not None and slip != 0 and last - first < abs(slip - (own_slip or 0))
