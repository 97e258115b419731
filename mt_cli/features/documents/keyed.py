"""Catalogues of keys and texts: `.json`, and `.strings` of Apple. Each value with letters is a unit; keys stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.features.documents.document import Document, DocumentError, Options, Unit, line_of, read_content
from mt_cli.features.documents.texts import is_translatable, split_margins, with_whole_surrogates

_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:")
_ASCII_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\u00([2-7][0-9a-fA-F])|\\(/))")
_ESCAPE_OR_CHARACTER = re.compile(r'(\\u....|\\.|")|(.)', re.DOTALL)
_OTHER_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")

_GAP = re.compile(r"(?:[\s\ufeff]|/\*.*?\*/|//[^\r\n]*+)*+", re.DOTALL)
_BARE = re.compile(r"[\w.$/:-]++")
_APPLE_ESCAPE = re.compile(r"\\(?:[uU]([0-9A-Fa-f]{4})|([0-7]{1,3})|(.))", re.DOTALL)
_APPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "b": "\b"}


def read_json(path: Path, options: Options) -> Document:
    """Texts of a JSON file, at any depth; raises DocumentError if it is not valid JSON."""
    content, encoding, mark = read_content(path)
    try:
        json.loads(content, parse_int=str, parse_float=str)
    except RecursionError:
        raise DocumentError(f"{path}: its objects and arrays are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}, line {error.lineno:,}, column {error.colno:,}: not JSON: {error.msg}") from None
    style = _JsonStyle.of(content)
    units: list[Unit] = []
    num_without_text = 0
    for match in _STRING.finditer(content):
        if _COLON.match(content, match.end()):
            continue
        before, text, after = split_margins(json.loads(match[0]))
        if is_translatable(text):
            units.append(Unit(*match.span(), (text,), _JsonWriter(match[0], text, (before, after), style)))
        else:
            num_without_text += 1
    return Document(content, units, encoding, mark, {"without_text": num_without_text})


@dataclass(frozen=True)
class _JsonStyle:
    """Way in which a JSON file writes characters."""

    is_ascii: bool
    """Whether it has escapes instead of all characters beyond ASCII."""
    escapes: Mapping[int, str]
    """Escapes of characters of ASCII that need none, such as `<` and `/`, if the file has them."""

    @classmethod
    def of(cls, content: str) -> _JsonStyle:
        """Style of a file. One without any character beyond ASCII gets those of the translation as they are."""
        escapes = {
            int(match[2], 16) if match[2] else ord(match[3]): match[1] for match in _ASCII_ESCAPE.finditer(content)
        }
        return cls(
            content.isascii() and bool(_OTHER_ESCAPE.search(content)),
            {code: escape for code, escape in escapes.items() if chr(code) not in '"\\' and not chr(code).isalnum()},
        )


@dataclass(frozen=True)
class _JsonWriter:
    """Writes a string of JSON."""

    part: str
    text: str
    margins: tuple[str, str]
    style: _JsonStyle

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the string; JSON cannot say that it needs a review."""
        if translations[0] == self.text:
            return self.part
        text = json.dumps(translations[0].join(self.margins), ensure_ascii=self.style.is_ascii)
        return _ESCAPE_OR_CHARACTER.sub(lambda match: match[1] or self.style.escapes.get(ord(match[2]), match[2]), text)


def read_strings(path: Path, options: Options) -> Document:
    """Values of a `.strings` file of Apple; raises DocumentError if it is binary, XML or damaged."""
    content, encoding, mark = read_content(path, _declared_encoding)
    kind = {"<?xml": "XML", "bplis": "binary form"}.get(content[:5])
    if kind:
        raise DocumentError(f'{path}: a property list in {kind}; write it as pairs such as "key" = "text"; first')
    units = []
    num_without_text = 0
    for match in _values(path, content):
        before, text, after = split_margins(_apple_text(match[1]))
        if is_translatable(text):
            has_lines = "\n" in match[1] and "\\n" not in match[1]
            units.append(Unit(*match.span(), (text,), _AppleWriter(match[0], text, (before, after), has_lines)))
        else:
            num_without_text += 1
    return Document(content, units, encoding, mark, {"without_text": num_without_text})


def _declared_encoding(content: bytes) -> str | None:
    """Encoding of content without a byte order mark: UTF-16 has zero bytes, and a binary property list is no text."""
    if content.startswith(b"bplist"):
        return "latin-1"
    return {b"\0": "utf-16-be"}.get(content[:1], {b"\0": "utf-16-le"}.get(content[1:2]))


def _values(path: Path, content: str) -> Iterator[re.Match[str]]:
    """Quoted values of the pairs of a file."""
    place = _after_gap(content, 0)
    while place < len(content):
        key = _STRING.match(content, place) or _BARE.match(content, place)
        place = _after_gap(content, key.end() if key else place)
        value = None
        if key and content[place : place + 1] == "=":
            value_place = _after_gap(content, place + 1)
            value = _STRING.match(content, value_place)
            place = _after_gap(content, value.end() if value else value_place)
        if key is None or content[place : place + 1] != ";":
            rest = content[place : place + 30]
            where = f"{path}, line {line_of(content, place):,}"
            raise DocumentError(f'{where}: not a pair such as "key" = "text"; at {rest!r}')
        if value:
            yield value
        place = _after_gap(content, place + 1)


def _after_gap(content: str, place: int) -> int:
    match = _GAP.match(content, place)
    return match.end() if match else place


def _apple_text(value: str) -> str:
    """Text of a value, without escapes."""

    def character(escape: re.Match[str]) -> str:
        hexadecimal, octal, other = escape.groups()
        if other:
            return _APPLE_ESCAPES.get(other, other)
        return chr(int(hexadecimal, 16) if hexadecimal else int(octal, 8))

    return with_whole_surrogates(_APPLE_ESCAPE.sub(character, value))


@dataclass(frozen=True)
class _AppleWriter:
    """Writes a value of a `.strings` file."""

    part: str
    text: str
    margins: tuple[str, str]
    has_lines: bool
    """Whether line ends in the value have no escape."""

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the value; such files cannot say that it needs a review."""
        if translations[0] == self.text:
            return self.part
        text = translations[0].join(self.margins).replace("\\", "\\\\").replace('"', '\\"')
        text = text.replace("\r", "\\r").replace("\t", "\\t")
        return f'"{text}"' if self.has_lines else '"{}"'.format(text.replace("\n", "\\n"))
