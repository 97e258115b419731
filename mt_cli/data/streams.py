"""Training pairs of corpora that are too large to prepare: read, filtered, encoded and shuffled in buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import KEPT, STATUS_NAMES, Block, drop_repeated
from mt_cli.corpus.corpus import ROWS_PER_BLOCK
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.reading import clean_rows
from mt_cli.corpus.rows import Pair, ReadReport, Row
from mt_cli.corpus.source_rows import in_blocks, read_rows
from mt_cli.corpus.text_hashes import Hashes
from mt_cli.data.batches import Pool, TrainingPairs
from mt_cli.data.encode import EncodedPairs, encode_block
from mt_cli.runtime.cpus import in_threads, one_ahead
from mt_cli.runtime.group import ALONE, Group
from mt_cli.tokenizer.tokenizer import Tokenizer

SHUFFLE_BUFFER = 100_000
"""Number of rows that are shuffled at a time."""
_Rows = tuple[int, list[Row]]
"""Number of a corpus, and a block of its rows."""


class StreamedPairs(TrainingPairs):
    """Training pairs that are read again in every epoch; each buffer of them is a pool.

    In every buffer, each corpus has a share in proportion to its weight. An epoch ends when the corpus that lasts
    longest has been read once; the others are read again until then. Duplicates are dropped only within blocks of rows.
    To resume within an epoch, the pairs before the position are read and skipped.
    """

    def __init__(
        self,
        config: CorpusConfig,
        tokenizers: Sequence[Tokenizer],
        evaluation_hashes: Hashes,
        seed: int,
        group: Group = ALONE,
    ) -> None:
        self._config, self._tokenizers, self._seed, self._group = config, tokenizers, seed, group
        self._evaluation_hashes = evaluation_hashes
        # The key `damaged` counts skipped files and units.
        self.counts = [Counter() for _ in config.train]

    def first_place(self, pool: int) -> int:
        """Number of the first pair of a pool, which has fewer than 2^32 pairs."""
        return pool << 32

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on; a process alone prepares the next one in a thread.

        The processes of a group exchange ids, and several threads that exchange something would confuse them.
        """
        prepared = self._prepared(first)
        prepared = one_ahead(prepared) if self._group.size == 1 else prepared
        for number, (pairs, counts) in enumerate(prepared, start=first):
            for total, of_pool in zip(self.counts, counts, strict=True):
                total.update(of_pool)
            yield pairs, np.random.default_rng([self._seed, epoch, number]).permutation(len(pairs))

    def _prepared(self, first: int) -> Iterator[tuple[EncodedPairs, list[Counter[str]]]]:
        """Pairs of each buffer from number `first` on, and the numbers of its rows by status, for each corpus."""
        reports = [ReadReport() for _ in self._config.train]
        num_skipped = [0] * len(reports)
        for number, buffer in enumerate(_buffers(self._config, reports)):
            before, num_skipped = num_skipped, [len(report.skipped) for report in reports]
            if number >= first:
                counts = [Counter({"damaged": now - old}) for now, old in zip(num_skipped, before, strict=True)]
                yield self._encode(buffer, counts), counts

    def _encode(self, buffer: Sequence[_Rows], counts: Sequence[Counter[str]]) -> EncodedPairs:
        """Encode the rows that are kept, and count all; several processes share the blocks and exchange the ids."""
        config, protection = self._config, Protection.of(self._config.protect)

        def encode(rows: _Rows) -> tuple[NDArray[np.uint8], pa.RecordBatch]:
            block = _filtered(rows, config, self._evaluation_hashes)
            batch, is_kept = encode_block(block.kept_texts(), self._tokenizers, config.max_tokens, protection)
            return block.statuses, batch.filter(pa.array(is_kept))

        batches, part_sizes = [], [0] * len(config.train)
        encoded = self._group.map_shares(lambda share: list(in_threads(encode, share)), buffer)
        for (part, _), (statuses, batch) in zip(buffer, encoded, strict=True):
            batches.append(batch)
            part_sizes[part] += len(batch)
            counts[part].update(STATUS_NAMES[code] for code in statuses.tolist())
            num_too_long = int(np.count_nonzero(statuses == KEPT)) - len(batch)
            counts[part].update({"kept": -num_too_long, "max_tokens": num_too_long})
        return EncodedPairs(batches, part_sizes)


class _Repeated:
    """Rows of a stream, which is read again whenever it ends."""

    def __init__(self, read: Callable[[], Iterator[Row]]) -> None:
        self._read, self._rows, self._has_rows = read, read(), False
        self.has_ended = False
        """True once the stream has been read to its end."""

    def take(self, size: int, repeats: bool) -> list[list[Row]]:
        """Next `size` rows, in a list for each reading of the stream; unless `repeats`, only until it ends."""
        readings: list[list[Row]] = []
        while size > 0:
            readings.append([*islice(self._rows, size)])
            self._has_rows |= bool(readings[-1])
            size -= len(readings[-1])
            if size > 0:
                self._rows, self.has_ended = self._read(), True
                if not (repeats and self._has_rows):
                    break
        return readings


def first_pairs(config: CorpusConfig, number: int) -> list[tuple[int, Pair]]:
    """First `number` kept pairs of a stream, each with the number of its corpus, for training tokenizers."""
    pairs: list[tuple[int, Pair]] = []
    for buffer in _buffers(config, [ReadReport() for _ in config.train]):
        blocks = in_threads(lambda rows: _filtered(rows, config, np.empty(0, np.int64)), buffer)
        for (part, _), block in zip(buffer, blocks, strict=True):
            pairs.extend((part, pair) for pair in zip(*block.kept_texts(), strict=True))
        if len(pairs) >= number:
            break
    return pairs[:number]


def _buffers(config: CorpusConfig, reports: Sequence[ReadReport]) -> Iterator[list[_Rows]]:
    """Buffers of `SHUFFLE_BUFFER` rows in blocks, until each training corpus has ended once; the last may be smaller.

    The report of each corpus counts what its reader skips.
    """
    streams = [
        _Repeated(partial(read_rows, source, config.languages, report))
        for source, report in zip(config.train, reports, strict=True)
    ]
    weights = np.array(config.weights)
    sizes = np.maximum(1, np.round(SHUFFLE_BUFFER * weights / weights.sum())).astype(int).tolist()
    while not all(stream.has_ended for stream in streams):
        readings = [
            [] if stream.has_ended else stream.take(size, repeats=False)
            for stream, size in zip(streams, sizes, strict=True)
        ]
        filled = [sum(map(len, lists)) for lists in readings]
        share = max(taken / size for taken, size in zip(filled, sizes, strict=True))
        for stream, size, taken, lists in zip(streams, sizes, filled, readings, strict=True):
            lists += stream.take(round(size * share) - taken, repeats=True)
        buffer = [
            (part, rows)
            for part, lists in enumerate(readings)
            for reading in lists
            for rows in in_blocks(iter(reading), ROWS_PER_BLOCK)
        ]
        if buffer:
            yield buffer


def _filtered(rows: _Rows, config: CorpusConfig, evaluation_hashes: Hashes) -> Block:
    """Rows with tags and statuses; duplicates are compared within the block."""
    source = config.train[rows[0]]
    filters = config.filters_of(source)
    (block,) = clean_rows(rows[1], source, config.languages, filters)
    drop_repeated(block.statuses, block.hashes, [(len(block), filters)], evaluation_hashes)
    return block
