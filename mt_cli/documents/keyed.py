"""Catalogues of keys and texts (`.json`, `.arb`): each value that is language is a unit; keys stay.

Of the messages of browser extensions, `message` alone is translated, and below keys with `@`, as in ARB, nothing is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from mt_cli.documents.document import Document, DocumentError, Options, Unit, read_content
from mt_cli.documents.language import is_value
from mt_cli.translation.inline_marks import CATALOGUE, INTERFACE, PLACEHOLDERS

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(r"[ \t\r\n]*:")
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[0-7])")


def read_json(path: Path, options: Options) -> Document:
    """Texts of a JSON file, at any depth; raises DocumentError if it is not valid JSON."""
    content, encoding, mark = read_content(path)
    try:
        data = json.loads(content, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{path}, line {error.lineno:,}, column {error.colno:,}: not JSON: {error.msg}") from None
    is_ascii = content.isascii() and bool(_ESCAPE.search(content))
    messages = data.values() if isinstance(data, dict) else ()
    is_extension = bool(messages) and all(isinstance(value, dict) and "message" in value for value in messages)
    units: list[Unit] = []

    def written(texts: Sequence[str]) -> str:
        return json.dumps(texts[0], ensure_ascii=is_ascii)

    for match, keys in _values(content):
        text = json.loads(match[0])
        is_of_people = keys[1:] == ["message"] if is_extension else not any(key.startswith("@") for key in keys)
        is_text = is_of_people and not is_value(text.strip(), keys[-1] if keys else "")
        if _is_chosen(keys, options.keys) if options.keys else is_text:
            units.append(Unit(*match.span(), (text,), written))
    document = Document(content, units, encoding, mark, marks=(CATALOGUE, *PLACEHOLDERS, INTERFACE))
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


def _is_chosen(keys: Sequence[str], patterns: Sequence[str]) -> bool:
    """True if the last key, or all keys with dots between them, match a pattern such as `title` or `menu.*.label`."""
    names = {keys[-1], ".".join(keys)} if keys else set()
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
