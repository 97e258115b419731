"""Reader of tables in TSV and CSV: which cells of a row are the pair, and which rows have too many or too few cells."""

from __future__ import annotations

import csv
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.languages import code_in_heading, is_known, primary
from mt_cli.corpus.lines import COMPRESSIONS, LONGEST, read_lines, read_whole_lines
from mt_cli.corpus.quoting import quoting_of
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.tables import checked_columns
from mt_cli.corpus.varieties import is_variety_of
from mt_cli.errors import ColumnError, CorpusError

TableRecord = tuple[int, list[str]]
"""Line where a record begins, from 1, and its cells."""
_SEPARATORS = {"tab": "\t", "semicolon": ";", "bar": "|", "comma": ",", "space": "  "}
_LINES_COMPARED = 20
_MIN_LINES_COMPARED = 6
_LONGEST_NAME = 40
_LINES_SHOWN = 5
ROLES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
"""Headings of columns that are named by their role."""


class _Place(NamedTuple):
    """Cells of the pair in a row, from 0."""

    source: int
    target: int
    has_heading: bool
    """Whether the first row is a heading."""


class _Width(NamedTuple):
    """Number of cells in a row of a table: as in the heading, or as in most of the first rows."""

    fewest: int
    """Number of cells, without cells at the end that are empty in the heading or in all rows."""
    most: int
    by_heading: bool

    def fits(self, cells: Sequence[str]) -> bool:
        """Whether a row has this width; empty cells beyond it do not count."""
        return self.fewest <= len(cells) <= self.most or (
            len(cells) > self.most and len(_without_empty_end(cells)) <= self.fewest
        )


def tsv_records(path: Path) -> Iterator[TableRecord]:
    """Records of a TSV file: tab-separated lines, or quoted records if a spreadsheet wrote the file.

    The kind is decided at the first quotation mark; before it, both readings are equal.
    """
    lines = enumerate(read_whole_lines(path), start=1)
    for number, line in lines:
        if '"' in line:
            rest = chain([(number, line)], lines)
            if quoting_of(path).is_quoted:
                yield from quoted_records(path, "\t", (text for _, text in rest), number - 1)
            else:
                yield from ((place, _cells(text)) for place, text in rest)
            return
        yield number, _cells(line)


def plain_records(path: Path) -> Iterator[TableRecord]:
    """Tab-separated lines in which quotation marks are text."""
    return ((number, _cells(line)) for number, line in enumerate(read_whole_lines(path), start=1))


