"""Readers of TSV and CSV: which cells of a row are the pair, and rows with other numbers of cells than the others."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from mt_cli.corpus.languages import code_in_heading, is_known, primary
from mt_cli.corpus.lines import LONGEST, read_lines, read_whole_lines
from mt_cli.corpus.quoting import quoting_of
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.shape import Place, TableRecord, is_blank, ragged_row, shape_of
from mt_cli.corpus.tables import checked_columns
from mt_cli.corpus.varieties import is_variety_of
from mt_cli.errors import ColumnError, CorpusError

_SEPARATORS = {"tab": "\t", "semicolon": ";", "bar": "|", "comma": ",", "space": "  "}
_LINES_COMPARED = 20
_MIN_LINES_COMPARED = 6
_LONGEST_NAME = 40
_LINES_SHOWN = 5
ROLES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
"""Headings of columns that are named by their role."""


def read_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated lines, or records if a spreadsheet wrote the file."""
    return _read_table(path, _tsv_records(path), languages, columns, "tab")


def read_plain_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated lines in which quotation marks are text."""
    return _read_table(path, _lines_in_cells(enumerate(read_whole_lines(path), 1)), languages, columns, "tab")


def read_quoted_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated records, quoted as spreadsheets do."""
    return _read_table(path, _quoted_records(path, "\t"), languages, columns, "tab")


