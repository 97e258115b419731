"""Encoded pairs in memory-mapped Arrow files. Knows ids and their storage; does not know batches.

The ids of a file are read through the page cache, whose pages the system takes back when it needs memory.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cache import Cache, fingerprint
from mt_cli.corpus.cleaning import Mask
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.corpus.reading import Advance
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.runtime.console import Progress
from mt_cli.runtime.cpus import in_threads
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer

Ids = NDArray[np.unsignedinteger[Any]]
SIDES = ("source", "target")
_Chunk = list[tuple[NDArray[np.int32], Ids]]
"""Offsets and ids of each side of a record batch."""
_SAMPLED_PER_BLOCK = 1_000


@dataclass(frozen=True)
class SideStatistics:
    """Statistics of one side of an encoded corpus, including pairs that are too long."""

    num_tokens: int
    num_unknown: int
    num_sentences: int

    @property
    def unknown_share(self) -> float:
        """Share of tokens, 0 to 1, that are unknown."""
        return self.num_unknown / max(1, self.num_tokens)

    @property
    def tokens_per_sentence(self) -> float:
        return self.num_tokens / max(1, self.num_sentences)


@dataclass(frozen=True)
class Statistics:
    """Statistics of an encoded corpus."""

    source: SideStatistics
    target: SideStatistics
    num_pairs: tuple[int, ...]
    """Number of pairs in each part of the corpus, without pairs that are too long."""
    num_too_long: tuple[int, ...]
    longest_source: int
    """Number of tokens of the longest source, without pairs that are too long."""
    sentences: SentencesSeen
    """Fractions of sources with several sentences, from a sample."""


class EncodedPairs:
    """Source and target ids of pairs, without special tokens.

    The record batches have the columns `source` and `target`, lists of ids. `part_sizes` are the numbers of pairs of
    each part of the corpus.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], part_sizes: Sequence[int]) -> None:
        self.part_sizes = tuple(part_sizes)
        self._batches = [*batches]
        self._chunks = [[_offsets_and_ids(column) for column in batch.columns] for batch in self._batches]
        self._bounds = list(accumulate(map(len, self._batches), initial=0))

    @classmethod
    def from_ids(cls, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> EncodedPairs:
        columns = [pa.array(side, pa.list_(pa.uint32())) for side in (source, target)]
        return cls([pa.record_batch(columns, SIDES)], [len(source)])

    @classmethod
    def joined(cls, several: Sequence[EncodedPairs], part_sizes: Sequence[int] | None = None) -> EncodedPairs:
        """Pairs of several objects one after another, by default with the parts of all."""
        sizes = [size for pairs in several for size in pairs.part_sizes] if part_sizes is None else part_sizes
        return cls([batch for pairs in several for batch in pairs._batches], sizes)

    @classmethod
    def open(cls, path: Path, part_sizes: Sequence[int] | None = None) -> EncodedPairs:
        """Pairs in a file of record batches, by default in one part; the file may be deleted once it is open."""
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [*map(reader.get_batch, range(reader.num_record_batches))]
        return cls(batches, [sum(map(len, batches))] if part_sizes is None else part_sizes)

    def __len__(self) -> int:
        return self._bounds[-1]

    def __getitem__(self, index: int) -> tuple[Ids, Ids]:
        """Source and target ids of a pair."""
        chunk = bisect_right(self._bounds, index) - 1
        row = index - self._bounds[chunk]
        source, target = (ids[offsets[row] : offsets[row + 1]] for offsets, ids in self._chunks[chunk])
        return source, target

    def lengths(self, indices: NDArray[np.integer[Any]] | None = None) -> NDArray[np.int32]:
        """Lengths 2xB of the sources and targets of these pairs, by default of all pairs."""
        indices = np.arange(len(self), dtype=np.int32) if indices is None else indices
        order = indices.argsort(kind="stable")
        lengths = np.empty((2, len(indices)), dtype=np.int32)
        for chunk, rows, places in self._by_chunk(indices[order]):
            for side, (offsets, _) in enumerate(chunk):
                lengths[side, order[places]] = offsets[rows + 1] - offsets[rows]
        return lengths

    def take(self, indices: NDArray[np.integer[Any]]) -> list[tuple[Ids, NDArray[np.int32]]]:
        """For each side, the ids of one or more pairs, concatenated, and their lengths. `indices` must ascend."""
        sides: list[list[tuple[Ids, NDArray[np.int32]]]] = [[], []]
        for chunk, rows, _ in self._by_chunk(indices):
            for side, (offsets, ids) in zip(sides, chunk, strict=True):
                lengths = offsets[rows + 1] - offsets[rows]
                side.append((ragged(ids, offsets[rows], lengths), lengths))
        return [(np.concatenate([ids for ids, _ in side]), np.concatenate([n for _, n in side])) for side in sides]

    def _by_chunk(self, indices: NDArray[np.integer[Any]]) -> Iterator[tuple[_Chunk, NDArray[Any], slice]]:
        """Chunks that contain some of the ascending indices, each with its rows and their places in `indices`."""
        bounds = np.searchsorted(indices, self._bounds)
        for chunk, first_row, start, end in zip(self._chunks, self._bounds, bounds, bounds[1:], strict=False):
            if end > start:
                yield chunk, indices[start:end] - first_row, slice(start, end)


def starts_of(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    return np.cumsum(lengths, dtype=np.int64) - lengths


def ragged(values: NDArray[Any], starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Values in ranges, concatenated; the ranges are given by their starts and lengths."""
    shifts = starts - starts_of(lengths)
    return values[np.repeat(shifts, lengths) + np.arange(int(lengths.sum(dtype=np.int64)))]


def _offsets_and_ids(column: pa.ListArray) -> tuple[NDArray[np.int32], Ids]:
    """Offset of each sequence in a column, then the end of the last one; and all ids, concatenated."""
    return column.offsets.to_numpy(), column.values.to_numpy()


def encode_block(
    texts: Sequence[Sequence[str]],
    tokenizers: Sequence[Tokenizer],
    max_tokens: int,
    protection: Protection = UNPROTECTED,
) -> tuple[pa.RecordBatch, Mask]:
    """Encode sources and targets; return their ids, and the mask of pairs with at most `max_tokens` on both sides.

    A target begins with its language if the tag of the source says so; see `Tokenizer`.
    """
    texts = protection.protect_columns(texts)
    sides = [tokenizer.encode_flat(side) for tokenizer, side in zip(tokenizers, texts, strict=True)]
    sides[1] = with_first_ids(*sides[1], tokenizers[0].first_target_ids(texts[0]))
    is_kept: Mask = np.maximum(*(lengths for _, lengths in sides)) <= max_tokens
    return as_batch(sides), is_kept


def with_first_ids(
    ids: Ids, lengths: NDArray[np.int32], first_ids: Sequence[Sequence[int]]
) -> tuple[Ids, NDArray[np.int32]]:
    """Concatenated ids of sequences, and their lengths, with the given ids before each sequence."""
    counts = np.fromiter(map(len, first_ids), np.int32, len(first_ids))
    if not counts.any():
        return ids, lengths
    return np.insert(ids, np.repeat(starts_of(lengths), counts), list(chain(*first_ids))), lengths + counts


def as_batch(sides: Iterable[tuple[Ids, NDArray[np.int32]]]) -> pa.RecordBatch:
    """Record batch of pairs, from the concatenated ids and the lengths of each side."""
    columns = []
    for ids, lengths in sides:
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
        columns.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids)))
    return pa.record_batch(columns, SIDES)


def encode_corpus(
    corpus: Corpus,
    tokenizers: Sequence[Tokenizer],
    max_tokens: int,
    path: Path,
    advance: Advance = lambda done: None,
    protection: Protection = UNPROTECTED,
    language: str = "",
) -> Statistics:
    """Write an Arrow file of the pairs with at most `max_tokens` on both sides, and a `.npy` file of their mask."""
    schema = encode_block([[], []], tokenizers, max_tokens, protection)[0].schema
    num_tokens, num_unknown = [0, 0], [0, 0]
    masks, longest_source, sums_of_seen = [np.empty(0, bool)], 0, np.zeros(2)

    def encode(block: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask, SentencesSeen]:
        texts = [block.column(side).to_pylist() for side in SIDES]
        sample = texts[0][:: -(-len(texts[0]) // _SAMPLED_PER_BLOCK)]
        return *encode_block(texts, tokenizers, max_tokens, protection), SentencesSeen.of(sample, language)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch, is_kept, seen in in_threads(encode, corpus.blocks()):
            writer.write_batch(batch if is_kept.all() else batch.filter(pa.array(is_kept)))
            masks.append(is_kept)
            for side, (_, ids) in enumerate(map(_offsets_and_ids, batch.columns)):
                num_tokens[side] += len(ids)
                num_unknown[side] += int(np.count_nonzero(ids == UNK_ID))
            kept_lengths = np.diff(batch.column(0).offsets.to_numpy())[is_kept]
            longest_source = max(longest_source, int(kept_lengths.max(initial=0)))
            sums_of_seen += len(is_kept) * np.array(seen)
            advance(len(is_kept))
    is_kept = np.concatenate(masks)
    np.save(path.with_suffix(".npy"), is_kept)
    parts = np.split(is_kept, np.cumsum([corpus.num_kept(part) for part in corpus.parts])[:-1])
    source, target = map(SideStatistics, num_tokens, num_unknown, [len(is_kept)] * 2)
    num_too_long = tuple(int((~part).sum()) for part in parts)
    sentences = SentencesSeen(*(sums_of_seen / max(1, len(is_kept))).tolist())
    num_pairs = tuple(int(part.sum()) for part in parts)
    return Statistics(source, target, num_pairs, num_too_long, longest_source, sentences)


def encode_corpora(
    corpora: Mapping[str, Corpus], tokenizers: Sequence[Tokenizer], config: CorpusConfig, cache: Cache
) -> tuple[dict[str, EncodedPairs], dict[str, Statistics], dict[str, Mask]]:
    """Encoded pairs and statistics of each corpus, and the mask of its pairs that are short enough, from the cache."""
    text_key = next(iter(corpora.values())).fingerprint
    protection = Protection.of(config.protect)
    vocabularies = [tokenizer.to_json() for tokenizer in tokenizers]
    key = fingerprint(text_key, vocabularies, config.max_tokens, config.tags, "sentences seen", *protection.key)

    def encode(folder: Path) -> None:
        for name, corpus in corpora.items():
            with Progress(f"encoding {name}", len(corpus), "pair") as bar:
                path, most = folder / f"{name}.arrow", config.max_tokens
                statistics = encode_corpus(corpus, tokenizers, most, path, bar.advance, protection, config.source)
            (folder / f"{name}.json").write_text(json.dumps(asdict(statistics)), encoding="utf-8")

    def load(folder: Path) -> tuple[dict[str, EncodedPairs], dict[str, Statistics], dict[str, Mask]]:
        read = TypeAdapter(Statistics).validate_json
        statistics = {name: read((folder / f"{name}.json").read_bytes()) for name in corpora}
        encoded = {name: EncodedPairs.open(folder / f"{name}.arrow", statistics[name].num_pairs) for name in corpora}
        return encoded, statistics, {name: np.load(folder / f"{name}.npy") for name in corpora}

    return cache.entry(f"ids-{key}", encode, load)
