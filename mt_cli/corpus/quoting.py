"""Whether a spreadsheet wrote the quotation marks of a tab-separated file.

A spreadsheet writes a cell in quotation marks if it has a quotation mark (doubled inside), a tab, a line end or, in
some programs, a comma. Plain text may have quotation marks anywhere, so one cell that no spreadsheet would write makes
the file plain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.lines import CHUNK_BYTES, LONGEST, opened, read_lines, read_whole_lines

_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"|[^"\t\r\n]*+')
_MAX_LINES_OF_CELL = 1_000
_MIN_OF_COLUMN, _MIN_WITH_COMMAS = 20, 5
"""Minimum numbers of quoted cells, in a column and with a comma, that rule out chance."""
_SHARE_OF_MOST = 0.9


class Quoting(NamedTuple):
    """Quotation marks of a tab-separated file."""

    is_quoted: bool
    """Whether a spreadsheet wrote the marks; otherwise they are text."""
    num_quoted: int = 0
    """Number of cells between marks. If the file is not quoted, only cells with doubled marks inside count, unless most
    cells are between marks."""
    first_quoted: int = 0
    """Line of the first such cell."""
    num_others: int = 0
    """Number of cells whose marks no spreadsheet writes."""
    first_other: int = 0
    """Line of the first such cell."""


def quoting_of(path: Path) -> Quoting:
    """Quotation marks of a file, examined once a process; raises CorpusError if the file cannot be read."""
    with opened(path):  # Raises the errors of a missing file.
        status = path.stat()
    return _quoting_of(path, status.st_size, status.st_mtime_ns)


def note_on_quoting(path: Path) -> str:
    """Note for users on the quotation marks of a file; empty if all are text."""
    quoting = quoting_of(path)
    cells = f"{quoting.num_quoted:,} cell{'s' * (quoting.num_quoted != 1)}, the first in line {quoting.first_quoted:,}"
    if quoting.is_quoted:
        return f"{path}: quoted as spreadsheets do ({cells}); read without the quotation marks"
    if not (quoting.num_quoted and quoting.num_others):
        return ""
    others = f"{quoting.num_others:,}, the first in line {quoting.first_other:,}"
    return (
        f"{path}: some cells are quoted as spreadsheets do ({cells}) and others with marks are not ({others}); all "
        "marks are read as text; repair the file, or set `format: quoted_tsv`"
    )


@lru_cache(maxsize=10_000)
def _quoting_of(path: Path, size: int, modified: int) -> Quoting:
    if not _has_marks(path):
        return Quoting(False)
    quoted_lines = _lines_quoted_by_a_spreadsheet(path)
    if quoted_lines is not None:
        return Quoting(True, *quoted_lines)
    return Quoting(False, *_count_cells(path))


def _has_marks(path: Path) -> bool:
    with opened(path) as file:
        return any(b'"' in chunk for chunk in iter(lambda: file.read(CHUNK_BYTES), b""))


def _lines_quoted_by_a_spreadsheet(path: Path) -> tuple[int, int] | None:
    """Number of cells in quotation marks, and line of the first one; None unless a spreadsheet wrote all of the file.

    Without doubled marks, the marks count only if plain reading would give other numbers of cells, if all cells of a
    column are quoted, or if exactly the cells with a comma are quoted.
    """
    num_quoted = first_quoted = num_columns = 0
    is_proven, quoted_are_those_with_commas = False, True
    cells_quoted, cells_unquoted = Counter[int](), Counter[int]()
    for number, record in _records(path):
        cells = _cells_of(record)
        if cells is None:
            return None
        num_columns = num_columns or len(cells)
        quoted = [cell[1:-1] for cell in cells if cell.startswith('"')]
        others = [cell for cell in cells if cell.strip() and not cell.startswith('"')]
        if quoted:
            num_quoted, first_quoted = num_quoted + len(quoted), first_quoted or number
            is_shifted = any(line.count("\t") + 1 != num_columns for line in record.rstrip("\r\n").split("\n"))
            is_proven |= any('""' in cell for cell in quoted) or (is_shifted and len(cells) == num_columns > 1)
        cells_quoted.update(column for column, cell in enumerate(cells) if cell.startswith('"'))
        if number > 1:  # The first record may be a heading.
            cells_unquoted.update(column for column, cell in enumerate(cells) if cell.strip() and cell[:1] != '"')
        quoted_are_those_with_commas &= all("," in cell for cell in quoted) and not any("," in cell for cell in others)
    is_proven |= any(count >= _MIN_OF_COLUMN and not cells_unquoted[column] for column, count in cells_quoted.items())
    is_proven |= quoted_are_those_with_commas and num_quoted >= _MIN_WITH_COMMAS
    return (num_quoted, first_quoted) if is_proven else None


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """Lines, joined where a quotation mark is open, each with the number of its first line."""
    lines = enumerate(read_whole_lines(path), start=1)
    for first, line in lines:
        parts, size, is_open = [line], len(line), line.count('"') % 2 == 1
        while is_open and len(parts) < _MAX_LINES_OF_CELL and size <= LONGEST:
            _, line = next(lines, (0, ""))
            if not line:
                break
            parts.append(line)
            size, is_open = size + len(line), is_open != (line.count('"') % 2 == 1)
        yield first, "".join(parts)


def _cells_of(record: str) -> Sequence[str] | None:
    """Cells of a record with their quotation marks; None if no spreadsheet would write the marks so."""
    text = record.removesuffix("\n").removesuffix("\r")
    if '"' not in text:
        return text.split("\t")
    cells, start = [], 0
    while match := _CELL.match(text, start):
        cells.append(match[0])
        if match.end() == len(text):
            return cells
        if text[match.end()] != "\t":
            return None
        start = match.end() + 1
    return None


def _count_cells(path: Path) -> tuple[int, int, int, int]:
    """Numbers and first lines of cells that a spreadsheet quoted, and of cells with other quotation marks."""
    num_quoted = first_quoted = num_others = first_other = num_between_marks = num_cells = 0
    for number, line in enumerate(read_lines(path), start=1):
        num_cells += line.count("\t") + 1
        for cell in line.split("\t") if '"' in line else ():
            num_between_marks += len(cell) > 1 and cell[0] == cell[-1] == '"'
            is_quoted = cell.startswith('"') and _cells_of(cell) is not None
            if is_quoted and '""' in cell[1:-1]:
                num_quoted, first_quoted = num_quoted + 1, first_quoted or number
            elif '"' in cell and not is_quoted:
                num_others, first_other = num_others + 1, first_other or number
    if num_between_marks > max(num_quoted, _SHARE_OF_MOST * num_cells):
        num_quoted, first_quoted = num_between_marks, first_quoted or 1
    return num_quoted, first_quoted, num_others, first_other
