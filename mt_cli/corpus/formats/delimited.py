"""Tables in TSV and CSV: which cells of a row are the pair, and which rows have too many or too few cells."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from mt_cli.corpus.columns import columns_of, is_header
from mt_cli.corpus.lines import LONGEST, read_lines, read_whole_lines
from mt_cli.corpus.rows import Columns, Languages, Names, ReadReport, Row, is_of_word
from mt_cli.errors import ColumnError, CorpusError

Record = tuple[int, list[str]]
"""Line where a record begins, from 1, and its cells."""
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_LINES_EXAMINED = 10_000
_LINES_COMPARED = 20
_FEWEST_SENTENCES, _LONG = 10, 3
"""Fewest records below a header, and mean number of words above which a column of theirs has sentences."""


def is_quoted(path: Path) -> bool:
    """True if a spreadsheet wrote the quotation marks of a tab-separated file; otherwise they are text.

    A spreadsheet puts a cell with marks between marks, and doubles the marks inside. So every cell with marks has this
    form, and one of them has doubled marks unless all cells are between marks. The first 10,000 lines are examined.
    """
    has_doubled = has_plain = has_marks = False
    for line in islice(read_lines(path), _LINES_EXAMINED):
        for cell in line.split("\t") if '"' in line else ():
            if '"' in cell and not _QUOTED_CELL.fullmatch(cell):
                return False
            has_doubled |= '""' in cell[1:-1]
            has_plain |= bool(cell) and '"' not in cell
            has_marks = True
        has_plain |= bool(line) and '"' not in line
    return has_doubled or (has_marks and not has_plain)


def tsv_records(path: Path) -> Iterator[Record]:
    """Tab-separated lines, or quoted records if a spreadsheet wrote the file."""
    return _quoted_records(path, "\t") if is_quoted(path) else plain_records(path)


def plain_records(path: Path) -> Iterator[Record]:
    """Tab-separated lines in which quotation marks are text."""
    return ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))


def csv_records(path: Path) -> Iterator[Record]:
    """Records of a CSV file, without the line `sep=;` in which spreadsheets name the separator."""
    first_lines = "\n".join(islice(read_lines(path), _LINES_COMPARED))
    records = _quoted_records(path, csv_separator(first_lines))
    return islice(records, int(first_lines.startswith("sep=")), None)


def csv_separator(text: str) -> str:
    """Separator of CSV: a comma, or a semicolon if the first line has only those outside of quotation marks."""
    first_line = "".join(_QUOTED_CELL.sub("", text).strip().splitlines()[:1])
    return ";" if ";" in first_line and "," not in first_line else ","


def _quoted_records(path: Path, separator: str) -> Iterator[Record]:
    """Records of the lines of a file, with quotation marks as in RFC 4180."""
    csv.field_size_limit(LONGEST)  # A longer field has an opening quotation mark without a closing one.
    reader = csv.reader(read_whole_lines(path), delimiter=separator, strict=True)
    before = 0
    try:
        for record in reader:
            yield before + 1, record or [""]
            before = reader.line_num
    except csv.Error as error:
        kind, hint = "CSV", "; a .csv file has commas or semicolons between cells"
        if separator == "\t":
            kind, hint = "TSV with quotation marks", "; if quotation marks are text, set `format: plain_tsv`"
        raise CorpusError(f"{path}, line {before + 1:,}: not valid {kind}: {error}{hint}") from None


def first_cells(records: Iterator[Record]) -> Names:
    return Names(next((cells for _, cells in records if _width(cells)), [""]), False)


def read_table(
    path: Path, records: Iterator[Record], languages: Languages, columns: Columns, report: ReadReport
) -> Iterator[Row]:
    """Pairs in two columns of a table; a blank record is a blank pair.

    A record with too many or too few cells raises CorpusError. With `report.damaged_rows`, it is added there if it has
    too many, and otherwise filled with empty cells.
    """
    for number, first in records:
        if _width(first):
            break
        yield number, "", ""
    else:
        return
    where = f"{path}, line {number:,}"
    examined = [(number, first), *islice(records, _LINES_COMPARED)]
    source, target, has_header = _place_of_pair(first, languages, columns, where)
    rows = [cells for _, cells in examined[: 1 if has_header else None] if _width(cells)]
    most = Counter(map(len, rows)).most_common(1)[0][0]
    fewest = max(_width(cells) for cells in rows if len(cells) == most)
    is_lenient = report.damaged_rows is not None
    if most <= max(source, target):
        problem = f"found {most} column{'s' * (most != 1)}"
        raise CorpusError(f"{where}: {problem}; a .tsv file has a tab between source and target, a .csv file a comma")
    if columns is None and not has_header and _may_be_header(first, rows[1:], source):
        names = ", ".join((first[source], first[target]))
        report.choices.append(f"{where}: seems to be a header, and is read as a pair; if it is one: columns: [{names}]")
    for number, cells in chain(examined[has_header:], records):
        width = _width(cells)
        if width == 0:
            yield number, "", ""
        elif fewest <= len(cells) <= most or width <= fewest < len(cells) or (is_lenient and width <= most):
            padded = [*cells, *[""] * (most - len(cells))]  # Empty cells at the end may be missing.
            yield number, padded[source], padded[target]
        elif report.damaged_rows is not None:
            report.damaged_rows.append(number)
        else:
            counts = f"has {len(cells):,} cell{'s' * (len(cells) != 1)}, and the others have {most:,}"
            raise CorpusError(f"{path}, line {number:,}: {counts}; a separator in a sentence would shift the pair")


def _may_be_header(first: Sequence[str], rows: Sequence[Sequence[str]], column: int) -> bool:
    """True if all cells of the first record are single words, and a column has sentences in the next ones."""
    lengths = [len(cells[column].split()) for cells in rows if len(cells) > column]
    return len(lengths) >= _FEWEST_SENTENCES and sum(lengths) > _LONG * len(lengths) and all(map(_is_word, first))


def _is_word(cell: str) -> bool:
    """True for a word, and for an empty cell."""
    return all(map(is_of_word, cell.strip()))


def _width(cells: Sequence[str]) -> int:
    """Number of cells without empty ones at the end."""
    width = len(cells)
    while width and not cells[width - 1].strip():
        width -= 1
    return width


def _place_of_pair(cells: Sequence[str], languages: Languages, columns: Columns, where: str) -> tuple[int, int, bool]:
    """Source and target cell by the first record, and True if that is a header; without one, the first two cells."""
    numbers = [int(column) for column in columns or () if re.fullmatch("[0-9]{1,9}", column)]
    if columns is not None and len(numbers) == 2 and not set(columns) <= set(cells):
        for number in numbers:
            if not 1 <= number <= len(cells):
                found = f"the line has {len(cells)} column{'s' * (len(cells) != 1)}, counted from 1"
                raise ColumnError(f"{where}: no column {number}: {found}")
        if numbers[0] == numbers[1]:
            raise ColumnError(f"{where}: the columns of source and target are both {numbers[0]}")
        source, target = (number - 1 for number in numbers)
        return source, target, is_header([cells[source], cells[target]], languages)
    pair = columns_of(cells, languages, columns, where)
    if pair is None and is_header(cells, languages):
        named = f"the header names {', '.join(cells[:20])}"
        raise ColumnError(f"{where}: {named}, and the languages are {languages[0]} and {languages[1]}")
    return (0, 1, False) if pair is None else (*pair, True)
