"""Elements of an XML file while it is read, each with the line where it begins.

Entities are never expanded: a file that declares any is refused. No other file is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from mt_cli.corpus.lines import opened
from mt_cli.errors import CorpusError

_PIECE_BYTES = 1 << 15
"""With larger pieces, elements outlive collections of garbage, and reading takes 1.5 times as long."""


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
    return _Parser(path, names).read()


def watch_elements(path: Path, on_start: Callable[[str, Mapping[str, str]], object]) -> None:
    """Call `on_start` with the tag, as `namespace}name`, and the attributes of each element.

    Raises CorpusError as `elements` does.
    """
    for _ in _Parser(path, (), on_start).read():
        pass


class _Parser:
    """Parser that builds only the elements with some names, by the handlers of a `TreeBuilder`."""

    def __init__(self, path: Path, names: Collection[str], on_start: Callable[..., object] | None = None) -> None:
        self._path, self._names = path, names
        self._expat = expat.ParserCreate(None, "}")
        self._expat.buffer_text = True
        self._expat.StartElementHandler = on_start or self._start
        self._expat.EndElementHandler = None if on_start else self._end
        self._expat.EntityDeclHandler = self._expat.SkippedEntityHandler = self._refuse_entity
        self._parents, self._found = list[Element](), list[Found]()
        self._line, self._tag, self._builder = 0, "", TreeBuilder()

    def read(self) -> Iterator[Found]:
        with opened(self._path) as file:
            while piece := file.read(_PIECE_BYTES):
                yield from self._parsed(piece, False)
        yield from self._parsed(b"", True)

    def _parsed(self, piece: bytes, is_last: bool) -> list[Found]:
        self._found = []
        try:
            self._expat.Parse(piece, is_last)
        except (expat.ExpatError, LookupError, ValueError) as error:  # Of an encoding that `expat` does not know.
            line = self._expat.ErrorLineNumber
            raise CorpusError(f"{self._path}, line {line:,}: not XML in the encoding that it names: {error}") from None
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
