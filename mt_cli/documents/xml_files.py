"""XML documents: reading them with places, and writing what belongs around a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from mt_cli.corpus.languages import primary
from mt_cli.documents.document import DocumentError, line_end_of, read_content
from mt_cli.documents.xml_places import Element, XmlError, declared_encoding, escaped, sections_of
from mt_cli.translation.inline_tags import Piece, Tag

T = TypeVar("T")


def read_xml(path: Path, parse: Callable[[str], T]) -> tuple[str, str, bytes, T]:
    """Content of an XML file, its encoding and byte order mark, and what `parse` gives.

    Raises DocumentError if the file is not in its encoding, or `parse` raises XmlError.
    """
    content, encoding, mark = read_content(path, declared_encoding)
    try:
        return content, encoding, mark, parse(content)
    except XmlError as error:
        raise DocumentError(f"{path}, {error}") from None


def check_language(path: Path, line: int, name: str, code: str, language: str) -> None:
    """Raise DocumentError if a document is in another language than the model; unknown ones are not checked."""
    if code and language and primary(code) != primary(language):
        raise DocumentError(
            f"{path}, line {line:,}: its {name} is {code}, but the model has `{language}`; use another model, or "
            "correct the code if it is wrong"
        )


def escaper(content: str, encoding: str) -> Callable[[str], str]:
    """Function that writes text as XML of a document: in its encoding, and with its line ends."""
    return partial(_escaped, encoding=encoding, line_end=line_end_of(content))


def _escaped(text: str, encoding: str, line_end: str) -> str:
    return escaped(text, encoding).replace("\n", line_end)


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


def indentation(content: str, place: int) -> str:
    """White space before a place, from the last line end on."""
    start = place
    while start > 0 and content[start - 1].isspace():
        start -= 1
    space = content[start:place]
    last = space.rfind("\n")
    return space[last - (space[last - 1 : last] == "\r") :] if last >= 0 else space
