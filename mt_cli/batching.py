"""Encoded pairs, batches of similar length, and their order. Knows ids; does not know text or models.

The order of an epoch is a pure function of (seed, epoch), so a position in it is two numbers: the epoch and how
many of its batches are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID

# Legend of the shapes: B sentences, S source positions, T target positions.

_BATCHES_PER_POOL = 200


class Sequences:
    """Many sequences of ids in one flat tensor of 32-bit integers."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
        self._ends = self.lengths.cumsum(0).tolist()
        self._ids = torch.tensor([index for sequence in sequences for index in sequence], dtype=torch.int32)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Tensor:
        return self._ids[self._ends[index - 1] if index else 0 : self._ends[index]]


@dataclass(frozen=True)
class EncodedPairs:
    """Source and target ids of the pairs that are short enough, and the number of those that are not."""

    source: Sequences
    target: Sequences
    num_too_long: int

    @classmethod
    def from_ids(
        cls, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], max_tokens: int
    ) -> EncodedPairs:
        """The pairs neither side of which has more than `max_tokens` ids, without special tokens counted."""
        pairs = zip(source, target, strict=True)
        kept = [(src, tgt) for src, tgt in pairs if max(len(src), len(tgt)) <= max_tokens]
        return cls(Sequences([src for src, _ in kept]), Sequences([tgt for _, tgt in kept]), len(source) - len(kept))

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Batch:
    """Padded ids for teacher forcing: reading `tgt_input_ids` up to T, predict `tgt_output_ids` at T."""

    src_ids: Tensor
    """BxS, each sentence followed by [EOS]."""
    tgt_input_ids: Tensor
    """BxT, each sentence after [SOS]."""
    tgt_output_ids: Tensor
    """BxT, each sentence followed by [EOS]."""
    num_source_tokens: int
    """Without padding, [EOS] counted."""
    num_target_tokens: int
    """Without padding, [EOS] counted: what a loss is divided by."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; the copy does not wait where memory is pinned."""
        src_ids, tgt_input_ids, tgt_output_ids = (
            ids.to(device, non_blocking=True) for ids in (self.src_ids, self.tgt_input_ids, self.tgt_output_ids)
        )
        return Batch(src_ids, tgt_input_ids, tgt_output_ids, self.num_source_tokens, self.num_target_tokens)


def collate(pairs: EncodedPairs, indices: Sequence[int]) -> Batch:
    """The batch of these pairs, padded on the right."""
    source = [pairs.source[index] for index in indices]
    target = [pairs.target[index] for index in indices]
    return Batch(
        src_ids=pad(source, end=EOS_ID),
        tgt_input_ids=pad(target, start=SOS_ID),
        tgt_output_ids=pad(target, end=EOS_ID),
        num_source_tokens=sum(map(len, source)) + len(source),
        num_target_tokens=sum(map(len, target)) + len(target),
    )


def pad(sequences: Sequence[Tensor], start: int | None = None, end: int | None = None) -> Tensor:
    """BxT ids (int64) of sequences, each between an optional start and end, padded on the right."""
    before, after = int(start is not None), int(end is not None)
    lengths = [len(sequence) + before for sequence in sequences]
    ids = torch.full((len(sequences), max(lengths) + after), PAD_ID, dtype=torch.int64)
    for row, sequence, length in zip(ids, sequences, lengths, strict=True):
        row[before:length] = sequence
        if end is not None:
            row[length] = end
    if start is not None:
        ids[:, 0] = start
    return ids


def epoch_batches(pairs: EncodedPairs, batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices of the pairs of each batch of an epoch: every pair once, order a function of (seed, epoch).

    Pairs are shuffled and cut into large pools; a pool is sorted by length and cut into batches whose number of pairs
    times longest side stays within `batch_tokens`; the batches are shuffled. A pair that is longer than that is a
    batch of its own.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(pairs), generator=generator)
    sides = torch.stack([pairs.source.lengths, pairs.target.lengths])[:, order] + 1
    pool_tokens = sides.amax(dim=0).cumsum(0) // (batch_tokens * _BATCHES_PER_POOL)
    batches: list[list[int]] = []
    for pool in pool_tokens.unique_consecutive(return_counts=True)[1].cumsum(0).tolist():
        start = sum(map(len, batches))
        batches.extend(_cut_by_length(order[start:pool], sides[:, start:pool], batch_tokens))
    return [batches[index] for index in torch.randperm(len(batches), generator=generator).tolist()]


def _cut_by_length(order: Tensor, sides: Tensor, batch_tokens: int) -> Iterator[list[int]]:
    """Batches of one pool, from its pairs and their 2xB lengths."""
    longest = sides.amax(dim=0)
    rank = (longest * (int(longest.max()) + 1) + sides[1]).argsort(stable=True)
    batch: list[int] = []
    for index, length in zip(order[rank].tolist(), longest[rank].tolist(), strict=True):
        if batch and (len(batch) + 1) * length > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def batches_in_order(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length, longest first; for decoding, where order does not matter."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        if not batches or (len(batches[-1]) + 1) * (lengths[batches[-1][0]] + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
