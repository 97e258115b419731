"""reStructuredText (`.rst`): paragraphs, titles, list items, definitions, and the bodies of directives with text.

The structure of lines tells the blocks, as in the specification of docutils. Literal blocks, code, comments, targets,
substitutions, fields of the document, options and glossaries stay; so do tables, which are counted. A reference by its
text to a target of the file, such as `text`_, is written as `text <text_>`__, so that a translation keeps its target.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from mt_cli.features.documents.directives import Directive, directive_of
from mt_cli.features.documents.document import Document, Options, Unit, any_lines_with_places, read_content
from mt_cli.features.documents.inline_marks import EMPHASIS, PLACEHOLDERS
from mt_cli.features.documents.rst_titles import ADORNMENT, is_underline, title_unit
from mt_cli.features.documents.wrapped_lines import Line, Markup, paragraph_unit, with_text

_MAX_DEPTH = 60
"""Depth of nesting below which blocks stay as they are."""
_BULLET = r"[-+*•‣⁃](?:\s+|\Z)"
_ENUMERATOR = r"\(?(?:\d{1,9}|[a-zA-Z]|[ivxlcdmIVXLCDM]{1,9}|#)[.)](?:\s+|\Z)"
_OPTION = r"(?:-\w|--?\w[\w-]*|/[A-Z])"
_MARKUP = Markup(
    start=re.compile(
        rf"{_BULLET}|{_ENUMERATOR}|\.\.(?:\s|\Z)|__(?:\s|\Z)|\|(?:\s|\Z)|:[^:\s`][^:`]*:(?:\s|\Z)|>>>|"
        rf"(?P<line>[!-/:-@\[-`{{-~])(?P=line)+\s?\Z|{_OPTION}(?:[ ,=]|\Z)"
    ),
    hidden=re.compile(r"``.+?``|:[\w:+.-]{1,99}:`[^`<]*`|\|[^|\s][^|]*\||\w+://\S+"),
)
_ITEM = re.compile(rf"{_BULLET}|(?P<number>{_ENUMERATOR})")
_DIRECTIVE = re.compile(r"\.\. +(?P<name>\w[\w:.+-]*?) ?::(?:\s+|\Z)")
_FOOTNOTE = re.compile(r"\.\. +\[[^\]]+\](?:\s+|\Z)")
_FIELD = re.compile(r":(?![: ])(?P<name>(?:[^:\\`]|\\.|:(?![\s`]|\Z))+):(?:\s+|\Z)")
_TYPE_FIELD = re.compile(r"(?:type|rtype|vartype|paramtype|meta)\b")
_OPTION_ROW = re.compile(rf"{_OPTION}(?:[ =]\S+)?(?:, {_OPTION}(?:[ =]\S+)?)*(?:  +|\Z)")
_GRID_TABLE = re.compile(r"\+[-=+]+\+")
_SIMPLE_TABLE = re.compile(r"=+(?: +=+)+")
_VERSION = {Directive.VERSION: re.compile(r"\S+(?:\s+|\Z)"), Directive.VERSIONS: re.compile(r"\S+\s+\S+(?:\s+|\Z)")}
_TARGET = re.compile(r"\.\. _(`[^`]+`|(?:[^:\\]|\\.)+):(?:\s|\Z)")
_REFERENCE = re.compile(r"``.*?``|(?<![\w:`])`([^`<>]+)`_(?![\w])")
_FULL_REFERENCE = re.compile(r"`([^`<>]+) <\1_>`__")
_CLASSIFIER = re.compile(r" +: +.*\Z")
_LITERAL = re.compile(r"\s*::\Z")


class _Row(NamedTuple):
    """A line of the document, whose text may begin after a marker."""

    begin: int
    start: int
    end: int
    column: int
    text: str


def read_rst(path: Path, options: Options) -> Document:
    """Blocks of text of a file in reStructuredText."""
    content, encoding, mark = read_content(path)
    scanner = _Scanner(content)
    scanner.scan(0, len(scanner.rows), 0, 0)
    return Document(content, scanner.units, encoding, mark, scanner.counts, ("rest", *PLACEHOLDERS, EMPHASIS))


class _Scanner:
    """Finds the blocks of rows, and keeps their units in order."""

    def __init__(self, content: str) -> None:
        self._content = content
        self.units: list[Unit] = []
        self.counts = {"without_text": 0, "tables": 0}
        self.rows: list[_Row] = []
        for place, line in any_lines_with_places(content):
            text = line.strip()
            start = place + len(line) - len(line.lstrip())
            column = len(content[place:start].expandtabs(8))
            self.rows.append(_Row(place, start, start + len(text), column, text))
        targets = (match[1].strip("`") for row in self.rows if (match := _TARGET.match(row.text)))
        self._targets = {" ".join(name.lower().split()) for name in targets}

    def scan(self, first: int, last: int, column: int, depth: int) -> None:
        """Blocks of rows from `first` to `last`, which begin at a column; those of higher columns are quotations."""
        number = first
        while number < last and depth < _MAX_DEPTH:
            row = self.rows[number]
            if not row.text:
                number += 1
            elif row.column > column:
                end = self._region(number, last, column + 1)
                self.scan(number, end, self._column_of(number, end), depth + 1)
                number = end
            else:
                number = self._block(number, last, depth)

    def _block(self, number: int, last: int, depth: int) -> int:
        """Add units of the block at a row; return the row after it."""
        text = self.rows[number].text
        if text.startswith("..") and text[2:3] in ("", " ", "\t"):
            return self._explicit(number, last, depth)
        if text.startswith(("__ ", ">>> ")) or _GRID_TABLE.fullmatch(text):
            self.counts["tables"] += text.startswith("+")
            return self._after_block(number, last) if not text.startswith("_") else number + 1
        if _SIMPLE_TABLE.fullmatch(text):
            return self._after_simple_table(number, last)
        if text == "|" or text.startswith("| "):
            return self._line_of_verse(number, last)
        item = _ITEM.match(text)
        if item and (not item["number"] or self._is_item(number, last)):
            return self._item(number, last, item.end(), depth)
        if field := _FIELD.match(text):
            return self._field(number, last, field, depth)
        if _OPTION_ROW.match(text):
            return self._region(number + 1, last, self.rows[number].column + 1)
        if end := self._title(number, last):
            return end
        following = self.rows[number + 1] if number + 1 < last else None
        if following and following.text and following.column > self.rows[number].column:
            return self._definition(number, last, depth)
        return self._paragraph(number, last)

    def _region(self, first: int, last: int, column: int) -> int:
        """End of the rows that are blank or begin at a column or after it."""
        while first < last and (not self.rows[first].text or self.rows[first].column >= column):
            first += 1
        return first

    def _after_block(self, number: int, last: int) -> int:
        """First blank row after a row."""
        while number < last and self.rows[number].text:
            number += 1
        return number

    def _column_of(self, first: int, last: int, otherwise: int = 0) -> int:
        """Lowest column of rows with text."""
        return min((row.column for row in self.rows[first:last] if row.text), default=otherwise)

    def _body(self, number: int, end: int, offset: int, depth: int, column: int | None = None) -> None:
        """Blocks of a body, which begins after a marker of `offset` characters, or on the row below."""
        row = self.rows[number]
        text = row.text[offset:]
        if column is None:
            column = self._column_of(number + 1, end, row.column + offset)
        if text:
            self.rows[number] = row._replace(start=row.start + offset, column=column, text=text)
        self.scan(number + (not text), end, column, depth + 1)

    def _item(self, number: int, last: int, offset: int, depth: int) -> int:
        row = self.rows[number]
        has_text = bool(row.text[offset:])
        column = row.column + offset if has_text else None
        end = self._region(number + 1, last, column or row.column + 1)
        self._body(number, end, offset, depth, column)
        return end

    def _is_item(self, number: int, last: int) -> bool:
        """Whether a row with a number is an item: the next one is blank, indented or another item."""
        following = self.rows[number + 1] if number + 1 < last else None
        column = self.rows[number].column
        return not following or not following.text or following.column > column or bool(_ITEM.match(following.text))

    def _field(self, number: int, last: int, field: re.Match[str], depth: int) -> int:
        """Add the body of a field, unless it is one of the document or a type."""
        end = self._region(number + 1, last, self.rows[number].column + 1)
        if depth and not _TYPE_FIELD.match(field["name"]):
            self._body(number, end, field.end(), depth)
        return end

    def _explicit(self, number: int, last: int, depth: int) -> int:
        """Add the text of a directive or a footnote; comments, targets and substitutions have none."""
        text, column = self.rows[number].text, self.rows[number].column
        if text == ".." and number + 1 < last and not self.rows[number + 1].text:
            return number + 1
        end = self._region(number + 1, last, column + 1)
        if footnote := _FOOTNOTE.match(text):
            self._body(number, end, footnote.end(), depth)
        elif directive := _DIRECTIVE.match(text):
            kind = directive_of(directive["name"])
            if kind:
                self._directive(number, end, kind, directive.end(), depth)
        return end

    def _directive(self, number: int, end: int, kind: Directive, offset: int, depth: int) -> None:
        """Add the argument of a directive if it is text, and the body."""
        row = self.rows[number]
        if kind is Directive.BODY and row.text[offset:]:
            self._body(number, end, offset, depth)
            return
        if kind in (Directive.VERSION, Directive.VERSIONS):
            version = _VERSION[kind].match(row.text, offset)
            offset = version.end() if version else offset
        self.rows[number] = row._replace(start=row.start + offset, text=row.text[offset:])
        first = number if row.text[offset:] else number + 1
        options = first
        while options < end and (text := self.rows[options].text) and not _FIELD.match(text):
            options += 1
        if kind in (Directive.TITLED, Directive.VERSION, Directive.VERSIONS):
            self._add(first, options)
        body = first if kind is Directive.BODY else options
        while body < end and (text := self.rows[body].text) and (kind is not Directive.BODY or _FIELD.match(text)):
            body += 1
        self.scan(body, end, self._column_of(body, end), depth + 1)

    def _line_of_verse(self, number: int, last: int) -> int:
        """Add a line of a line block, with lines that continue it."""
        row = self.rows[number]
        offset = len(row.text) - len(row.text[1:].lstrip())
        self.rows[number] = row._replace(start=row.start + offset, text=row.text[offset:])
        end = number + 1
        while end < last and self.rows[end].text and self.rows[end].column > row.column:
            end += 1
        if row.text[offset:]:
            self._add(number, end)
        return end

    def _after_simple_table(self, number: int, last: int) -> int:
        self.counts["tables"] += 1
        num_borders, end = 0, number + 1
        while end < last and num_borders < 2:
            is_border = bool(re.fullmatch("=[ =]*", self.rows[end].text))
            num_borders += is_border
            end += 1
            if is_border and (end == last or not self.rows[end].text):
                break
        return end

    def _title(self, number: int, last: int) -> int | None:
        """Add a title; return the row after it, or after a line between paragraphs, or None."""
        rows = self.rows[number : min(number + 3, last)]
        texts = [row.text for row in rows]
        has_over = bool(ADORNMENT.fullmatch(texts[0])) and len(rows) == 3 and texts[2] == texts[0] and bool(texts[1])
        if ADORNMENT.fullmatch(texts[0]) and not has_over:
            return number + 1 if len(texts[0]) > 3 else None
        if not has_over and (len(rows) < 2 or rows[1].column != rows[0].column or not is_underline(texts[1], texts[0])):
            return None
        over, title, under = (rows[0], rows[1], rows[2]) if has_over else (None, rows[0], rows[1])
        unit = title_unit(self._content, over and _line(over), _line(title), _line(under), _MARKUP)
        self._keep(unit)
        return number + 3 if has_over else number + 2

    def _definition(self, number: int, last: int, depth: int) -> int:
        """Add a term without its classifiers, and the definition; a term that ends in `::` may be a mistake."""
        row = self.rows[number]
        end = self._region(number + 1, last, row.column + 1)
        if not row.text.endswith("::"):
            classifier = _CLASSIFIER.search(row.text)
            term = Line(row.begin, row.start, row.end - len(classifier[0] if classifier else ""))
            self._keep(paragraph_unit(self._content, [term], _MARKUP))
            self.scan(number + 1, end, self._column_of(number + 1, end), depth + 1)
        return end

    def _paragraph(self, number: int, last: int) -> int:
        """Add a paragraph; return the row after it and its literal block."""
        column = self.rows[number].column
        end = number
        while end < last and self.rows[end].text and self.rows[end].column == column:
            end += 1
        self._add(number, end)
        if not self.rows[end - 1].text.endswith("::"):
            return end
        after = end
        while after < last and not self.rows[after].text:
            after += 1
        if after < last and self.rows[after].column > column:
            return self._region(after, last, column + 1)
        is_quoted = after < last and after > end and bool(ADORNMENT.match(self.rows[after].text))
        return self._after_block(after, last) if is_quoted else end

    def _add(self, first: int, last: int) -> None:
        """Add a unit of rows, without `::` at the end."""
        lines = [_line(row) for row in self.rows[first:last]]
        if lines and (literal := _LITERAL.search(self.rows[last - 1].text)):
            lines[-1] = lines[-1]._replace(end=lines[-1].end - len(literal[0]))
        lines = [line for line in lines if line.end > line.start]
        if lines:
            self._keep(paragraph_unit(self._content, lines, _MARKUP))

    def _keep(self, unit: Unit | None) -> None:
        if unit is None:
            self.counts["without_text"] += 1
            return
        text = _REFERENCE.sub(self._full_reference, unit.texts[0]) if self._targets else unit.texts[0]
        self.units.append(with_text(unit, text, _FULL_REFERENCE, r"`\1`_"))

    def _full_reference(self, match: re.Match[str]) -> str:
        name = match[1] or ""
        return f"`{name} <{name}_>`__" if name.lower() in self._targets else match[0]


def _line(row: _Row) -> Line:
    return Line(row.begin, row.start, row.end)
