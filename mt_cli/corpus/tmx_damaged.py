"""Reader of damaged TMX: finds each `<tu>...</tu>` in the text and parses it on its own."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from mt_cli.corpus.lines import LONGEST, foreign_kind, opened
from mt_cli.corpus.tmx_units import Unit, UnitParser
from mt_cli.errors import CorpusError

_MARK = re.compile(r"<!--|<!\[CDATA\[|<tu(?=[\s/>])|</tu\s*>|</tmx\s*>")
_ENDS = {"<!--": re.compile("--(?=.)", re.DOTALL), "<![CDATA[": re.compile("]]>"), "<tu": re.compile(">")}
_CONTENT = re.compile(r"<(?:tuv|seg)[\s/>]")
_PIECE_BYTES = 1 << 16
_LONGEST_MARK = 100
"""Characters at the end of a piece of the file in which a mark may be cut off."""
_DECLARED = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_UNDECODABLE = re.compile("[\udc80-\udcff]")

Skip = Callable[[int, str], object]
"""Receives the line and the problem of each damaged unit."""


class _Span(NamedTuple):
    """Part of a file: a unit from `<tu` to `</tu>`, or a damaged part."""

    line: int
    text: str
    problem: str


def intact_units(path: Path, keep_codes: bool, skip: Skip) -> Iterator[Unit]:
    """The intact units of a TMX file, in order; `skip` is called for each damaged one.

    Raises CorpusError if the file cannot be read, or its encoding is not known.
    """
    for span in _spans(_pieces(path)):
        problem = span.problem
        if not problem:
            try:
                yield _parsed(span, keep_codes)
                continue
            except expat.ExpatError as error:
                line = span.line + error.lineno - 1
                problem = f"not well-formed XML: {expat.errors.messages.get(error.code, '')}"
                skip(line, _undecodable(span.text) or problem)
                continue
            except CorpusError as error:
                problem = str(error)
        skip(span.line, problem)


def _parsed(span: _Span, keep_codes: bool) -> Unit:
    parser = UnitParser(keep_codes, "utf-8")
    parser.parser.Parse(span.text.encode("utf-8", "surrogatepass"), True)
    (unit,) = parser.take()
    unit.line += span.line - 1
    unit.line_without_segment += span.line - 1 if unit.line_without_segment else 0
    return unit


def _undecodable(text: str) -> str:
    found = _UNDECODABLE.search(text)
    return f"not UTF-8 (found 0x{ord(found[0]) - 0xDC00:02X})" if found else ""


def _pieces(path: Path) -> Iterator[str]:
    """The text of a file; bytes that are not in its encoding become surrogates or, in UTF-16, U+FFFD."""
    with opened(path) as file:
        beginning = file.peek(_PIECE_BYTES)[:8192]
        found = foreign_kind(beginning)
        encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if beginning.startswith(mark)), None)
        if found and encoding != "utf-16":
            raise CorpusError(f"{path}: {'; '.join(found)}")
        declared = _DECLARED.search(beginning)
        encoding = encoding or (declared[1].decode("ascii") if declared else "utf-8")
        try:
            is_wide = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
            decoder = codecs.getincrementaldecoder(encoding)("replace" if is_wide else "surrogateescape")
        except LookupError as error:
            raise CorpusError(f"{path}, line 1: {error}; convert the file to UTF-8") from None
        try:
            while chunk := file.read(_PIECE_BYTES):
                yield decoder.decode(chunk)
            yield decoder.decode(b"", True)
        except UnicodeError as error:
            raise CorpusError(f"{path}, line 1: not {encoding}: {error}; correct the encoding in this line") from None


def _spans(pieces: Iterator[str]) -> Iterator[_Span]:
    """The units of a text and its damaged parts; comments are no units, and text between units is no damage."""
    scan = _Scan()
    for piece in pieces:
        scan.add(piece)
        yield from scan.spans(is_last=False)
    yield from scan.spans(is_last=True)
    yield from scan.end()


class _Scan:
    """State of the search for units in a text that comes in pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._begin = 0  # What is before is done.
        self._line = 1  # Of `_begin`.
        self._place = 0  # Where the search goes on.
        self._is_open = False  # Whether a unit begins at `_begin`.
        self._is_complete = False

    def add(self, piece: str) -> None:
        """Add text at the end, and forget what is done."""
        self._text = self._text[self._begin :] + piece
        self._place -= self._begin
        self._begin = 0

    def spans(self, is_last: bool) -> Iterator[_Span]:
        """The units and damaged parts that end in the text so far."""
        while mark := _MARK.search(self._text, self._place):
            if not is_last and mark.start() > len(self._text) - _LONGEST_MARK:
                break
            end = self._end_of(mark)
            if end is None and not is_last and len(self._text) - mark.start() <= LONGEST:
                break
            yield from self._spans_at(mark, mark.end() if end is None else end)
        else:
            if not self._is_open and not _CONTENT.search(self._text, self._begin):
                self._drop(max(self._begin, self._place, len(self._text) - _LONGEST_MARK))
        if len(self._text) - self._begin > LONGEST:
            yield self._taken(len(self._text), f"more than {LONGEST:,} characters without </tu>")
            self._is_open = False

    def _end_of(self, mark: re.Match[str]) -> int | None:
        """The place behind a comment, a CDATA section or the tag `<tu ...>`; None if its end is missing so far."""
        if mark[0] not in _ENDS:
            return mark.end()
        closing = _ENDS[mark[0]].search(self._text, mark.end())
        if closing is None:
            return None
        if closing[0] == "--":
            # A comment has no other `--`: this one has lost its end, and would swallow the units up to the next one.
            return closing.end() + 1 if self._text[closing.end()] == ">" else mark.end()
        return closing.end()

    def _spans_at(self, mark: re.Match[str], end: int) -> Iterator[_Span]:
        """The parts that a mark ends; `end` is the place behind it."""
        is_start, is_end = mark[0] == "<tu", mark[0].startswith("</tu")
        self._place = end
        self._is_complete |= mark[0].startswith("</tmx")
        if is_end:
            yield self._taken(end, "" if self._is_open else "its <tu> is missing")
            self._is_open = False
        elif is_start and self._is_open:
            yield self._taken(mark.start(), "its </tu> is missing")
        elif not self._is_open:
            if _CONTENT.search(self._text, self._begin, mark.start()):
                yield self._taken(mark.start(), "text outside of <tu>")
            self._drop(mark.start() if is_start else end)
        if is_start:
            self._is_open = self._text[end - 2 : end] != "/>"
            if not self._is_open:
                yield self._taken(end, "")

    def end(self) -> Iterator[_Span]:
        """The damaged part at the end of the text, if there is one."""
        if self._is_open or _CONTENT.search(self._text, self._begin):
            yield self._taken(len(self._text), "its </tu> is missing: the file seems to be cut off")
        elif not self._is_complete:
            yield self._taken(len(self._text), "the end of the file is missing: it seems to be cut off")

    def _taken(self, end: int, problem: str) -> _Span:
        """The text up to a place, which is done; the line of a damaged part without `<tu>` is that of its content."""
        first = None if self._is_open else _CONTENT.search(self._text, self._begin, end)
        line = self._line + (self._text.count("\n", self._begin, first.start()) if first else 0)
        span = _Span(line, self._text[self._begin : end], problem)
        self._drop(end)
        return span

    def _drop(self, end: int) -> None:
        self._line += self._text.count("\n", self._begin, end)
        self._begin, self._place = end, max(self._place, end)
