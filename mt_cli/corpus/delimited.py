"""Reader of tables in TSV and CSV: which cells of a row are the pair, and which rows have too many or too few cells."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.languages import code_in_heading, is_known, primary
from mt_cli.corpus.lines import LONGEST, read_lines, read_whole_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.tables import checked_columns
from mt_cli.corpus.varieties import is_variety_of
from mt_cli.errors import ColumnError, CorpusError

TableRecord = tuple[int, list[str]]
"""Line where a record begins, from 1, and its cells."""
_SEPARATORS = {"tab": "\t", "semicolon": ";", "bar": "|", "comma": ","}
_QUOTED_CELL = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_LINES_COMPARED = 20
ROLES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
"""Headings of columns that are named by their role."""


class _Place(NamedTuple):
    """Cells of the pair in a row, from 0."""

    source: int
    target: int
    has_heading: bool
    """Whether the first row is a heading."""


def is_quoted(path: Path) -> bool:
    """Whether a spreadsheet wrote the quotation marks of a tab-separated file; otherwise they are text.

    A spreadsheet puts a cell with marks between marks, and doubles the marks inside. So every cell with marks has this
    form, and one of them has doubled marks unless all cells are between marks.
    """
    has_doubled = has_plain = has_marks = False
    for line in read_lines(path):
        for cell in line.split("\t") if '"' in line else ():
            if '"' in cell and not _QUOTED_CELL.fullmatch(cell):
                return False
            has_doubled |= '""' in cell[1:-1]
            has_plain |= bool(cell) and '"' not in cell
            has_marks = True
        has_plain |= bool(line) and '"' not in line
    return has_doubled or (has_marks and not has_plain)


def quoted(cell: str) -> str:
    """Write a cell of a tab-separated file as a spreadsheet does."""
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if '"' in cell else cell


def tsv_records(path: Path) -> Iterator[TableRecord]:
    """Records of a TSV file: tab-separated lines, or quoted records if a spreadsheet wrote the file."""
    return quoted_records(path, "\t") if is_quoted(path) else plain_records(path)


def plain_records(path: Path) -> Iterator[TableRecord]:
    """Tab-separated lines in which quotation marks are text."""
    return ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))


def quoted_records(path: Path, separator: str) -> Iterator[TableRecord]:
    """Records of the lines of a file, with quotation marks as in RFC 4180."""
    csv.field_size_limit(LONGEST)  # A longer field has an opening quotation mark without a closing one.
    reader = csv.reader(read_whole_lines(path), delimiter=separator, strict=True)
    before = 0
    try:
        for record in reader:
            yield before + 1, record or [""]
            before = reader.line_num
    except csv.Error as error:
        kind, hint = "CSV", "; a .csv file has commas between cells"
        if separator == "\t":
            kind, hint = "TSV with quotation marks", "; if quotation marks are text, set `format: plain_tsv`"
        raise CorpusError(f"{path}, line {before + 1:,}: not valid {kind}: {error}{hint}") from None


def first_cells(records: Iterator[TableRecord]) -> Names:
    """Cells of the first record that is not blank."""
    return Names(next((cells for _, cells in records if not _is_blank(cells)), [""]), False)


def read_table(
    path: Path, records: Iterator[TableRecord], languages: Languages, columns: Columns, separator: str
) -> Iterator[Row]:
    """Pairs in two columns of records; a blank record is a blank pair."""
    for number, heading in records:
        if not _is_blank(heading):
            break
        yield number, "", ""
    else:
        return
    where = f"{path}, line {number:,}"
    beginning = [(number, heading), *islice(records, _LINES_COMPARED)]
    hint = _hint_at_separator(beginning, separator) if len(heading) == 1 else ""
    place = _place_of_pair(heading, languages, columns, where, hint)
    fewest, most = _width_of([heading] if place.has_heading else [cells for _, cells in beginning])
    if most <= max(place[:2]):
        problem = f"found {most} column{'s' * (most != 1)}"
        raise CorpusError(f"{where}: {problem}; each line needs a source, a {separator} and a target{hint}")
    for number, cells in chain(beginning[place.has_heading :], records):
        if _is_blank(cells):
            yield number, "", ""
        elif fewest <= len(cells) <= most or len(_without_empty_end(cells)) <= fewest < len(cells):
            padded = [*cells, *[""] * (most - len(cells))]  # Empty cells at the end may be missing.
            yield number, padded[place.source], padded[place.target]
        else:
            expected = f"{'the heading has' if place.has_heading else 'the others have'} {most:,}"
            shifts = f"a {separator} {'inside a sentence shifts the pair' if len(cells) > most else 'is missing'}"
            raise CorpusError(
                f"{path}, line {number:,}: has {len(cells):,} cell{'s' * (len(cells) != 1)}, and {expected}; {shifts}: "
                "repair such rows"
            )


def _hint_at_separator(records: Sequence[TableRecord], expected: str) -> str:
    """A hint if all records have another separator than the expected one, otherwise an empty string."""
    lines = [_SEPARATORS[expected].join(cells) for _, cells in records if not _is_blank(cells)]
    for name, mark in _SEPARATORS.items():
        if name != expected and all(mark in line for line in lines):
            return f"; the columns seem to be separated by {name}s: a .tsv file has tabs, a .csv file commas"
    return ""


def _width_of(records: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Most frequent number of cells, without those at the end that are empty in all records, and with them."""
    rows = [cells for cells in records if not _is_blank(cells)]
    most = Counter(map(len, rows)).most_common(1)[0][0]
    return max(len(_without_empty_end(cells)) for cells in rows if len(cells) == most), most


