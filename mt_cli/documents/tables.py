"""Tables (`.csv`, `.tsv`): the cells of one column are units; everything else stays as it is.

A column that is given by name is below a heading, which stays. A table whose column is given by number has no heading.
CSV is that of RFC 4180, with commas or, if the heading has none, semicolons. Quotation marks of TSV are text unless a
spreadsheet wrote them, as in corpora.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mt_cli.corpus.formats.delimited import csv_separator, is_quoted
from mt_cli.documents.document import Document, DocumentError, Options, Unit, error_at, lines_with_places, read_content
from mt_cli.errors import CorpusError

_QUOTED = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_UNSAFE = re.compile(r"[\t\r\n]+")
_COLUMNS_SHOWN = 20

_Cell = tuple[int, int]
"""Start and end of a cell."""


def read_csv(path: Path, options: Options) -> Document:
    """Cells of a column of a CSV file; raises DocumentError if the column or a quotation mark is missing."""
    content, encoding, mark = read_content(path)
    form = _Form(csv_separator(content[: 2**16]), has_quotes=True)
    return Document(content, [*_units(path, options, content, form)], encoding, mark)


def read_tsv(path: Path, options: Options) -> Document:
    """Cells of a column of a TSV file; raises DocumentError if the column is missing."""
    content, encoding, mark = read_content(path)
    try:
        form = _Form("\t", has_quotes=is_quoted(path))
    except CorpusError as error:
        raise DocumentError(str(error)) from None
    return Document(content, [*_units(path, options, content, form)], encoding, mark)


class ColumnError(DocumentError):
    """No column of a table was chosen, or one that it does not have."""

    def __init__(self, path: Path, problem: str, names: Sequence[str]) -> None:
        shown = ", ".join(f"{number} {name[:40]!r}" for number, name in enumerate(names[:_COLUMNS_SHOWN], start=1))
        super().__init__(f"{path}: {problem} {shown}{', ...' if len(names) > _COLUMNS_SHOWN else ''}")
        self.names = names
        """Cells of the first line."""


@dataclass(frozen=True)
class _Form:
    separator: str
    has_quotes: bool
    """Whether quotation marks around cells are not text."""

    def text(self, cell: str) -> str:
        return cell[1:-1].replace('""', '"') if self.has_quotes and cell.startswith('"') else cell

    def written(self, texts: Sequence[str], was_quoted: bool, is_alone: bool) -> str:
        """Cell with a text, quoted if it was or if it must be; line ends and tabs become spaces in TSV.

        `is_alone` is true for the only cell of a record.
        """
        text = _UNSAFE.sub(" ", texts[0]) if self.separator == "\t" else texts[0]
        is_special = any(char in text for char in ('"', "\r", "\n", self.separator)) or (is_alone and not text)
        if self.has_quotes and (was_quoted or is_special):
            return '"' + text.replace('"', '""') + '"'
        return text


def _units(path: Path, options: Options, content: str, form: _Form) -> Iterator[Unit]:
    column, width = -1, 0
    for cells in _quoted_records(path, content, form.separator) if form.has_quotes else _plain_records(content):
        used = max((number for number, cell in enumerate(cells, start=1) if content[slice(*cell)].strip()), default=0)
        if not used:
            continue
        if column < 0:
            names = [form.text(content[slice(*cell)]) for cell in cells]
            column, width = _column(path, options.column, names), len(cells)
            if options.column in names:
                continue
        if used > width:
            problem = f"has {used:,} cells, and the first line has {width:,}; repair such lines"
            raise error_at(path, content, cells[0][0], problem)
        if column < len(cells):
            part = content[slice(*cells[column])]
            write = partial(form.written, was_quoted=part.startswith('"'), is_alone=len(cells) == 1)
            yield Unit(*cells[column], (form.text(part),), write)


def _column(path: Path, column: str | None, names: Sequence[str]) -> int:
    """Index of a column by its name or number; raises ColumnError if there is none, or several of the name."""
    if column is None:
        advice = "name the column to translate with --column (a number means that there is no heading); they are"
        raise ColumnError(path, advice, names)
    if names.count(column) == 1:
        return names.index(column)
    if column in names:
        raise ColumnError(path, f"several columns are named {column!r}; give the number of one:", names)
    if _NUMBER.fullmatch(column) and int(column) <= len(names):
        return int(column) - 1
    raise ColumnError(path, f"has no column {column!r}; its columns are", names)


def _plain_records(content: str) -> Iterator[list[_Cell]]:
    for place, line in lines_with_places(content):
        cells = []
        for text in line.split("\t"):
            cells.append((place, place + len(text)))
            place += len(text) + 1
        yield cells


def _quoted_records(path: Path, content: str, separator: str) -> Iterator[list[_Cell]]:
    """Cells of each record of RFC 4180; raises DocumentError where a quotation mark is missing or misplaced."""
    pattern = re.compile(rf'({_QUOTED.pattern}|(?!")[^{separator}\r\n]*+)({separator}|\r\n|\r|\n|\Z)')
    cells: list[_Cell] = []
    place = 0
    while True:
        cell = pattern.match(content, place)
        if cell is None:
            is_closed = _QUOTED.match(content, place)
            problem = "text follows a closing quotation mark" if is_closed else "a quotation mark is never closed"
            raise error_at(path, content, place, f"not valid CSV: {problem}")
        cells.append(cell.span(1))
        place = cell.end()
        if cell[2] == separator:
            continue
        yield cells
        if not cell[2]:
            return
        cells = []
