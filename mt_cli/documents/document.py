"""A document as bytes with units of text to translate. Knows no format and no translator."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mt_cli.documents.texts import one_line
from mt_cli.errors import InputError
from mt_cli.runtime.files import read_regular, reading
from mt_cli.translation.inline_marks import PLACEHOLDERS

MAX_BYTES = 2**25
"""Most bytes of text in a document. Reading takes up to 60 times as much memory."""
MAX_MARKS = 2**21
"""Most lines, tags and cells of a document. Reading takes about 1 to 2 KB of memory for each one."""
_LINE = re.compile(r"([^\r\n]*+)(?:\r\n|\n|\r|\Z)")
State = Literal["draft", "review", "final"]
"""Translation without a review, one in doubt, and one that needs no review."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class DocumentError(InputError):
    """A document is damaged, in another encoding than it declares, or in a form that is not read."""


@dataclass(frozen=True)
class Options:
    """Options for reading a document."""

    languages: tuple[str, str] = ("", "")
    """Source and target language of the model."""
    column: str | None = None
    """Column of a table, by name or, from 1, by number."""
    keys: tuple[str, ...] = ()
    """Patterns for the keys whose values are translated, of a file of keys and texts; empty for all that are text."""


@dataclass(frozen=True)
class Unit:
    """A part of a document whose text is translated."""

    start: int
    """First character of the part that is replaced, in `Document.content`."""
    end: int
    texts: tuple[str, ...]
    """Texts to translate, without escapes; several for plural forms."""
    write: Callable[..., str]
    """Content of the part, from translations that differ from the texts; with `has_states`, also from a `State`, and
    from translations that equal the texts."""
    is_translated: bool = False
    """True if the document has a translation already, which stays unless all units are asked for."""
    is_block: bool = False
    """True if each text is a paragraph, whose line ends are spaces and whose sentences are translated one by one."""
    has_states: bool = False
    """True if the format marks drafts."""


@dataclass(frozen=True)
class Document:
    """Content of a document, and its units in the order of their places, which do not overlap."""

    content: str
    units: Sequence[Unit]
    encoding: str = "utf-8"
    mark: bytes = b""
    """Byte order mark."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers for the summary."""
    marks: Sequence[str] = PLACEHOLDERS
    """Kinds of inline marks in its texts, besides tags; see `inline_marks`."""
    has_lines: bool = True
    """False if people do not see the lines of the content."""
    edits: Sequence[tuple[int, int, str]] = ()
    """Start, end and new content of parts that change if a text does, such as the language of a page."""
    wrap: Callable[[bytes], bytes] = bytes
    """File from the encoded content; for an archive, the archive with new parts."""

    def places(self) -> Iterator[str]:
        """Place of each unit, for messages: its line or, where nobody sees lines, its number and first words."""
        line, place = 1, 0
        for number, unit in enumerate(self.units, start=1):
            line += self.content.count("\n", place, unit.start)
            place = unit.start
            if self.has_lines:
                yield f"line {line:,}"
            else:
                words = " ".join(unit.texts[0].split()[:5])
                yield f"paragraph {number:,} ({words[:60]})"

    def written(
        self,
        translations: Mapping[int, Sequence[str]],
        for_review: Container[int] = (),
        final: Container[int] = (),
    ) -> bytes:
        """Bytes of the document with translations of some units, by their index.

        Those `for_review` are in doubt, those in `final` are no drafts, unless they are in doubt.

        Raises DocumentError if the encoding of the document lacks a character.
        """
        pieces, place, changes = [], 0, list[tuple[int, int, str]]()
        for index, texts in translations.items():
            unit = self.units[index]
            if unit.has_states or (*texts,) != unit.texts:
                state: State = "review" if index in for_review else "final" if index in final else "draft"
                lines = [*map(one_line, texts)] if unit.is_block else texts
                part = unit.write(lines, state) if unit.has_states else unit.write(lines)
                changes.append((unit.start, unit.end, part))
        is_changed = any(self.content[start:end] != part for start, end, part in changes)
        for start, end, part in sorted([*changes, *(self.edits if is_changed else ())]):
            pieces += [self.content[place:start], part]
            place = end
        text = "".join([*pieces, self.content[place:]])
        try:
            content = self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            lacking = error.object[error.start]
            raise DocumentError(f"its encoding {self.encoding} lacks {lacking!r}; convert it to UTF-8 first") from None
        return self.wrap(content)


def check_marks(path: Path, content: str, max_marks: int = MAX_MARKS) -> None:
    """Raise DocumentError if a document has so many lines, tags, cells or strings that reading it takes much memory."""
    number = sum(map(content.count, "\n\r<|")) + content.count('"') // 4
    if number > max_marks:
        raise DocumentError(
            f"{path}: has {number:,} lines, tags, cells and strings; divide it into documents of at most {max_marks:,}"
        )


def read_content(
    path: Path, declared: Callable[[bytes], str | None] = lambda content: None, max_marks: int = MAX_MARKS
) -> tuple[str, str, bytes]:
    """Content of a text file, its encoding and its byte order mark; `declared` finds an encoding in the content.

    Raises DocumentError if the file is too large, or is not in its encoding, which is UTF-8 unless it says otherwise.
    """
    with reading(path, DocumentError):
        content = read_regular(path, MAX_BYTES)
    mark, encoding = next((row for row in _MARKS if content.startswith(row[0])), (b"", None))
    encoding = encoding or declared(content[: 2**16]) or "utf-8"
    text = _decoded(path, content[len(mark) :], encoding)
    check_marks(path, text, max_marks)
    return text, encoding, mark


def _decoded(path: Path, content: bytes, encoding: str) -> str:
    try:
        text = content.decode(encoding)
        if text.encode(encoding) == content:
            return text
        raise DocumentError(f"{path}: would not come back the same in its encoding {encoding}; convert it to UTF-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        advice = "; save it as UTF-8" if encoding == "utf-8" else ""
        byte = f"0x{content[error.start]:02X}"
        raise DocumentError(f"{path}, line {line:,}: not {encoding} (found {byte}){advice}") from None
    except (LookupError, UnicodeError):
        raise DocumentError(f"{path}: its encoding {encoding!r} is unknown") from None


def line_end_of(content: str) -> str:
    """Line end of a document: that of its first line."""
    first = content.find("\n")
    return "\r\n" if first > 0 and content[first - 1] == "\r" else "\n"


def error_at(path: Path | str, content: str, place: int, problem: str) -> DocumentError:
    line = content.count("\n", 0, place) + 1
    return DocumentError(f"{path}, line {line:,}: {problem}")


def lines_with_places(content: str) -> Iterator[tuple[int, str]]:
    place = 0
    for line in content.split("\n"):
        yield place, line.removesuffix("\r")
        place += len(line) + 1


def any_lines_with_places(content: str) -> Iterator[tuple[int, str]]:
    """Start and text of each line, without its end, which may be a carriage return alone; none after the last end."""
    return ((match.start(), match[1]) for match in _LINE.finditer(content) if match.start() < len(content))