def _is_blank(cells: Sequence[str]) -> bool:
    return not any(map(str.strip, cells))


def _without_empty_end(cells: Sequence[str]) -> Sequence[str]:
    end = len(cells)
    while end and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def _place_of_pair(cells: Sequence[str], languages: Languages, columns: Columns, where: str, hint: str) -> _Place:
    """Choose the cells of the pair by the first record: `columns`, columns of the languages, or the first two."""
    if columns is not None:
        numbers = [int(column) for column in columns if re.fullmatch("[0-9]{1,9}", column)]
        if len(numbers) == 2 and not set(columns) <= set(cells):
            return _numbered(cells, numbers, languages, where, hint)
        source, target = (cells.index(name) for name in checked_columns(columns, cells, where, hint))
        return _Place(source, target, True)
    for names in (languages, *ROLES):
        if set(names) <= set(cells):
            source, target = (cells.index(name) for name in checked_columns(names, cells, where, hint))
            return _Place(source, target, True)
    codes = [_code_of(cell) for cell in cells]
    matches = [
        [index for index, code in enumerate(codes) if code and is_variety_of(code, language)] for language in languages
    ]
    if [len(match) for match in matches] == [1, 1] and matches[0] != matches[1]:
        return _Place(matches[0][0], matches[1][0], True)
    primaries = {primary(code) for code in codes if code}
    if _is_heading(cells, languages) or {primary(language) for language in languages} <= primaries:
        named = f"the heading names {', '.join(cells)}"
        raise ColumnError(f"{where}: {named}, and the languages are {languages[0]} and {languages[1]}")
    return _Place(0, 1, False)


def _numbered(cells: Sequence[str], numbers: Sequence[int], languages: Languages, where: str, hint: str) -> _Place:
    """Columns by number, from 1. The first record is a heading if it has names of languages or roles there."""
    for number in numbers:
        if not 1 <= number <= len(cells):
            problem = f"no column {number}: the line has {len(cells)} column{'s' * (len(cells) != 1)}, counted from 1"
            raise ColumnError(f"{where}: {problem}", hint)
    source, target = (number - 1 for number in numbers)
    return _Place(source, target, _is_heading([cells[source], cells[target]], languages))


def _is_heading(cells: Sequence[str], languages: Languages) -> bool:
    """Whether cells are names of columns: two or more languages, or a source and a target, and nothing else.

    Many words are also codes of languages, so cells count as languages only if all are codes of common languages, or if
    one is such a code and one is an expected language.
    """
    if any(sorted(cells) == sorted(names) for names in ROLES):
        return True
    codes = [code for cell in cells if (code := _code_of(cell))]
    if len(codes) < len(cells) or len(set(codes)) < 2:
        return False
    are_common = [code_in_heading(cell) is not None for cell in cells]
    is_expected = {primary(code) for code in codes} & {primary(language) for language in languages}
    return all(are_common) or (any(are_common) and bool(is_expected))


def _code_of(cell: str) -> str | None:
    return code_in_heading(cell) or (cell if is_known(cell) else None)
