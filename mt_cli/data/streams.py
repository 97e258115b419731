"""Training pairs of corpora that are too large to prepare: read, filtered, encoded and shuffled in buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import STATUS_NAMES, Block, Mask, drop_repeated
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.read_report import ReadReport
from mt_cli.corpus.reading import clean_rows
from mt_cli.corpus.rows import Pair, Row
from mt_cli.corpus.sources import read_rows
from mt_cli.corpus.text_hashes import AS_WRITTEN, Hashes, Spelling
from mt_cli.data.batches import Pool, TrainingPairs
from mt_cli.data.encode import EncodedPairs, encode_block
from mt_cli.runtime.cpus import in_threads
from mt_cli.runtime.group import ALONE, Group
from mt_cli.tokenizer.tokenizer import Tokenizer


class StreamedPairs(TrainingPairs):
    """Training pairs that are read again in every epoch; each buffer of them is a pool.

    Each corpus fills a share of the buffer, in proportion to its weight, until it is exhausted. Duplicates are dropped
    only within a buffer. To resume within an epoch, the pairs before the position are read and skipped.
    """

    def __init__(
        self,
        config: CorpusConfig,
        tokenizers: Sequence[Tokenizer],
        evaluation_hashes: Hashes,
        seed: int,
        group: Group = ALONE,
        spelling: Spelling = AS_WRITTEN,
    ) -> None:
        self._config, self._tokenizers, self._seed, self._group = config, tokenizers, seed, group
        self._evaluation_hashes, self._spelling = evaluation_hashes, spelling
        self.counts: list[Counter[str]] = [Counter() for _ in config.train]
        """Rows by status for each corpus; the key `damaged` counts skipped files and units."""

    def first_place(self, pool: int) -> int:
        """Number of the first pair of a pool, which has fewer than 2^32 pairs."""
        return pool << 32

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on."""
        reports = [ReadReport() for _ in self._config.train]
        num_skipped = [0] * len(reports)
        for number, buffer in enumerate(_buffers(self._config, reports)):
            before, num_skipped = num_skipped, [report.num_skipped.total() for report in reports]
            if number >= first:
                for counts, now, earlier in zip(self.counts, num_skipped, before, strict=True):
                    counts.update({"damaged": now - earlier})
                pairs = self._encode(buffer)
                yield pairs, np.random.default_rng([self._seed, epoch, number]).permutation(len(pairs))

    def _encode(self, buffer: Sequence[Sequence[Row]]) -> EncodedPairs:
        """Encode the rows that are kept; several processes share the blocks and exchange the ids."""
        blocks = _filtered_blocks(buffer, self._config, self._evaluation_hashes, self._spelling)
        encoded = self._group.map_shares(self._encode_blocks, [block for _, block in blocks])
        batches, part_sizes = [], [0] * len(buffer)
        for (part, block), (batch, is_kept) in zip(blocks, encoded, strict=True):
            batches.append(batch.filter(pa.array(is_kept)))
            num_kept = len(batches[-1])
            part_sizes[part] += num_kept
            self.counts[part].update(STATUS_NAMES[code] for code in block.statuses.tolist())
            self.counts[part].update({"kept": num_kept - len(batch), "max_tokens": len(batch) - num_kept})
        return EncodedPairs(batches, part_sizes)

    def _encode_blocks(self, blocks: Sequence[Block]) -> list[tuple[pa.RecordBatch, Mask]]:
        texts = (block.kept_texts() for block in blocks)
        max_tokens, protection = self._config.max_tokens, Protection.of(self._config)
        return list(in_threads(lambda sides: encode_block(sides, self._tokenizers, max_tokens, protection), texts))


def first_pairs(config: CorpusConfig, number: int, spelling: Spelling = AS_WRITTEN) -> list[Pair]:
    """First `number` kept pairs of a stream, for training tokenizers."""
    pairs: list[Pair] = []
    for buffer in _buffers(config, [ReadReport() for _ in config.train]):
        for _, block in _filtered_blocks(buffer, config, np.empty(0, np.int64), spelling):
            pairs.extend(zip(*block.kept_texts(), strict=True))
        if len(pairs) >= number:
            break
    return pairs[:number]


def _buffers(config: CorpusConfig, reports: Sequence[ReadReport]) -> Iterator[list[list[Row]]]:
    """Buffers of `shuffle_buffer` rows, divided among the training corpora, until all of these are exhausted.

    The report of each corpus counts what its reader skips.
    """
    sources = zip(config.train, reports, strict=True)
    readers = [iter(read_rows(source, config.languages, report)) for source, report in sources]
    weights = np.array([source.weight or 1.0 for source in config.train])
    while True:
        sizes = np.maximum(1, np.round(config.shuffle_buffer * weights / weights.sum())).astype(int)
        buffer = [list(islice(reader, int(size))) for reader, size in zip(readers, sizes, strict=True)]
        if not any(buffer):
            return
        yield buffer
        weights = np.array([weight if rows else 1e-9 for weight, rows in zip(weights, buffer, strict=True)])


def _filtered_blocks(
    buffer: Sequence[Sequence[Row]], config: CorpusConfig, evaluation_hashes: Hashes, spelling: Spelling
) -> list[tuple[int, Block]]:
    """Filter the rows of a buffer, in blocks with the status of each row; each block has the number of its corpus."""
    filters = [config.filters_of(source) for source in config.train]
    blocks = [
        (part, block)
        for part, (rows, source) in enumerate(zip(buffer, config.train, strict=True))
        for block in clean_rows(rows, source, config.languages, filters[part], spelling)
    ]
    if blocks:
        statuses = np.concatenate([block.statuses for _, block in blocks])
        hashes = np.concatenate([block.hashes for _, block in blocks], axis=1)
        drop_repeated(statuses, hashes, [(len(block), filters[part]) for part, block in blocks], evaluation_hashes)
        ends = np.cumsum([len(block) for _, block in blocks])
        for (_, block), statuses_of_block in zip(blocks, np.split(statuses, ends[:-1]), strict=True):
            block.statuses[:] = statuses_of_block
    return blocks
