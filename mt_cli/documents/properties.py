r"""Properties of Java (`.properties`): each value with letters is a unit; keys and comments stay.

See the documentation of `java.util.Properties.load`. Files are UTF-8 or, if they are not, ISO-8859-1, with `\uXXXX` for
other characters. A translation is on one line. A value with arguments, such as `{0}`, is a pattern of
`java.text.MessageFormat`, in which an apostrophe is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from mt_cli.documents.document import Document, DocumentError, Options, Unit, error_at, read_content
from mt_cli.documents.language import is_value
from mt_cli.translation.inline_marks import INTERFACE, PLACEHOLDERS

_LINE_END = r"(?:\r\n|\r|\n)"
_GAP = rf"(?:[ \t\f]|\\{_LINE_END})*+"
_NOTHING = re.compile(rf"(?:[ \t\f]*+(?:[#!][^\r\n]*+)?{_LINE_END})*+(?:[ \t\f]*+(?:[#!][^\r\n]*+)?\Z)?")
_PAIR = re.compile(
    rf"{_GAP}(?:[^\\=: \t\f\r\n]|\\(?:\r\n|[\s\S]|\Z))*+{_GAP}[=:]?{_GAP}((?:[^\\\r\n]|\\(?:\r\n|[\s\S]|\Z))*+)"
)
_ESCAPE = re.compile(rf"\\(?:u([0-9A-Fa-f]{{4}})|(u)|{_LINE_END}[ \t\f]*|([\s\S])|\Z)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {char: f"\\{name}" for name, char in _ESCAPES.items()} | {"\\": "\\\\"}
_ARGUMENT = re.compile(r"\{\d+[,}]")


def read_properties(path: Path, options: Options) -> Document:
    """Values of properties; raises DocumentError for a damaged escape."""
    try:
        content, encoding, mark = read_content(path)
    except DocumentError:
        content, encoding, mark = read_content(path, lambda content: "iso-8859-1")
    # Without any character beyond ASCII, a file gets escapes, which each version of Java reads.
    last = 0x7F if content.isascii() else 0xFF if encoding == "iso-8859-1" else 0x10FFFF
    units: list[Unit] = []
    for start, end in _values(content):
        try:
            text = _text(content[start:end])
        except ValueError as error:
            raise error_at(path, content, start, str(error)) from None
        is_pattern = bool(_ARGUMENT.search(text)) and "'" not in text.replace("''", "")
        text = text.replace("''", "'") if is_pattern else text
        if not is_value(text.strip(), ""):
            units.append(Unit(start, end, (text,), partial(_written, is_pattern=is_pattern, last=last)))
    return Document(content, units, encoding, mark, marks=(*PLACEHOLDERS, INTERFACE))


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

    halves = _ESCAPE.sub(character, value).encode("utf-16", "surrogatepass")  # Of escaped surrogate pairs.
    return halves.decode("utf-16", "surrogatepass")


def _written(texts: Sequence[str], is_pattern: bool, last: int) -> str:
    """Content of a value, on one line; characters after `last` are written as escapes."""
    text = texts[0].replace("'", "''") if is_pattern else texts[0]
    escaped = "".join(_escape(char, last) for char in text)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape(char: str, last: int) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if char == "\0" or 0x7F <= ord(char) < 0xA0 or ord(char) > last:
        units = char.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[place : place + 2].hex().upper()}" for place in range(0, len(units), 2))
    return char
