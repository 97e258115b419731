"""Encoded pairs in memory-mapped Arrow files. Knows ids and how they lie on disk; does not know batches.

A file of ids is read through the page cache: what is used is in memory, and can be taken from it again, so that ten
million pairs need no more of it than a hundred thousand.
"""

from __future__ import annotations

import json
import mmap
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.corpus.reading import Advance, Corpus
from mt_cli.cpus import in_threads
from mt_cli.tokenizer import UNK_ID, Tokenizer

Ids = NDArray[np.unsignedinteger[Any]]

_PAIRS_BEFORE_RELEASE = 200
"""A pair that is touched brings up to 128 kB into memory, since the system maps what lies around it as well."""
_LONGEST_COUNTED = 1_000


@dataclass(frozen=True)
class SideStatistics:
    """What encoding one side of a corpus showed, pairs that are too long included."""

    num_tokens: int
    num_unknown: int
    length_counts: tuple[int, ...]
    """How many sentences have 0, 1, 2, ... tokens; the last entry counts all that have more."""


@dataclass(frozen=True)
class Statistics:
    """What encoding a corpus showed."""

    source: SideStatistics
    target: SideStatistics
    num_pairs: tuple[int, ...]
    """Of each part of the corpus, without those that are too long."""
    num_too_long: tuple[int, ...]
    """Of each part."""

    def save(self, path: Path) -> None:
        """Write what `load` reads."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """The inverse of `save`."""
        tree = json.loads(path.read_text(encoding="utf-8"))
        source, target = (
            SideStatistics(**{**tree[side], "length_counts": tuple(tree[side]["length_counts"])}) for side in SIDES
        )
        return cls(source, target, tuple(tree["num_pairs"]), tuple(tree["num_too_long"]))


SIDES = ("source", "target")


@dataclass(frozen=True)
class Sequences:
    """Sequences of ids, one after the other: sequence N begins at offset N and ends at offset N + 1."""

    offsets: NDArray[np.int32]
    ids: Ids

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]


class EncodedPairs:
    """Source and target ids of pairs, without special tokens, in stretches (the parts of a corpus)."""

    def __init__(
        self,
        chunks: Sequence[tuple[Sequences, Sequences]],
        part_sizes: Sequence[int],
        mapping: mmap.mmap | None = None,
    ) -> None:
        self._chunks = chunks
        self._ends = list(accumulate(len(source.offsets) - 1 for source, _ in chunks))
        self._starts = [0, *self._ends[:-1]]
        self._mapping = mapping
        self._num_touched = 0
        self.part_sizes = tuple(part_sizes)

    @classmethod
    def from_ids(cls, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> EncodedPairs:
        """Pairs in memory, all of one part."""
        sides = [
            Sequences(offsets_of(map(len, side)), np.array([i for ids in side for i in ids], np.uint32))
            for side in (source, target)
        ]
        return cls([(sides[0], sides[1])], [len(source)])

    @classmethod
    def open(cls, path: Path, part_sizes: Sequence[int]) -> EncodedPairs:
        """The pairs that `encode_corpus` wrote, mapped into memory."""
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapping)))
        batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
        chunks = [(_sequences_of(batch.column(0)), _sequences_of(batch.column(1))) for batch in batches]
        return cls(chunks, part_sizes, mapping)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of a pair."""
        self._release_if_many(1)
        chunk = bisect_right(self._ends, index)
        source, target = self._chunks[chunk]
        return source[index - self._starts[chunk]], target[index - self._starts[chunk]]

    def lengths(self, indices: NDArray[np.integer[Any]] | None = None) -> NDArray[np.int32]:
        """2xB lengths of the sources and of the targets of some pairs, by default of all, in their order."""
        indices = np.arange(len(self), dtype=np.int32) if indices is None else indices
        order = indices.argsort(kind="stable")
        ordered = indices[order]
        bounds = np.searchsorted(ordered, [*self._starts, len(self)])
        lengths = np.empty((2, len(indices)), dtype=np.int32)
        for sequences, start, first, last in zip(self._chunks, self._starts, bounds[:-1], bounds[1:], strict=True):
            if first < last:
                rows = ordered[first:last] - start
                for side in (0, 1):
                    offsets = sequences[side].offsets
                    lengths[side, order[first:last]] = offsets[rows + 1] - offsets[rows]
                self._release_if_many(len(rows))
        return lengths

    def _release_if_many(self, num_pairs: int) -> None:
        """Let go, now and then, of the pages of the file that have come into memory; they are still cached."""
        self._num_touched += num_pairs
        if self._num_touched > _PAIRS_BEFORE_RELEASE and self._mapping is not None:
            self._num_touched = 0
            if hasattr(mmap, "MADV_DONTNEED"):
                self._mapping.madvise(mmap.MADV_DONTNEED)


