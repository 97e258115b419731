"""Elements of an XML file while it is read, each with the line where it begins.

Entities are never expanded: a file that declares any is refused. No other file is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from mt_cli.corpus.lines import opened, other_kind
from mt_cli.errors import CorpusError

_DECLARED = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_MARKS |= {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_PIECE = 1 << 16


class Found(NamedTuple):
    """A complete element; no tag in it has a namespace."""

    line: int
    element: Element
    parents: Sequence[Element]
    """Elements around it from the root on, with their attributes and without their content."""


def elements(path: Path, names: Collection[str]) -> Iterator[Found]:
    """Elements with these names, which do not contain each other.

    Raises CorpusError, with the line, if the file is not well-formed XML in its encoding.
    """
    parser = _Parser(path, names)
    for piece in text_of(path):
        yield from parser.parsed(piece, False)
    yield from parser.parsed("", True)


class _Parser:
    """Parser that builds only the elements with some names, by the handlers of a `TreeBuilder`."""

    def __init__(self, path: Path, names: Collection[str]) -> None:
        self._path, self._names = path, names
        self._expat = expat.ParserCreate("utf-8", "}")
        self._expat.buffer_text = True
        self._expat.StartElementHandler, self._expat.EndElementHandler = self._start, self._end
        self._expat.EntityDeclHandler = self._expat.SkippedEntityHandler = self._refuse_entity
        self._parents, self._found = list[Element](), list[Found]()
        self._line, self._tag, self._builder = 0, "", TreeBuilder()

    def parsed(self, piece: str, is_last: bool) -> list[Found]:
        self._found, line = [], self._expat.CurrentLineNumber
        try:
            self._expat.Parse(piece, is_last)
        except expat.ExpatError as error:
            problem = f"not well-formed XML: {expat.errors.messages[error.code]}"
            raise CorpusError(f"{self._path}, line {error.lineno:,}: {problem}") from None
        except UnicodeEncodeError as error:
            line += piece.count("\n", 0, error.start)
            problem = "a character is not in the encoding of the file (UTF-8, if none is declared)"
            raise CorpusError(f"{self._path}, line {line:,}: {problem}") from None
        return self._found

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition("}")[2]
        if name not in self._names:
            self._parents.append(Element(name, attributes))
            return
        self._line, self._tag, self._builder = self._expat.CurrentLineNumber, tag, TreeBuilder()
        self._builder.start(tag, attributes)
        self._expat.StartElementHandler, self._expat.EndElementHandler = self._builder.start, self._end_within
        self._expat.CharacterDataHandler = self._builder.data

    def _end(self, tag: str) -> None:
        self._parents.pop()

    def _end_within(self, tag: str) -> None:
        self._builder.end(tag)
        if tag != self._tag:
            return
        element = self._builder.close()
        if "}" in tag:
            for child in element.iter():
                child.tag = child.tag.rpartition("}")[2]
        self._found.append(Found(self._line, element, tuple(self._parents)))
        self._expat.StartElementHandler, self._expat.EndElementHandler = self._start, self._end
        self._expat.CharacterDataHandler = None

    def _refuse_entity(self, name: str, *_: object) -> None:
        line = self._expat.CurrentLineNumber
        raise CorpusError(f"{self._path}, line {line:,}: the entity &{name}; is not one of XML; write its text instead")


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