def read_csv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Comma-separated records, quoted as in RFC 4180."""
    return _read_table(path, _quoted_records(path, ","), languages, columns, "comma")


def names_in_tsv(path: Path) -> Names:
    """First cells of a tab-separated file."""
    return _first_cells(_tsv_records(path))


def names_in_plain_tsv(path: Path) -> Names:
    """First cells of a tab-separated file in which quotation marks are text."""
    return _first_cells(_lines_in_cells(enumerate(read_whole_lines(path), 1)))


def names_in_quoted_tsv(path: Path) -> Names:
    """First cells of a tab-separated file that is quoted as spreadsheets do."""
    return _first_cells(_quoted_records(path, "\t"))


def names_in_csv(path: Path) -> Names:
    """First cells of a comma-separated file."""
    return _first_cells(_quoted_records(path, ","))


def _first_cells(records: Iterator[TableRecord]) -> Names:
    return Names(next((cells for _, cells in records if not is_blank(cells)), [""]), False)


def _lines_in_cells(lines: Iterable[tuple[int, str]]) -> Iterator[TableRecord]:
    return ((number, _cells(line)) for number, line in lines)


def _cells(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def _tsv_records(path: Path) -> Iterator[TableRecord]:
    """Records of a TSV file. Whether it is quoted is examined at the first quotation mark, before which it is equal."""
    lines = enumerate(read_whole_lines(path), start=1)
    for number, line in lines:
        if '"' in line:
            rest = chain([(number, line)], lines)
            is_quoted = quoting_of(path).is_quoted
            yield from (
                _quoted_records(path, "\t", (text for _, text in rest), number - 1)
                if is_quoted
                else (_lines_in_cells(rest))
            )
            return
        yield number, _cells(line)


def _quoted_records(
    path: Path, separator: str, lines: Iterator[str] | None = None, num_lines_before: int = 0
) -> Iterator[TableRecord]:
    """Records of the lines of a file, with quotation marks as in RFC 4180."""
    csv.field_size_limit(LONGEST)  # A longer field has an opening quotation mark without a closing one.
    reader = csv.reader(lines or read_whole_lines(path), delimiter=separator, strict=True)
    before = num_lines_before
    try:
        for record in reader:
            yield before + 1, record or [""]
            before = num_lines_before + reader.line_num
    except csv.Error as error:
        last = num_lines_before + reader.line_num
        line = next(islice(read_lines(path), last - 1, None), "")
        hint = _hint_at_separator([line], "comma") if separator == "," and re.search(r'"[;|\t]"', line) else ""
        hint = "; if quotation marks are text, set `format: plain_tsv`" if separator == "\t" else hint
        kind = "CSV" if separator == "," else "TSV with quotation marks"
        raise CorpusError(f"{path}, line {before + 1:,}: not valid {kind}: {error}{hint}") from None


def _hint_at_separator(lines: Sequence[str], expected: str, names: Iterable[str] = _SEPARATORS) -> str:
    """A hint if all lines have another separator than the expected one, otherwise an empty string."""
    for name in names:
        if name != expected and all(_SEPARATORS[name] in line for line in lines):
            return f"; the columns seem to be separated by {name}s: a .tsv file has tabs, a .csv file commas"
    return ""


def hint_at_heading(names: Sequence[str]) -> str:
    """A hint if the names of columns seem to be text, or to be separated otherwise; or else an empty string."""
    if len(names) == 1 and (hint := _hint_at_separator(names, "tab", ("semicolon", "bar", "comma"))):
        return hint
    is_text = any(len(name) > _LONGEST_NAME or name.count(" ") > 1 for name in names)
    return "; a CSV or TSV file of a dataset needs a first line with the names of its columns" if is_text else ""


def _read_table(
    path: Path, records: Iterator[TableRecord], languages: Languages, columns: Columns, separator: str
) -> Iterator[Row]:
    """Pairs in two columns of records; a blank record is a blank pair."""
    for number, heading in records:
        if not is_blank(heading):
            break
        yield number, "", ""
    else:
        return
    where = f"{path}, line {number:,}"
    if re.fullmatch("sep=.?", heading[0]):
        raise CorpusError(f"{where}: found {heading[0]!r}, which is a note to Excel; remove this line")
    beginning = [(number, heading), *islice(records, _LINES_COMPARED)]
    lines = [_SEPARATORS[separator].join(cells) for _, cells in beginning if not is_blank(cells)]
    hint = _hint_at_separator(lines, separator) if len(heading) == 1 else ""
    place = _place_of_pair(heading, languages, columns, where, hint)
    if columns is None and not place.has_heading and separator == "comma":
        _refuse_other_separator(path, lines)
    rows = chain(beginning[place.has_heading :], records)
    shape = shape_of(heading if place.has_heading else None, beginning)
    if shape.most <= max(place[:2]):
        problem = f"found {shape.most} column{'s' * (shape.most != 1)}"
        raise CorpusError(f"{where}: {problem}; each line needs a source, a {separator} and a target{hint}")
    for number, cells in rows:
        if shape.fits(cells):
            yield number, _cell(cells, place.source), _cell(cells, place.target)
        elif is_blank(cells):
            yield number, "", ""
        else:
            raise ragged_row(path, (number, cells), rows, shape, place, separator)


def _cell(cells: Sequence[str], index: int) -> str:
    return cells[index] if index < len(cells) else ""  # Empty cells at the end may be missing.


def _refuse_other_separator(path: Path, lines: Sequence[str]) -> None:
    """Raise CorpusError if the first lines of a CSV file have one mark each that may be the real separator."""
    # Text alone would hardly have exactly one such mark in each line.
    for name in ("tab", "semicolon", "bar") if len(lines) >= _MIN_LINES_COMPARED else ():
        if all(line.count(_SEPARATORS[name]) == 1 for line in lines):
            advice = _hint_at_separator(lines, "comma", [name])
            raise CorpusError(f"{path}: each of its first {len(lines)} lines has one {name}{advice}")


def _place_of_pair(cells: Sequence[str], languages: Languages, columns: Columns, where: str, hint: str) -> Place:
    """Cells of the pair by the first record: columns by name or number, those of the languages, or the first two."""
    if columns is not None:
        numbers = [int(column) for column in columns if re.fullmatch("[0-9]{1,9}", column)]
        if len(numbers) == 2 and not set(columns) <= set(cells):
            return _numbered(cells, numbers, languages, where, hint)
        source, target = (cells.index(name) for name in checked_columns(columns, cells, where, hint))
        return Place(source, target, True)
    if set(languages) <= set(cells):
        source, target = (cells.index(name) for name in checked_columns(languages, cells, where, hint))
        return Place(source, target, True)
    for names in ROLES:
        if set(names) <= set(cells):
            return Place(cells.index(names[0]), cells.index(names[1]), True)
    codes = [_code_of(cell) for cell in cells]
    matches = [
        [index for index, code in enumerate(codes) if code and is_variety_of(code, language)] for language in languages
    ]
    if [len(match) for match in matches] == [1, 1] and matches[0] != matches[1]:
        return Place(matches[0][0], matches[1][0], True)
    primaries = {primary(code) for code in codes if code}
    if _is_heading(cells, languages) or {primary(language) for language in languages} <= primaries:
        named = f"the heading names {', '.join(cells)}"
        raise ColumnError(f"{where}: {named}, and the languages are {languages[0]} and {languages[1]}")
    return Place(0, 1, False)


def _numbered(cells: Sequence[str], numbers: Sequence[int], languages: Languages, where: str, hint: str) -> Place:
    """Columns by number, from 1. The first record is a heading if it has names of languages or roles there."""
    for number in numbers:
        if not 1 <= number <= len(cells):
            problem = f"no column {number}: the line has {len(cells)} column{'s' * (len(cells) != 1)}, counted from 1"
            raise ColumnError(f"{where}: {problem}", hint)
    source, target = (number - 1 for number in numbers)
    return Place(source, target, _is_heading([cells[source], cells[target]], languages))


def _is_heading(cells: Sequence[str], languages: Languages) -> bool:
    """Whether cells are names of columns: two or more languages, or a source and a target, and nothing else.

    Many words are codes. So they are names only if all are common codes, or one is common and one is expected.
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
