"""Catalogues of keys and texts (`.json`, `.arb`): each value that is language is a unit; keys stay.

Of the messages of browser extensions, `message` alone is translated, and below keys with `@`, as in ARB, nothing is. A
value with ` | ` between forms of a plural, as in Vue, has several texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from mt_cli.documents.document import Document, DocumentError, Options, Unit, read_content
from mt_cli.documents.language import is_value
from mt_cli.translation.inline_marks import CATALOGUE, PLACEHOLDERS

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_FORMS = " | "
"""Sign between forms of a plural in a value."""
_COLON = re.compile(r"[ \t\r\n]*:")
_ASCII_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\u00([2-7][0-9a-fA-F])|\\(/))")
_ESCAPE_OR_CHARACTER = re.compile(r'(\\u....|\\.|")|(.)', re.DOTALL)
_OTHER_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")


def read_json(path: Path, options: Options) -> Document:
    """Texts of a JSON file, at any depth; raises DocumentError if it is not valid JSON."""
    content, encoding, mark = read_content(path)
    try:
        data = json.loads(content, parse_int=str, parse_float=str)
    except RecursionError:
        raise DocumentError(f"{path}: its objects and arrays are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}, line {error.lineno:,}, column {error.colno:,}: not JSON: {error.msg}") from None
    style = _JsonStyle.of(content)
    is_extension = isinstance(data, dict) and bool(data) and all(map(_is_message_of_extension, data.values()))
    units: list[Unit] = []
    for match, keys in _values(content):
        text = json.loads(match[0])
        is_text = _is_of_people(keys, is_extension) and not is_value(text.strip(), keys[-1] if keys else "")
        if _is_chosen(keys, options.keys) if options.keys else is_text:
            texts = tuple(text.split(_FORMS)) if all(map(str.strip, text.split(_FORMS))) else (text,)
            units.append(Unit(*match.span(), texts, partial(_written, style=style)))
    document = Document.of(content, units, encoding, mark, marks=(CATALOGUE, *PLACEHOLDERS))
    if options.keys and not document.units:
        raise DocumentError(f"{path}: has no text with keys such as {', '.join(options.keys)}")
    return document


def _values(content: str) -> Iterator[tuple[re.Match[str], Sequence[str]]]:
    """Each string that is a value, with the keys of the objects that it is in; arrays have none."""
    keys: list[str] = []
    for match in _TOKEN.finditer(content):
        if match[0] in "{[":
            keys.append("")
        elif match[0] in "}]":
            keys.pop()
        elif _COLON.match(content, match.end()):
            keys[-1] = json.loads(match[0])
        else:
            yield match, [key for key in keys if key]


def _is_message_of_extension(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("message"), str)


def _is_of_people(keys: Sequence[str], is_extension: bool) -> bool:
    """True if values with these keys are shown to people, and not notes for programs and developers."""
    return keys[1:] == ["message"] if is_extension else not any(key.startswith("@") for key in keys)


def _is_chosen(keys: Sequence[str], patterns: Sequence[str]) -> bool:
    """True if the last key, or all keys with dots between them, match a pattern such as `title` or `menu.*.label`."""
    names = {keys[-1], ".".join(keys)} if keys else set()
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


@dataclass(frozen=True)
class _JsonStyle:
    """Way in which a JSON file writes characters."""

    is_ascii: bool
    """Whether it has escapes instead of all characters beyond ASCII."""
    escapes: Mapping[str, str]
    """Escapes of characters of ASCII that need none, such as `<` and `/`, if the file has them."""

    @classmethod
    def of(cls, content: str) -> _JsonStyle:
        """Style of a file. One without any character beyond ASCII gets those of the translation as they are."""
        matches = _ASCII_ESCAPE.finditer(content)
        escapes = {chr(int(match[2], 16)) if match[2] else match[3]: match[1] for match in matches}
        needed = {char: escape for char, escape in escapes.items() if char not in '"\\' and not char.isalnum()}
        return cls(content.isascii() and bool(_OTHER_ESCAPE.search(content)), needed)


def _written(texts: Sequence[str], style: _JsonStyle) -> str:
    """String of JSON."""
    text = json.dumps(_FORMS.join(texts), ensure_ascii=style.is_ascii)
    return _ESCAPE_OR_CHARACTER.sub(lambda match: match[1] or style.escapes.get(match[2], match[2]), text)
