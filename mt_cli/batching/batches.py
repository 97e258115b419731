"""Batches of pairs of similar length, and their order. Knows ids; does not know text or models.

The order of an epoch is a pure function of (seed, epoch). An epoch is cut into pools of some hundred batches, which
are made one after the other, so that a position in it is two numbers: the pool, and how many of its batches are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.batching.encoded import EncodedPairs
from mt_cli.batching.packing import Grid, grid_of, pack
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID

# Legend of the shapes: B sentences, S source positions, T target positions.

Indices = NDArray[np.signedinteger[Any]]
Pool = tuple[EncodedPairs, Indices]
"""Pairs, and which of them to train on next, in random order."""

_BATCHES_PER_POOL = 200
_POOLS_COUNTED = 20


@dataclass(frozen=True)
class Batch:
    """Packed ids for teacher forcing: reading `tgt_input_ids` of a sentence up to T, predict `tgt_output_ids` at T."""

    src_ids: Tensor
    """Each sentence followed by [EOS]."""
    source_grid: Grid
    tgt_input_ids: Tensor
    """Each sentence after [SOS]."""
    tgt_output_ids: Tensor
    """Each sentence followed by [EOS]."""
    target_grid: Grid
    num_pairs: tuple[int, ...] = ()
    """From each part of the corpus."""

    @property
    def num_source_tokens(self) -> int:
        """Without padding, [EOS] counted."""
        return self.source_grid.num_tokens

    @property
    def num_target_tokens(self) -> int:
        """Without padding, [EOS] counted: what a loss is divided by."""
        return self.target_grid.num_tokens

    @property
    def num_sentences(self) -> int:
        """Pairs."""
        return self.source_grid.num_sequences

    @property
    def num_rows(self) -> int:
        """Of both sides, with filling: what a batch's memory grows with."""
        return len(self.src_ids) + len(self.tgt_input_ids)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; the copy does not wait where memory is pinned."""
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """The same batch in memory from which copies to a GPU need not wait."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> Batch:
        return replace(
            self,
            src_ids=move(self.src_ids),
            source_grid=self.source_grid.moved(move),
            tgt_input_ids=move(self.tgt_input_ids),
            tgt_output_ids=move(self.tgt_output_ids),
            target_grid=self.target_grid.moved(move),
        )

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of the pairs, of which there must be two at least."""
        middle = self.num_sentences // 2
        sources, targets = self.source_grid.halves(middle), self.target_grid.halves(middle)
        src_ids = self.source_grid.split_ids(self.src_ids, sources)
        tgt_input_ids = self.target_grid.split_ids(self.tgt_input_ids, targets)
        tgt_output_ids = self.target_grid.split_ids(self.tgt_output_ids, targets)
        first, second = (
            Batch(*fields) for fields in zip(src_ids, sources, tgt_input_ids, tgt_output_ids, targets, strict=True)
        )
        return first, second


def collate(pairs: EncodedPairs, indices: Sequence[int] | Indices) -> Batch:
    """The batch of these pairs."""
    source, target = zip(*(pairs[int(index)] for index in indices), strict=True)
    source_grid, target_grid = (grid_of(np.array([len(ids) + 1 for ids in side])) for side in (source, target))
    source_ids, target_ids = np.concatenate(source), np.concatenate(target)
    parts = np.searchsorted(np.cumsum(pairs.part_sizes), np.asarray(indices), side="right")
    return Batch(
        src_ids=pack(source_ids, source_grid, end=EOS_ID),
        source_grid=source_grid,
        tgt_input_ids=pack(target_ids, target_grid, start=SOS_ID),
        tgt_output_ids=pack(target_ids, target_grid, end=EOS_ID),
        target_grid=target_grid,
        num_pairs=tuple(np.bincount(parts, minlength=len(pairs.part_sizes)).tolist()),
    )


def pad(sequences: Sequence[Any], start: int | None = None, end: int | None = None) -> Tensor:
    """BxT ids (int64) of sequences, each between an optional start and end, padded on the right."""
    before, after = int(start is not None), int(end is not None)
    lengths = [len(sequence) + before for sequence in sequences]
    ids = np.full((len(sequences), max(lengths) + after), PAD_ID, dtype=np.int64)
    for row, sequence, length in zip(ids, sequences, lengths, strict=True):
        row[before:length] = sequence
        if end is not None:
            row[length] = end
    if start is not None:
        ids[:, 0] = start
    return torch.from_numpy(ids)


class TrainingPairs(Protocol):
    """Where an epoch's pairs come from."""

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on."""


class MixedPairs:
    """Pairs of a whole corpus, each part of it seen in a proportion of its own.

    Args:
        pairs: the corpus.
        times: for each part, how often each of its pairs is seen per epoch. Of a fraction, other pairs are seen in
            every epoch, until all have been.
        batch_tokens: the size of batches, for pools of a fitting size.
        seed: of the order.
    """

    def __init__(self, pairs: EncodedPairs, times: Sequence[float], batch_tokens: int, seed: int) -> None:
        self.pairs, self._seed = pairs, seed
        self._sizes = [
            max(1, round(each * size)) if size else 0 for each, size in zip(times, pairs.part_sizes, strict=True)
        ]
        sample = np.linspace(0, len(pairs) - 1, min(len(pairs), 10_000)).astype(np.int64)
        tokens = float(pairs.lengths(sample).max(axis=0).mean()) + 1 if len(pairs) else 1.0
        self.num_pools = max(1, round(len(self) * tokens / (batch_tokens * _BATCHES_PER_POOL)))

    def __len__(self) -> int:
        """Number of pairs seen per epoch."""
        return sum(self._sizes)

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch, all of one size."""
        order = self._order(epoch)
        for pool in range(first, self.num_pools):
            yield self.pairs, order[len(order) * pool // self.num_pools : len(order) * (pool + 1) // self.num_pools]

    def _order(self, epoch: int) -> Indices:
        """Indices of the pairs of an epoch, shuffled."""
        order: Indices = np.empty(len(self), dtype=np.int32 if len(self) < 2**31 else np.int64)
        first_index = begin = 0
        for part, (part_size, size) in enumerate(zip(self.pairs.part_sizes, self._sizes, strict=True)):
            # The epochs read on and on in an endless row of copies of the part; a copy that two share is shuffled.
            read = 0
            while read < size:
                copy, start = divmod(epoch * size + read, part_size)
                stop = min(part_size, start + size - read)
                indices = order[begin + read : begin + read + stop - start]
                if stop - start == part_size:
                    indices[:] = 1  # 0, 1, 2, ... in place: of ten million pairs, copies would be felt.
                    indices[0] = 0
                    np.cumsum(indices, out=indices)
                else:
                    indices[:] = np.random.default_rng([self._seed, part, copy]).permutation(part_size)[start:stop]
                np.add(indices, first_index, out=indices)
                read += stop - start
            first_index, begin = first_index + part_size, begin + size
        np.random.default_rng([self._seed, epoch]).shuffle(order)
        return order


def shares_by_temperature(part_sizes: Sequence[int], temperature: float) -> list[float]:
    """How often each pair of each part is seen per epoch, if parts have shares of size^(1/temperature).

    An epoch keeps its length. Arivazhagan et al. 2019, "Massively Multilingual Neural Machine Translation in the Wild",
    section 4.2.
    """
    total = sum(part_sizes)
    shares = [(size / total) ** (1 / temperature) for size in part_sizes]
    return [share / sum(shares) * total / size if size else 0.0 for share, size in zip(shares, part_sizes, strict=True)]


@dataclass(frozen=True)
class PlacedBatch:
    """Pairs of a batch, and where in its epoch it stands."""

    pairs: EncodedPairs
    indices: Indices
    pool: int
    num_batches: int
    """Done of this pool when this one is."""


def epoch_batches(
    training: TrainingPairs, batch_tokens: int, seed: int, epoch: int, pool: int = 0, num_batches: int = 0
) -> Iterator[PlacedBatch]:
    """The batches of an epoch, from a position in it, in an order that is a function of (seed, epoch).

    A pool is sorted by length and cut into batches whose number of pairs times longest side stays within
    `batch_tokens`; these are shuffled. A pair that is longer than that is a batch of its own.
    """
    for number, (pairs, order) in enumerate(training.pools(epoch, pool), start=pool):
        batches = cut_by_length(order, pairs.lengths(order) + 1, batch_tokens)
        shuffled = np.random.default_rng([seed, epoch, number]).permutation(len(batches))
        for done in range(num_batches if number == pool else 0, len(batches)):
            yield PlacedBatch(pairs, batches[shuffled[done]], number, done + 1)


def cut_by_length(order: Indices, sides: NDArray[np.int32], batch_tokens: int) -> list[Indices]:
    """Batches of pairs of similar length, longest first, from indices and their 2xB lengths.

    Pairs with the same longest side go from those whose source is shorter to those whose target is, and with the next
    longest side the way back, so that neighbours are alike in both sides (padding of the captions in batches of 4,096
    tokens: 3.1 %, against 5.4 % when the target's length alone decides among them).
    """
    longest = sides.max(axis=0)
    rank = np.lexsort(((sides[0] - sides[1]) * np.where(longest % 2, 1, -1), -longest))
    order, longest = order[rank], longest[rank]
    batches: list[Indices] = []
    start = 0
    while start < len(order):
        stop = start + max(1, batch_tokens // int(longest[start]))
        batches.append(order[start:stop])
        start = stop
    return batches


def count_batches(training: MixedPairs, batch_tokens: int) -> int:
    """Number of batches of the first epoch, of a large corpus by its first pools; later epochs differ by a few."""
    pools = islice(training.pools(0, 0), _POOLS_COUNTED)
    counts = [len(cut_by_length(order, pairs.lengths(order) + 1, batch_tokens)) for pairs, order in pools]
    return round(sum(counts) * training.num_pools / len(counts))


def batches_in_order(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length, longest first; for decoding, where order does not matter."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        if not batches or (len(batches[-1]) + 1) * (lengths[batches[-1][0]] + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
