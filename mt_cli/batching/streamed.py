"""Pairs of corpora that are too large to prepare: read, judged, encoded and shuffled a buffer at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.batches import Pool
from mt_cli.batching.encoded import EncodedPairs, Sequences, encode_block
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import STATUS_NAMES, Block, Hashes, filter_together
from mt_cli.corpus.formats import Row
from mt_cli.corpus.reading import Pair, clean_rows
from mt_cli.corpus.sources import read_rows
from mt_cli.cpus import in_threads
from mt_cli.tokenizer import Tokenizer


class StreamedPairs:
    """Training pairs that are read anew in every epoch; a buffer of them is a pool.

    Each corpus fills its share of the buffer, by its weight, until it is exhausted; repetitions are looked for within
    the buffer only. To go on within an epoch, what came before is read again, and skipped.
    """

    def __init__(
        self, config: CorpusConfig, tokenizers: Sequence[Tokenizer], evaluation_hashes: Sequence[Hashes], seed: int
    ) -> None:
        self._config, self._tokenizers, self._evaluation_hashes, self._seed = (
            config,
            tokenizers,
            evaluation_hashes,
            seed,
        )
        self.counts: list[Counter[str]] = [Counter() for _ in config.train]
        """What became of the rows that were read, since the start, of each corpus, by the names of `STATUS_NAMES`."""

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on."""
        for number, buffer in enumerate(buffers_of(self._config)):
            if number >= first:
                pairs = self._encode(buffer)
                yield pairs, np.random.default_rng([self._seed, epoch, number]).permutation(len(pairs))

    def _encode(self, buffer: Sequence[Sequence[Row]]) -> EncodedPairs:
        """The ids of the rows, of each corpus, that are kept."""
        blocks = judged_blocks(buffer, self._config, self._evaluation_hashes)
        texts = (block.kept_texts() for _, block in blocks)
        encoded = in_threads(lambda sides: encode_block(sides, self._tokenizers, self._config.max_tokens), texts)
        chunks: list[tuple[Sequences, Sequences]] = []
        part_sizes = [0] * len(buffer)
        for (part, judged), ids in zip(blocks, encoded, strict=True):
            chunks.append((ids.kept(0), ids.kept(1)))
            part_sizes[part] += int(ids.is_kept.sum())
            too_long = int((~ids.is_kept).sum())
            self.counts[part].update(STATUS_NAMES[code] for code in judged.statuses.tolist())
            self.counts[part].update({"kept": -too_long, "max_tokens": too_long})
        return EncodedPairs(chunks, part_sizes)


def buffers_of(config: CorpusConfig) -> Iterator[list[list[Row]]]:
    """The rows of the training corpora, of each its share of `shuffle_buffer`, again and again until all have ended."""
    languages = (config.source, config.target)
    readers = [iter(read_rows(source, languages)) for source in config.train]
    weights = np.array([source.weight or 1.0 for source in config.train])
    while True:
        sizes = np.maximum(1, np.round(config.shuffle_buffer * weights / weights.sum())).astype(int)
        buffer = [list(islice(reader, int(size))) for reader, size in zip(readers, sizes, strict=True)]
        if not any(buffer):
            return
        yield buffer
        weights = np.array([weight if rows else 1e-9 for weight, rows in zip(weights, buffer, strict=True)])


def judged_blocks(
    buffer: Sequence[Sequence[Row]], config: CorpusConfig, evaluation_hashes: Sequence[Hashes]
) -> list[tuple[int, Block]]:
    """The rows of a buffer as blocks, judged by themselves and together; with each the number of its corpus."""
    blocks: list[tuple[int, Block]] = []
    for part, (rows, source) in enumerate(zip(buffer, config.train, strict=True)):
        filters = config.filters_of(source)
        blocks.extend((part, block) for block in clean_rows(rows, source, (config.source, config.target), filters))
    if blocks:
        statuses = np.concatenate([block.statuses for _, block in blocks])
        hashes = np.concatenate([block.hashes for _, block in blocks], axis=1)
        filters_of = [(len(block), config.filters_of(config.train[part])) for part, block in blocks]
        filter_together(statuses, hashes, filters_of, evaluation_hashes)
        ends = np.cumsum([len(block) for _, block in blocks])
        for (_, block), judged in zip(blocks, np.split(statuses, ends[:-1]), strict=True):
            block.statuses[:] = judged
    return blocks


def first_pairs(config: CorpusConfig, number: int) -> list[Pair]:
    """The first pairs of a stream that are kept, for training tokenizers."""
    pairs: list[Pair] = []
    nothing: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * 2
    for buffer in buffers_of(config):
        for _, block in judged_blocks(buffer, config, nothing):
            pairs.extend(zip(*block.kept_texts(), strict=True))
        if len(pairs) >= number:
            break
    return pairs[:number]
