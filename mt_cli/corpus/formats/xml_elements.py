"""Elements of an XML file while it is read, each with the line where it begins.

Entities are never expanded: a file that declares any is refused. No other file is read.
"""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from mt_cli.corpus.lines import opened, other_kind
from mt_cli.errors import CorpusError

_DECLARED = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_MARKS |= {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_ENTITY = "<!ENTITY"
_PIECE = 1 << 16


class Found(NamedTuple):
    """A complete element; no tag in it has a namespace."""

    line: int
    element: Element
    parents: Sequence[Element]
    """Elements around it from the root on, with their attributes; complete children are removed from them."""


def elements(path: Path, names: Collection[str]) -> Iterator[Found]:
    """Elements with these names, which do not contain each other.

    Raises CorpusError, with the line, if the file is not well-formed XML in its encoding.
    """
    parser: Any = XMLPullParser(("start", "end"))
    parents, starts, start = list[Element](), deque[int](), 0
    tags = re.compile(rf"<(?:[\w.-]+:)?(?:{'|'.join(names)})(?=[\s/>])")
    for line, events in _parsed(parser, path, tags, starts, parents):
        for event, element in events:
            if event == "start":
                if element.tag[0] == "{":
                    element.tag = element.tag.rpartition("}")[2]
                parents.append(element)
                if element.tag in names:
                    start = starts.popleft() if starts else line
                continue
            parents.pop()
            if element.tag in names:
                yield Found(start, element, parents)
                start = 0
            if not start and parents:
                del parents[-1][:]
    try:
        parser.close()
    except ParseError as error:
        raise _damaged(path, error) from None


def _parsed(
    parser: Any, path: Path, tags: re.Pattern[str], starts: deque[int], parents: Sequence[Element]
) -> Iterator[tuple[int, Sequence[tuple[str, Element]]]]:
    """First line and events of each piece of a file; `starts` gets the lines of start tags.

    The parser does not tell lines. After a tag in a comment, the lines in the rest of the piece may be too small.
    """
    line, before = 1, ""
    for piece in text_of(path):
        text, place, number = before + piece, len(before), line
        for match in tags.finditer(piece):
            number += piece.count("\n", place - len(before), match.start())
            place = match.start() + len(before)
            starts.append(number)
        if not parents and _ENTITY in text:
            raise CorpusError(f"{path}, line {line:,}: declares an entity; write its text where it is used")
        try:
            parser.feed(piece)
            events = list(parser.read_events())
        except ParseError as error:
            raise _damaged(path, error) from None
        except UnicodeEncodeError as error:
            problem = "a character is not in the encoding of the file (UTF-8, if none is declared)"
            raise CorpusError(f"{path}, line {line + piece.count(chr(10), 0, error.start):,}: {problem}") from None
        yield line, events
        if ">" in text[place:]:
            starts.clear()
        line += piece.count("\n")
        before = piece[-len(_ENTITY) :]


def _damaged(path: Path, error: ParseError) -> CorpusError:
    problem = str(error).rpartition(": line")[0]
    return CorpusError(f"{path}, line {error.position[0]:,}: not well-formed XML: {problem}")


def text_of(path: Path) -> Iterator[str]:
    """Text of an XML file in pieces; bytes that are not in its encoding become surrogates or, in UTF-16, U+FFFD."""
    with opened(path) as file:
        prefix = file.peek(1)[:8192]
        encoding = next((name for mark, name in _MARKS.items() if prefix.startswith(mark)), None)
        if encoding is None and (problem := other_kind(prefix)):
            raise CorpusError(f"{path}: {problem}")
        declared = _DECLARED.search(prefix)
        encoding = encoding or (declared[1].decode("ascii") if declared else "utf-8")
        is_wide = re.match("utf[-_]?(16|32)", encoding, re.IGNORECASE)
        try:
            text = io.TextIOWrapper(file, encoding, "replace" if is_wide else "surrogateescape")
            while piece := text.read(_PIECE):
                yield piece
        except (LookupError, UnicodeError) as error:
            advice = "correct the encoding in this line, or convert the file to UTF-8"
            raise CorpusError(f"{path}, line 1: not {encoding}: {error}; {advice}") from None
