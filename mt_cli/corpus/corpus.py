"""A corpus on disk: rows, their statuses, and their sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, STATUS_NAMES
from mt_cli.corpus.rows import BlankRow, Languages, Pair, Row, untagged

ROWS_PER_BLOCK = 10_000


@dataclass(frozen=True)
class SourceRows:
    """Source of a corpus, and the rows that come from it."""

    name: str
    first_row: int
    num_rows: int
    digest: str
    """SHA-256 of the hashes of the texts."""
    languages: Languages
    tag: str | None
    """Tag before each source."""
    commit: str | None = None
    skipped: Sequence[str] = ()
    """Path and problem of each skipped file."""
    notes: Sequence[str] = ()
    """Lines for users about what was skipped, dropped or chosen in reading."""

    @property
    def span(self) -> slice:
        return slice(self.first_row, self.first_row + self.num_rows)


@dataclass(frozen=True)
class Corpus:
    """Rows in a file; the corpus consists of the rows whose status is `code`."""

    fingerprint: str
    """Fingerprint of the text and of the options that the rows depend on."""
    file: pa.NativeFile
    """File with the rows, kept open because the cache may be deleted."""
    statuses: NDArray[np.uint8]
    """Status code of each row, an index into `STATUS_NAMES`."""
    parts: tuple[SourceRows, ...]
    code: int = KEPT

    def __len__(self) -> int:
        return int(np.count_nonzero(self.statuses == self.code))

    def blocks(self, mask: NDArray[np.bool_] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows under a mask, by default all of the corpus, in blocks with the columns `number`, `source`, `target`."""
        return (block for _, block in self._blocks_of_parts(mask))

    def _blocks_of_parts(self, mask: NDArray[np.bool_] | None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Blocks of `blocks`, each with the index of its part."""
        mask = self.statuses == self.code if mask is None else mask
        # All blocks are full except the last one of each part.
        rows = ((part, row) for part, rows in enumerate(self.parts) for row in range(0, rows.num_rows, ROWS_PER_BLOCK))
        with pa.ipc.open_file(self.file) as reader:
            for index, (part, row) in enumerate(rows):
                kept = mask[self.parts[part].span][row : row + ROWS_PER_BLOCK]
                if kept.any():
                    block = reader.get_batch(index)
                    yield part, block if kept.all() else block.filter(pa.array(kept))

    def rows_of_parts(self, mask: NDArray[np.bool_] | None = None) -> Iterator[tuple[SourceRows, Row]]:
        """Rows under a mask, by default all of the corpus, each with its part."""
        for number, block in self._blocks_of_parts(mask):
            for row in zip(*(column.to_pylist() for column in block.columns), strict=True):
                yield self.parts[number], row

    def rows(self, mask: NDArray[np.bool_] | None = None) -> Iterator[Row]:
        return (row for _, row in self.rows_of_parts(mask))

    def of_parts(self, numbers: Collection[int]) -> Corpus:
        statuses = self.statuses.copy()
        for number, part in enumerate(self.parts):
            if number not in numbers:
                statuses[part.span] = STATUS_CODES["blank_pair"]
        return replace(self, statuses=statuses)

    @property
    def languages(self) -> list[Languages]:
        return [part.languages for part in self.parts for _ in range(self.num_kept(part))]

    def untagged_blocks(
        self, mask: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[Languages, list[str], list[str]]]:
        """Languages, sources without tags and targets under a mask (default: all of the corpus), block by block."""
        for number, block in self._blocks_of_parts(mask):
            part = self.parts[number]
            tags = [part.tag] if part.tag else []
            sources, targets = (column.to_pylist() for column in block.columns[1:])
            yield part.languages, [untagged(source, tags) for source in sources], targets

    def untagged_pairs(self, mask: NDArray[np.bool_] | None = None) -> list[tuple[Languages, Pair]]:
        blocks = self.untagged_blocks(mask)
        return [(languages, pair) for languages, *sides in blocks for pair in zip(*sides, strict=True)]

    @cached_property
    def pairs(self) -> list[Pair]:
        """Pairs in memory, for validation and test sets."""
        return [(source, target) for _, source, target in self.rows()]

    def blank_rows(self) -> list[BlankRow]:
        """Rows with a blank side; empty for a held-out corpus, which shares the rows of `train`."""
        if self.code != KEPT:
            return []
        mask = np.isin(self.statuses, [STATUS_CODES[name] for name in ("blank_source", "blank_target", "blank_pair")])
        num_before, has_parts = np.cumsum(self.statuses == KEPT).tolist(), len(self.parts) > 1
        blank = []
        for row, (part, (number, _, _)) in zip(np.flatnonzero(mask).tolist(), self.rows_of_parts(mask), strict=True):
            status = STATUS_NAMES[self.statuses[row]]
            blank.append(BlankRow(num_before[row], number, status, part.name * has_parts, part.languages))
        return blank

    def counts(self, part: SourceRows | None = None) -> dict[str, int]:
        """Number of rows of a part, or of all, by status, in the order of `STATUS_NAMES`."""
        rows = self.statuses if part is None else self.statuses[part.span]
        return {STATUS_NAMES[code]: int(count) for code, count in enumerate(np.bincount(rows)) if count}

    def num_kept(self, part: SourceRows) -> int:
        return self.counts(part).get(STATUS_NAMES[self.code], 0)
