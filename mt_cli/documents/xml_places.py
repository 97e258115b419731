"""XML as a tree of elements with their places in the text, so that parts of it can be replaced.

Entities are never expanded: a document that declares or uses any but those of XML itself is refused. No other file is
read.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from mt_cli.translation.inline_tags import Piece, Tag

_DECLARED = re.compile(rb"\s*<\?xml[^>]*\bencoding\s*=\s*[\"']([\w.:-]+)")
_WIDE = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_TAG = re.compile(r"<(?:[^\"'<>]++|\"[^\"]*+\"|'[^']*+')*+>")
_ATTRIBUTE = re.compile(r"(?<!\s)\s++([^\s=\"'<>/]+)\s*=\s*(\"[^\"]*+\"|'[^']*+')")
_SECTION = re.compile(r"<!\[CDATA\[(.*?)\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_LINE_END = re.compile(r"\r\n?")
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_DEEPEST = 200


class XmlError(Exception):
    """XML is not well-formed, declares entities, or is too deep."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line:,}: {problem}")


@dataclass(slots=True, eq=False)
class Element:
    """An element, with its places in the text."""

    tag: str
    """Name with its prefix."""
    attributes: Mapping[str, str]
    line: int
    start: int
    """First character of the start tag."""
    inner: int
    """End of the start tag."""
    inner_end: int
    """First character of the end tag; for an empty-element tag its end."""
    end: int
    parent: Element | None = field(repr=False)
    children: list[Element] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.tag.rpartition(":")[2]

    def child(self, name: str) -> Element | None:
        return next((child for child in self.children if child.name == name), None)

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            yield from child.walk()

    def inherited(self, attribute: str) -> str | None:
        """Value of an attribute of this element or else of the nearest element around it; None without one."""
        element: Element | None = self
        while element is not None and attribute not in element.attributes:
            element = element.parent
        return None if element is None else element.attributes[attribute]


def declared_encoding(beginning: bytes) -> str | None:
    """Encoding that an XML declaration names, or that the first bytes show."""
    match = _DECLARED.match(beginning)
    return match[1].decode("ascii") if match else _WIDE.get(beginning[:2])


def parse_xml(content: str) -> Element:
    """Root element of a text; raises XmlError if it is damaged, declares entities, or is too deep."""
    data = content.encode("utf-8")
    tree = _Tree(content, data)
    try:
        tree.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise XmlError(error.lineno, f"not well-formed XML: {expat.errors.messages[error.code]}") from None
    return tree.root


class _Tree:
    """Handlers of the parser. The text is given to it as UTF-8, whatever the file declares."""

    def __init__(self, content: str, data: bytes) -> None:
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._refuse_declaration
        self.parser.SkippedEntityHandler = self._refuse_entity
        self.root: Element
        self._content, self._data = content, data
        self._is_ascii = len(content) == len(data)
        self._index = self._place = 0
        self._open: list[Element] = []

    def _current_place(self) -> int:
        """Place of the current event; events come in the order of their places."""
        index = self.parser.CurrentByteIndex
        if self._is_ascii:
            return index
        self._place += len(self._data[self._index : index].decode("utf-8"))
        self._index = index
        return self._place

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        start, line = self._current_place(), self.parser.CurrentLineNumber
        match = _TAG.match(self._content, start)
        if match is None or len(self._open) >= _DEEPEST:
            limit = f"elements within {_DEEPEST} others; nothing is read"
            raise XmlError(line, "a tag is damaged" if match is None else limit)
        parent = self._open[-1] if self._open else None
        element = Element(tag, attributes, line, start, match.end(), match.end(), match.end(), parent)
        if parent is None:
            self.root = element
        else:
            parent.children.append(element)
        self._open.append(element)

    def _end(self, tag: str) -> None:
        place, element = self._current_place(), self._open.pop()
        if self._content.startswith("</", place) and not self._content.startswith("/>", element.inner - 2):
            element.inner_end = place
            element.end = self._content.index(">", place) + 1

    def _refuse_declaration(self, name: str, *_: object) -> None:
        raise XmlError(self.parser.CurrentLineNumber, f"declares the entity {name!r:.60}; entities are not expanded")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        raise XmlError(self.parser.CurrentLineNumber, f"the entity {name!r:.60} is unknown; write the character")


def with_attributes(tag: str, attributes: Mapping[str, str]) -> str:
    """Start tag with other values of some attributes, which are added where there are none."""
    pieces, place, missing = [], 0, dict(attributes)
    for match in _ATTRIBUTE.finditer(tag):
        value = missing.pop(match[1], None)
        if value is not None:
            pieces += [tag[place : match.start(2)], f'"{escaped_value(value)}"']
            place = match.end(2)
    end = len(tag) - (2 if tag.endswith("/>") else 1)
    end -= len(tag[:end]) - len(tag[:end].rstrip())
    added = "".join(f' {name}="{escaped_value(value)}"' for name, value in missing.items())
    return "".join([*pieces, tag[place:end], added, tag[end:]])


def attributes_of(content: str, element: Element) -> Iterator[tuple[str, int, int]]:
    """Name of each attribute, and start and end of its value with the quotation marks."""
    return ((match[1], *match.span(2)) for match in _ATTRIBUTE.finditer(content, element.start, element.inner))


def allowed(text: str) -> str:
    """Text without the characters that XML cannot hold, which become U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


def escaped_value(value: str) -> str:
    return escaped(value).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")


def escaped(text: str, encoding: str = "utf-8", line_end: str = "\n") -> str:
    """Text as content of an element, with these line ends; characters that the encoding lacks become numbers."""
    text = allowed(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("\r", "&#13;").replace("\n", line_end)
    return text.encode(encoding, "xmlcharrefreplace").decode(encoding)


def unescaped(raw: str) -> str:
    """Text of a piece of content without tags and sections."""
    return html.unescape(_LINE_END.sub("\n", raw))


def sections_of(raw: str) -> Iterator[tuple[str, bool]]:
    """Pieces of content between tags, each as text or, for comments and instructions, as it is, and whether it is text.

    CDATA sections are text.
    """
    place = 0
    for match in _SECTION.finditer(raw):
        yield unescaped(raw[place : match.start()]), True
        if match[1] is None:
            yield match[0], False
        else:
            yield _LINE_END.sub("\n", match[1]), True
        place = match.end()
    yield unescaped(raw[place:]), True


def pieces_of(content: str, element: Element, is_code: Callable[[Element], bool]) -> Iterator[Piece]:
    """Text and tags within an element; `is_code` says which elements are kept whole."""
    place = element.inner
    for child in element.children:
        yield from _texts(content[place : child.start])
        if is_code(child) or child.inner == child.end:
            yield Tag(content[child.start : child.end], child.tag, place=child.start)
        else:
            yield Tag(content[child.start : child.inner], child.tag, "start")
            yield from pieces_of(content, child, is_code)
            yield Tag(content[child.inner_end : child.end], child.tag, "end")
        place = child.end
    yield from _texts(content[place : element.inner_end])


def _texts(raw: str) -> Iterator[Piece]:
    for piece, is_text in sections_of(raw):
        if piece:
            yield piece if is_text else Tag(piece, "")