def offsets_of(lengths: Any) -> NDArray[np.int32]:
    """Where sequences of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))]).astype(np.int32)


def _sequences_of(column: Any) -> Sequences:
    return Sequences(column.offsets.to_numpy(), column.values.to_numpy())


@dataclass(frozen=True)
class _EncodedBlock:
    """A block of a corpus in ids: all lengths and all ids of both sides, and which pairs are short enough."""

    lengths: tuple[NDArray[np.int32], NDArray[np.int32]]
    ids: tuple[Ids, Ids]
    is_kept: NDArray[np.bool_]

    def kept(self, side: int) -> Sequences:
        """One side of the pairs that are short enough."""
        lengths, ids = self.lengths[side], self.ids[side]
        if not self.is_kept.all():
            lengths, ids = lengths[self.is_kept], ids[np.repeat(self.is_kept, lengths)]
        return Sequences(offsets_of(lengths), ids)


def encode_block(texts: Sequence[Sequence[str]], tokenizers: Sequence[Tokenizer], max_tokens: int) -> _EncodedBlock:
    """The ids of some sources and of their targets."""
    (source_ids, source_lengths), (target_ids, target_lengths) = (
        tokenizer.encode_flat(side) for tokenizer, side in zip(tokenizers, texts, strict=True)
    )
    is_kept = np.maximum(source_lengths, target_lengths) <= max_tokens
    return _EncodedBlock((source_lengths, target_lengths), (source_ids, target_ids), is_kept)


def encode_corpus(
    corpus: Corpus, tokenizers: Sequence[Tokenizer], max_tokens: int, path: Path, advance: Advance = lambda done: None
) -> Statistics:
    """Write the ids of a corpus to an Arrow file, without the pairs that have a side of more than `max_tokens`.

    Beside it, in a `.npy` file, stands which pairs of the corpus are in it.
    """
    counts = [_Counts(), _Counts()]
    is_kept: list[NDArray[np.bool_]] = []
    types = [pa.list_(pa.from_numpy_dtype(tokenizer.id_type)) for tokenizer in tokenizers]
    schema = pa.schema(list(zip(SIDES, types, strict=True)))

    def encode(block: Any) -> _EncodedBlock:
        texts = [block.column(side).to_pylist() for side in SIDES]
        return encode_block(texts, tokenizers, max_tokens)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for block in in_threads(encode, corpus.blocks()):
            sides = [block.kept(side) for side in (0, 1)]
            columns = [pa.ListArray.from_arrays(pa.array(side.offsets), pa.array(side.ids)) for side in sides]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            is_kept.append(block.is_kept)
            for side in (0, 1):
                counts[side].add(block.lengths[side], block.ids[side])
            advance(len(block.is_kept))
    all_kept = np.concatenate(is_kept) if is_kept else np.empty(0, bool)
    np.save(path.with_suffix(".npy"), all_kept)
    by_part = _per_part(corpus, all_kept)
    return Statistics(
        counts[0].statistics(),
        counts[1].statistics(),
        num_pairs=tuple(int(part.sum()) for part in by_part),
        num_too_long=tuple(int((~part).sum()) for part in by_part),
    )


def _per_part(corpus: Corpus, is_kept: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """A mask over the pairs of a corpus, in pieces, one for each part."""
    ends = np.cumsum([corpus.num_kept(part) for part in corpus.parts])
    return np.split(is_kept, ends[:-1])


class _Counts:
    """Adds up what `SideStatistics` reports."""

    def __init__(self) -> None:
        self._num_tokens = self._num_unknown = 0
        self._length_counts = np.zeros(_LONGEST_COUNTED + 1, dtype=np.int64)

    def add(self, lengths: NDArray[np.int32], ids: Ids) -> None:
        self._num_tokens += len(ids)
        self._num_unknown += int(np.count_nonzero(ids == UNK_ID))
        self._length_counts += np.bincount(np.minimum(lengths, _LONGEST_COUNTED), minlength=_LONGEST_COUNTED + 1)

    def statistics(self) -> SideStatistics:
        return SideStatistics(self._num_tokens, self._num_unknown, tuple(self._length_counts.tolist()))
