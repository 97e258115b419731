r"""Properties of Java (`.properties`): each value with letters is a unit; keys and comments stay.

See the documentation of `java.util.Properties.load`. Files are UTF-8 or, if they are not, ISO-8859-1, with `\uXXXX` for
other characters. A value with arguments, such as `{0}`, is a pattern of `java.text.MessageFormat`, in which an
apostrophe is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mt_cli.documents.document import Document, DocumentError, Options, Unit, error_at, line_end_of, read_content
from mt_cli.documents.texts import display_width, with_whole_surrogates

_LINE_END = r"(?:\r\n|\r|\n)"
_GAP = rf"(?:[ \t\f]|\\{_LINE_END})*+"
_NOTHING = re.compile(rf"(?:[ \t\f]*+(?:[#!][^\r\n]*+)?{_LINE_END})*+(?:[ \t\f]*+(?:[#!][^\r\n]*+)?\Z)?")
_PAIR = re.compile(
    rf"{_GAP}(?:[^\\=: \t\f\r\n]|\\(?:\r\n|[\s\S]|\Z))*+{_GAP}[=:]?{_GAP}((?:[^\\\r\n]|\\(?:\r\n|[\s\S]|\Z))*+)"
)
_CONTINUATION = re.compile(rf"\\{_LINE_END}([ \t\f]*)")
_ESCAPE = re.compile(rf"\\(?:u([0-9A-Fa-f]{{4}})|(u)|{_LINE_END}[ \t\f]*|([\s\S])|\Z)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {char: f"\\{name}" for name, char in _ESCAPES.items()} | {"\\": "\\\\"}
_ARGUMENT = re.compile(r"\{\d+[,}]")
_PARTS = re.compile(r"[^ \n]*(?:\n|[ ]*)")


def read_properties(path: Path, options: Options) -> Document:
    """Values of properties; raises DocumentError for a damaged escape or a binary file."""
    try:
        content, encoding, mark = read_content(path)
    except DocumentError:
        content, encoding, mark = read_content(path, lambda content: "iso-8859-1")
    if "\0" in content:
        raise error_at(path, content, content.index("\0"), "a zero byte; these are no properties")
    style = _Style.of(content, encoding)
    units: list[Unit] = []
    for start, end in _values(content):
        part = content[start:end]
        try:
            text = _text(part)
        except ValueError as error:
            raise error_at(path, content, start, str(error)) from None
        is_pattern = bool(_ARGUMENT.search(text)) and "'" not in text.replace("''", "")
        text = text.replace("''", "'") if is_pattern else text
        units.append(Unit(start, end, (text,), partial(_written, part=part, is_pattern=is_pattern, style=style)))
    return Document.of(content, units, encoding, mark)


def _values(content: str) -> Iterator[tuple[int, int]]:
    """Start and end of each value, with its continuation lines."""
    place = 0
    while True:
        match = _NOTHING.match(content, place)
        place = match.end() if match else place
        pair = _PAIR.match(content, place)
        if place >= len(content) or pair is None:
            return
        if pair[1]:
            yield pair.span(1)
        place = pair.end()


def _text(value: str) -> str:
    """Text of a value, without escapes and continuation lines; raises ValueError for a damaged escape."""

    def character(escape: re.Match[str]) -> str:
        hexadecimal, is_damaged, other = escape.groups()
        if is_damaged:
            raise ValueError("the escape \\u needs four hexadecimal digits")
        return chr(int(hexadecimal, 16)) if hexadecimal else _ESCAPES.get(other, other) if other else ""

    return with_whole_surrogates(_ESCAPE.sub(character, value))


@dataclass(frozen=True)
class _Style:
    """Way in which a file writes characters."""

    last: int
    """Last character that needs no escape."""
    special: frozenset[str]
    """Characters that have a meaning in keys only and are escaped in values, too."""
    line_end: str

    @classmethod
    def of(cls, content: str, encoding: str) -> _Style:
        """Style of a file; one without any character beyond ASCII gets escapes, which each version of Java reads."""
        last = 0x7F if content.isascii() else 0xFF if encoding == "iso-8859-1" else 0x10FFFF
        return cls(last, frozenset(char for char in "=:#!" if f"\\{char}" in content), line_end_of(content))

    def escaped(self, text: str) -> str:
        """Text with escapes."""
        return "".join(map(self._escape, text))

    def _escape(self, char: str) -> str:
        if char in _WRITTEN:
            return _WRITTEN[char]
        if char in self.special:
            return f"\\{char}"
        if char == "\0" or 0x7F <= ord(char) < 0xA0 or ord(char) > self.last:
            units = char.encode("utf-16-be", "surrogatepass")
            return "".join(f"\\u{units[place : place + 2].hex().upper()}" for place in range(0, len(units), 2))
        return char


def _written(texts: Sequence[str], part: str, is_pattern: bool, style: _Style) -> str:
    """Content of a value, on several lines if it had several (`part`)."""
    text = texts[0].replace("'", "''") if is_pattern else texts[0]
    pieces = [style.escaped(piece) for piece in _PARTS.findall(text)]
    continuation = _CONTINUATION.search(part)
    width = max(display_width(line.rstrip(" ")) for line in _CONTINUATION.sub("\n", part).split("\n"))
    lines = list(_lines(pieces, width)) if continuation else ["".join(pieces)]
    lines = [f"\\{line}" if line.startswith(" ") else line for line in lines]
    indentation = continuation[1] if continuation else ""
    return f"\\{style.line_end}{indentation}".join(lines)


def _lines(pieces: Sequence[str], width: int) -> Iterator[str]:
    """Lines of pieces of at most this width if they allow it; a line end in the text ends a line, too."""
    line = ""
    for piece in pieces:
        if line and (display_width(line + piece.rstrip(" ")) > width or line.endswith("\\n")):
            yield line
            line = ""
        line += piece
    yield line
