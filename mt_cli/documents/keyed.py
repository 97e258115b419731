"""Catalogues of keys and texts (`.json`): each value with letters is a unit; keys stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.documents.document import Document, DocumentError, Options, Unit, read_content
from mt_cli.documents.texts import is_translatable, split_margins

_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:")
_ASCII_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\u00([2-7][0-9a-fA-F])|\\(/))")
_ESCAPE_OR_CHARACTER = re.compile(r'(\\u....|\\.|")|(.)', re.DOTALL)
_OTHER_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")


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
