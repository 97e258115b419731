"""Batches of pairs of similar length, and their order. Knows ids; does not know text or models.

The order of an epoch is a function of (seed, epoch): every process that computes it gets the same batches in the same
order. An epoch is split into pools of about 200 batches; the batches of a pool are made when the pool is reached. A
position in an epoch is two numbers: the pool, and the number of batches of this pool that are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mt_cli.corpus.cleaning import Mask
from mt_cli.data.batch import Indices, split_by_length
from mt_cli.data.encode import EncodedPairs
from mt_cli.runtime.cpus import in_threads

Pool = tuple[EncodedPairs, Indices]
"""Pairs, and the indices of the pairs to train on next, in random order."""

_BATCHES_PER_POOL = 200


class TrainingPairs(Protocol):
    """Source of training pairs, a pool at a time."""

    num_pools: int | None = None
    """Number of pools of an epoch; None if unknown."""
    counts: Sequence[Counter[str]] = ()
    """For each corpus of a stream, the number of rows read since the start by status, as in `STATUS_NAMES`."""

    def first_place(self, pool: int) -> int:
        """Number of the first pair of a pool; the others have the next numbers. Pools of an epoch share no number."""

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """Pools of an epoch from number `first` on: a function of the epoch alone."""

    def select(self, is_kept: Mask, place: tuple[int, int]) -> None:
        """Draw only pairs under a mask from a place on, an epoch and a pool."""
        return


class ChangedPairs:
    """Training pairs whose pools are changed, each with an epoch and a number, in a thread, one pool ahead."""

    def __init__(self, pairs: TrainingPairs, change: Callable[[Pool, int, int], Pool]) -> None:
        self._pairs, self._change = pairs, change
        self.num_pools, self.counts = pairs.num_pools, pairs.counts
        self.first_place, self.select = pairs.first_place, pairs.select

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """Changed pools of an epoch from number `first` on."""

        def change(item: tuple[int, Pool]) -> Pool:
            number, pool = item
            return self._change(pool, epoch, number) if len(pool[1]) else pool

        return in_threads(change, enumerate(self._pairs.pools(epoch, first), start=first), num_threads=1)


def in_file_order(pairs: EncodedPairs, order: Indices) -> tuple[Indices, NDArray[np.int64], list[int]]:
    """Ascending indices of the pairs of a pool, the order of the pool as places among them, and sizes of its parts."""
    rank = order.argsort(kind="stable")
    indices = order[rank]
    part_sizes = np.diff(np.searchsorted(indices, np.cumsum([0, *pairs.part_sizes])))
    return indices, rank.argsort(), part_sizes.tolist()


class MixedPairs(TrainingPairs):
    """Pairs of a corpus, in an order that depends on a seed and on the epoch.

    `times` is the number of repetitions per epoch for each part of the corpus. If it is a fraction, the next epoch
    continues with other pairs until all have been seen. Pools have about 200 batches of `batch_tokens`.
    """

    def __init__(self, pairs: EncodedPairs, times: Sequence[float], batch_tokens: int, seed: int) -> None:
        self.pairs, self._seed = pairs, seed
        self._is_kept: Mask | None = None
        self._selected_from = (0, 0)
        self._sizes = [
            max(1, round(repeats * size)) if size else 0 for repeats, size in zip(times, pairs.part_sizes, strict=True)
        ]
        sample = np.linspace(0, len(pairs) - 1, min(len(pairs), 10_000)).astype(np.int64)
        tokens = float(pairs.lengths(sample).max(axis=0).mean()) + 1 if len(pairs) else 1.0
        self.num_pools = max(1, round(len(self) * tokens / (batch_tokens * _BATCHES_PER_POOL)))

    def __len__(self) -> int:
        """Number of pairs seen per epoch."""
        return sum(self._sizes)

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """Pools of an epoch from number `first` on, all of the same size.

        Pairs that are selected are seen more often, so that neither pools nor epochs become smaller.
        """
        numbers = range(first, self.num_pools or 0)
        for is_selected, pools in groupby(numbers, lambda pool: (epoch, pool) >= self._selected_from):
            order = self._order(epoch, self._is_kept if is_selected else None)
            for pool in pools:
                yield self.pairs, order[self.first_place(pool) : self.first_place(pool + 1)]

    def select(self, is_kept: Mask, place: tuple[int, int]) -> None:
        """See `TrainingPairs`; the mask keeps a pair of every part that has pairs, and all pairs beyond its end."""
        self._is_kept = np.pad(is_kept, (0, len(self.pairs) - len(is_kept)), constant_values=True)
        self._selected_from = place

    def first_place(self, pool: int) -> int:
        return len(self) * pool // (self.num_pools or 1)

    def _order(self, epoch: int, is_kept: Mask | None) -> Indices:
        """Indices of the pairs of an epoch under a mask, shuffled."""
        dtype = np.int32 if len(self) < 2**31 else np.int64
        pieces: list[Indices] = [np.empty(0, dtype)]
        first_index = 0
        for part, (part_size, size) in enumerate(zip(self.pairs.part_sizes, self._sizes, strict=True)):
            # Epochs read successive pieces of an endless sequence of copies of the part. A shared copy is shuffled.
            place, end = epoch * size, (epoch + 1) * size
            rows: Indices = np.arange(first_index, first_index + part_size, dtype=dtype)
            rows = rows if is_kept is None else rows[is_kept[first_index : first_index + part_size]]
            while place < end:
                copy, start = divmod(place, len(rows))
                indices = rows
                if start > 0 or place + len(rows) > end:
                    random = np.random.default_rng([self._seed, part, copy])
                    indices = random.permutation(rows)[start : start + end - place]
                pieces.append(indices)
                place += len(indices)
            first_index += part_size
        order = np.concatenate(pieces)
        np.random.default_rng([self._seed, epoch]).shuffle(order)
        return order


def shares_by_temperature(
    part_sizes: Sequence[int], temperature: float, groups: Sequence[Hashable] | None = None
) -> list[float]:
    """Repetitions per epoch of the pairs of each part, so that shares are proportional to size^(1/temperature).

    Parts of a group count as one. The number of pairs per epoch does not change. Arivazhagan et al. 2019, "Massively
    Multilingual Neural Machine Translation in the Wild", section 4.2.
    """
    groups = range(len(part_sizes)) if groups is None else groups
    sizes = dict.fromkeys(groups, 0)
    for group, size in zip(groups, part_sizes, strict=True):
        sizes[group] += size
    total = sum(part_sizes)
    shares = {group: (size / total) ** (1 / temperature) for group, size in sizes.items()}
    sum_of_shares = sum(shares.values())
    return [shares[group] / sum_of_shares * total / sizes[group] if sizes[group] else 0.0 for group in groups]


@dataclass(frozen=True)
class PlacedBatch:
    """Indices of a batch, and the position in the epoch after it."""

    pairs: EncodedPairs
    indices: Indices
    pool: int
    num_batches: int
    """Number of batches of the pool that are done once this batch is done."""

    @property
    def num_target_tokens(self) -> int:
        """Number of target tokens, with [EOS] and without padding."""
        return int(self.pairs.lengths(self.indices)[1].sum()) + len(self.indices)

    @property
    def num_pairs(self) -> tuple[int, ...]:
        parts = np.searchsorted(np.cumsum(self.pairs.part_sizes), np.asarray(self.indices), side="right")
        return tuple(np.bincount(parts, minlength=len(self.pairs.part_sizes)).tolist())


def epoch_batches(
    training: TrainingPairs, batch_tokens: int, seed: int, epoch: int, pool: int = 0, num_batches: int = 0
) -> Iterator[PlacedBatch]:
    """Batches of an epoch, from a position on, in an order that is a function of (seed, epoch).

    Each pool is sorted by length and split into batches, which are shuffled. In a batch, the number of pairs times the
    longest side is at most `batch_tokens`; a pair that is longer is a batch of its own.
    """
    for number, (pairs, order) in enumerate(training.pools(epoch, pool), start=pool):
        batches = split_by_length(order, pairs.lengths(order) + 1, batch_tokens)
        shuffled = np.random.default_rng([seed, epoch, number]).permutation(len(batches))
        for done in range(num_batches if number == pool else 0, len(batches)):
            yield PlacedBatch(pairs, batches[shuffled[done]], number, done + 1)


def count_batches(training: TrainingPairs, batch_tokens: int, num_counted: int = 20) -> int | None:
    """Number of batches of the first epoch, estimated from its first `num_counted` pools; None for a stream."""
    if training.num_pools is None:
        return None
    pools = islice(training.pools(0, 0), num_counted)
    counts = [len(split_by_length(order, pairs.lengths(order) + 1, batch_tokens)) for pairs, order in pools]
    return round(sum(counts) * training.num_pools / len(counts))