def _cells(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def quoted_records(
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


def first_cells(records: Iterator[TableRecord]) -> Names:
    """Cells of the first record that is not blank."""
    return Names(next((cells for _, cells in records if not _is_blank(cells)), [""]), False)


def _hint_at_separator(lines: Sequence[str], expected: str, names: Iterable[str] = _SEPARATORS) -> str:
    """A hint if all lines have another separator than the expected one, otherwise an empty string."""
    for name in names:
        if name != expected and all(_SEPARATORS[name] in line for line in lines):
            return f"; the columns seem to be separated by {name}s: a .tsv file has tabs, a .csv file commas"
    return ""


def hint_at_heading(names: Sequence[str]) -> str:
    """Hint for a heading that seems to be text, or to have another separator; otherwise an empty string."""
    if len(names) == 1 and (hint := _hint_at_separator(names, "tab", ("semicolon", "bar", "comma"))):
        return hint
    is_text = any(len(name) > _LONGEST_NAME or name.count(" ") > 1 for name in names)
    return "; a CSV or TSV file of a dataset needs a first line with the names of its columns" if is_text else ""


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
    if re.fullmatch("sep=.?", heading[0]):
        raise CorpusError(f"{where}: found {heading[0]!r}, which is a note to Excel; remove this line")
    beginning = [(number, heading), *islice(records, _LINES_COMPARED)]
    lines = [_SEPARATORS[separator].join(cells) for _, cells in beginning if not _is_blank(cells)]
    hint = _hint_at_separator(lines, separator) if len(heading) == 1 else ""
    place = _place_of_pair(heading, languages, columns, where, hint)
    if columns is None and not place.has_heading and separator == "comma":
        _refuse_other_separator(path, lines)
    width = _width_of(heading if place.has_heading else None, beginning)
    if width.most <= max(place[:2]):
        problem = f"found {width.most} column{'s' * (width.most != 1)}"
        raise CorpusError(f"{where}: {problem}; each line needs a source, a {separator} and a target{hint}")
    rows = chain(beginning[place.has_heading :], records)
    for number, cells in rows:
        if width.fits(cells):
            padded = [*cells, *[""] * (width.most - len(cells))]  # Empty cells at the end may be missing.
            yield number, padded[place.source], padded[place.target]
        elif _is_blank(cells):
            yield number, "", ""
        else:
            raise _ragged_row(path, (number, cells), rows, width, separator)


def _width_of(heading: Sequence[str] | None, beginning: Sequence[TableRecord]) -> _Width:
    """Width of the heading or, without one, of most of the first rows."""
    if heading is not None:
        return _Width(len(_without_empty_end(heading)), len(heading), True)
    rows = [cells for _, cells in beginning if not _is_blank(cells)]
    most = Counter(map(len, rows)).most_common(1)[0][0]
    return _Width(max(len(_without_empty_end(cells)) for cells in rows if len(cells) == most), most, False)


def _is_blank(cells: Sequence[str]) -> bool:
    return not any(map(str.strip, cells))


def _without_empty_end(cells: Sequence[str]) -> Sequence[str]:
    end = len(cells)
    while end and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def _ragged_row(
    path: Path, first: TableRecord, rest: Iterator[TableRecord], width: _Width, separator: str
) -> CorpusError:
    """Error for a row with a wrong number of cells, as from a separator in a sentence; counts all further such rows."""
    number, cells = first
    num_rows, lines = 1, [number]
    for line, record in rest:
        num_rows += 1
        lines += [line] * (not width.fits(record) and not _is_blank(record))
    expected = f"{'the heading has' if width.by_heading else 'the others have'} {width.most:,}"
    problem = f"has {len(cells):,} cell{'s' * (len(cells) != 1)}, and {expected}"
    if len(lines) > 1:
        shown = [f"{line:,}" for line in lines[:_LINES_SHOWN]] + ["..."] * (len(lines) > _LINES_SHOWN)
        problem += f"; there are {len(lines):,} such rows (lines {', '.join(shown)})"
    shifts = f"a {separator} inside a sentence shifts the pair"
    advice = f"{shifts if len(cells) > width.most else f'a {separator} is missing'}: repair such rows"
    if width.by_heading and len(lines) == num_rows > 1:
        advice = "repair the heading, which should name every column"
    elif separator == "comma":
        advice += ", with quotation marks around a cell that has commas"
    elif any('"' in cell for cell in cells):
        advice += " or, if quotation marks are around cells, set `format: quoted_tsv`"
    elif path.suffix not in COMPRESSIONS and not quoting_of(path).is_quoted:
        program = f"awk -F'\\t' 'NF == {width.most}' {shlex.quote(path.name)} > repaired.tsv"
        advice += f", or drop them: {program}"
    return CorpusError(f"{path}, line {number:,}: {problem}; {advice}")


def _refuse_other_separator(path: Path, lines: Sequence[str]) -> None:
    """Raise CorpusError if each of the first lines of a CSV file has exactly one mark that may be the separator."""
    # Text alone would hardly have exactly one such mark in each line.
    for name in ("tab", "semicolon", "bar") if len(lines) >= _MIN_LINES_COMPARED else ():
        if all(line.count(_SEPARATORS[name]) == 1 for line in lines):
            advice = _hint_at_separator(lines, "comma", [name])
            raise CorpusError(f"{path}: each of its first {len(lines)} lines has one {name}{advice}")


def _place_of_pair(cells: Sequence[str], languages: Languages, columns: Columns, where: str, hint: str) -> _Place:
    """Choose the cells of the pair by the first record: `columns`, columns of the languages, or the first two."""
    if columns is not None:
        numbers = [int(column) for column in columns if re.fullmatch("[0-9]{1,9}", column)]
        if len(numbers) == 2 and not set(columns) <= set(cells):
            return _numbered(cells, numbers, languages, where, hint)
        source, target = (cells.index(name) for name in checked_columns(columns, cells, where, hint))
        return _Place(source, target, True)
    if set(languages) <= set(cells):
        source, target = (cells.index(name) for name in checked_columns(languages, cells, where, hint))
        return _Place(source, target, True)
    for names in ROLES:
        if set(names) <= set(cells):
            return _Place(cells.index(names[0]), cells.index(names[1]), True)
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

    Many words are codes, so cells count as languages only if all are common codes, or one is common and one is
    expected.
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
