"""Number of cells in the rows of a table, and errors for rows that have another number."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.quoting import quoting_of
from mt_cli.errors import CorpusError

TableRecord = tuple[int, list[str]]
"""Line where a record begins, from 1, and its cells."""
_LINES_SHOWN = 5


class Place(NamedTuple):
    """Cells of the pair in a row, from 0."""

    source: int
    target: int
    has_heading: bool
    """Whether the first row is a heading."""


class Shape(NamedTuple):
    """Number of cells of a row: that of the heading, or of most of the first rows."""

    fewest: int
    """Without the empty cells at the end that all of them have."""
    most: int
    by_heading: bool

    def fits(self, cells: Sequence[str]) -> bool:
        """Whether a row has this number of cells, or only empty ones beyond it."""
        return self.fewest <= len(cells) <= self.most or (
            len(cells) > self.most and len(_without_empty_end(cells)) <= self.fewest
        )

    def __str__(self) -> str:
        return f"{'the heading has' if self.by_heading else 'the others have'} {self.most:,}"


def shape_of(heading: Sequence[str] | None, beginning: Sequence[TableRecord]) -> Shape:
    """Shape of the heading or, without one, of most of the first rows."""
    if heading is not None:
        return Shape(len(_without_empty_end(heading)), len(heading), True)
    rows = [cells for _, cells in beginning if not is_blank(cells)]
    most = Counter(map(len, rows)).most_common(1)[0][0]
    return Shape(max(len(_without_empty_end(cells)) for cells in rows if len(cells) == most), most, False)


def is_blank(cells: Sequence[str]) -> bool:
    """Whether no cell has text."""
    return not any(map(str.strip, cells))


def _without_empty_end(cells: Sequence[str]) -> Sequence[str]:
    end = len(cells)
    while end and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def ragged_row(
    path: Path, first: TableRecord, rest: Iterator[TableRecord], shape: Shape, place: Place, separator: str
) -> CorpusError:
    """Error for a row with another number of cells, as if a separator is in a sentence; counts such rows to the end."""
    number, cells = first
    total, lines = 1, [number]
    count = 1
    for other, record in rest:
        total += 1
        if not shape.fits(record) and not is_blank(record):
            count += 1
            lines += [other] if len(lines) < _LINES_SHOWN else []
    found = f"has {len(cells):,} cell{'s' * (len(cells) != 1)}, and {shape}"
    if count > 1:
        more = ", ..." if count > len(lines) else ""
        found += f"; there are {count:,} such rows (lines {', '.join(f'{line:,}' for line in lines)}{more})"
    if shape.by_heading and count == total > 1:
        return CorpusError(f"{path}, line {number:,}: {found}; repair the heading, which should name every column")
    advice = _advice_on_ragged(path, cells, shape, place, separator)
    return CorpusError(f"{path}, line {number:,}: {found}; {advice}")


def _advice_on_ragged(path: Path, cells: Sequence[str], shape: Shape, place: Place, separator: str) -> str:
    """What to do about a row with another number of cells."""
    shifts = (
        f"a {separator} inside a sentence shifts the pair" if len(cells) > shape.most else f"a {separator} is missing"
    )
    if separator == "comma":
        return f"{shifts}: repair such rows, with quotation marks around a cell that has commas"
    if any('"' in cell for cell in cells):
        return f"{shifts}: repair such rows or, if quotation marks are around cells, set `format: quoted_tsv`"
    if path.suffix in COMPRESSIONS or quoting_of(path).is_quoted:
        return f"{shifts}: repair such rows"
    name = shlex.quote(path.name)
    advice = f"{shifts}: repair such rows, or leave them out: awk -F'\\t' 'NF == {shape.most}' {name} > repaired.tsv"
    if max(place[:2]) < len(cells) < shape.most:
        columns = ",".join(str(index + 1) for index in sorted(place[:2]))
        advice += f"; if only cells at the end are missing, keep the pair alone: cut -f{columns} {name} > pairs.tsv"
    return advice
