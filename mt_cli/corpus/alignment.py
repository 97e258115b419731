"""Where two sides of a corpus stop belonging together. Knows lines, by features that translations share.

Two sentences that translate each other tend to have similar lengths, the same digits and the same final mark. No single
pair is judged by that; summed over many lines it tells whether one side has slipped against the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DIGITS_DIFFER, _END_DIFFERS, _LENGTHS_DIFFER_AT_MOST = 0.5, 0.3, 2.0

_SENTENCE_ENDS = {mark: kind for kind, marks in enumerate((".。।။", "?？؟;", "!！", ":：", ",،、")) for mark in marks}


@dataclass(frozen=True)
class Features:
    """What is compared, an entry per line."""

    log_length: NDArray[np.float32]
    digits: NDArray[np.int64]
    """A hash of the line's digits in order."""
    end: NDArray[np.int32]
    """The kind of its final mark."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Features:
        """The features of some lines, of which no more than one is held at a time."""
        rows = np.fromiter(
            (row for line in lines for row in _features_of_line(line)), dtype=np.float64, count=-1
        ).reshape(-1, 3)
        return cls(rows[:, 0].astype(np.float32), rows[:, 1].astype(np.int64), rows[:, 2].astype(np.int32))

    def __len__(self) -> int:
        return len(self.end)

    def __getitem__(self, piece: slice) -> Features:
        return Features(self.log_length[piece], self.digits[piece], self.end[piece])


def _features_of_line(line: str) -> tuple[float, float, float]:
    digits = "" if line.isalpha() else "".join(filter(str.isdecimal, line))
    last = line[-1:]
    end = _SENTENCE_ENDS.get(last, -1 if last.isalnum() else -2)
    return float(np.log(len(line) + 1)), float(int(digits[:15] or -1)), float(end)


def unlikeness(one: Features, other: Features) -> NDArray[np.float64]:
    """How little each line of one resembles the same line of the other, from 0 (alike) to 2.8."""
    lengths: NDArray[np.float64] = np.minimum(
        np.abs(one.log_length - other.log_length), _LENGTHS_DIFFER_AT_MOST
    ).astype(np.float64)
    lengths += _DIGITS_DIFFER * (one.digits != other.digits)
    lengths += _END_DIFFERS * (one.end != other.end)
    return lengths


def first_misaligned_line(source: Features, target: Features) -> int:
    """Where lines most likely went missing from the shorter side, counted from 1.

    The place is the one that makes the pairs before it, taken as they stand, and the pairs after it, taken with the
    shift, most alike in sum.
    """
    shorter, longer = (target, source) if len(source) > len(target) else (source, target)
    straight = unlikeness(shorter, longer[: len(shorter)])
    shifted = unlikeness(shorter, longer[len(longer) - len(shorter) :])
    costs = shifted.sum() + np.concatenate([[0.0], np.cumsum(straight - shifted)])
    return int(costs.argmin()) + 1


def slipped_stretches(source: Features, target: Features, largest_slip: int = 3) -> list[tuple[int, int, int]]:
    """Stretches of lines, (first, last, slip), that fit far better if the target is moved by `slip` lines.

    Lines count from 1; a slip of 1 means that source line N belongs to target line N + 1. Windows of lines are
    compared, so that the ends are known to within a window. Needs a few hundred lines to see anything.
    """
    size = 100
    num_windows = len(source) // size
    if num_windows < 3:
        return []
    slips = [slip for slip in range(-largest_slip, largest_slip + 1)]
    costs = np.stack([_window_costs(source, target, slip, size, num_windows) for slip in slips])
    straight = costs[largest_slip]
    best = costs.argmin(axis=0)
    # A window's cost varies by chance, much more with the text than with the slip: ask for a clear difference.
    clear = straight - costs.min(axis=0) > 0.15 * np.median(straight) + 0.02
    stretches: list[tuple[int, int, int]] = []
    for window in np.flatnonzero(clear & (best != largest_slip)).tolist():
        first, last, slip = window * size + 1, (window + 1) * size, slips[best[window]]
        if stretches and stretches[-1][2] == slip and stretches[-1][1] >= first - 2 * size - 1:
            first = stretches.pop()[0]
        stretches.append((first, last, slip))
    return [stretch for stretch in stretches if stretch[1] - stretch[0] + 1 >= 2 * size]


def _window_costs(source: Features, target: Features, slip: int, size: int, num_windows: int) -> NDArray[np.float64]:
    """Mean unlikeness in each window of lines, with the target moved by `slip`."""
    length = num_windows * size
    moved = np.clip(np.arange(length) + slip, 0, len(target) - 1)
    shifted = Features(target.log_length[moved], target.digits[moved], target.end[moved])
    means: NDArray[np.float64] = unlikeness(source[:length], shifted).reshape(num_windows, size).mean(axis=1)
    return means
