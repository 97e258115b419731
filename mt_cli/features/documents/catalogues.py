"""Gettext catalogues (`.po`, `.pot`): untranslated messages get a draft, marked fuzzy.

Comments, contexts and all other messages stay as they are. See the GNU gettext manual, "The Format of PO
Files".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mt_cli.corpus.gettext import CHARSET, LINE, unescaped
from mt_cli.errors import CorpusError
from mt_cli.features.documents.document import (
    Document,
    DocumentError,
    Options,
    Unit,
    line_end_of,
    line_of,
    lines_with_places,
    read_content,
)

_WIDTH = 79
_NUM_PLURALS = re.compile(r"nplurals\s*=\s*(\d{1,2})")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b"})
_PARTS = re.compile(r"\S*\s*")


@dataclass
class _Entry:
    """A message, with the places of its lines."""

    flags: tuple[int, int] | None = None
    """Start and end of the line of flags, such as `#, c-format`."""
    previous: int | None = None
    """Start of the first line of the previous message (`#|`)."""
    first: int = -1
    """Start of the first keyword."""
    translation: int = -1
    """Start of the first `msgstr`."""
    end: int = -1
    """End of the last line."""
    texts: dict[str, str] = field(default_factory=dict)
    """Text of each keyword."""


def read_catalogue(path: Path, options: Options) -> Document:
    """Messages of a catalogue as units; raises DocumentError for a line that is none of a catalogue."""
    content, encoding, mark = read_content(path, _declared_charset)
    entries = list(_entries(path, content))
    header = next((entry.texts["msgstr"] for entry in entries if _is_header(entry)), "")
    number = _NUM_PLURALS.search(header)
    line_end, units = line_end_of(content), []
    for entry in entries:
        if _is_header(entry) or not entry.texts["msgid"].strip():
            continue
        plurals = sorted(name for name in entry.texts if name.startswith("msgstr["))
        num_plurals = (int(number[1]) if number else len(plurals)) if plurals else 0
        texts = (entry.texts["msgid"], *([entry.texts["msgid_plural"]] if plurals else ()))
        is_translated = all(text for name, text in entry.texts.items() if name.startswith("msgstr"))
        start = entry.flags[0] if entry.flags else entry.first if entry.previous is None else entry.previous
        write = _Writer(content, start, entry, num_plurals, line_end)
        units.append(Unit(start, entry.end, texts, write, is_translated))
    return Document(content, units, encoding, mark)


@dataclass(frozen=True)
class _Writer:
    """Writes the part of a message from its flags to its translation."""

    content: str
    start: int
    entry: _Entry
    num_plurals: int
    line_end: str

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the part; a draft is always fuzzy."""
        place, flags = self.start, f"#, fuzzy{self.line_end}"
        if self.entry.flags:
            start, place = self.entry.flags
            line = self.content[start:place]
            flags = line if "fuzzy" in re.split(r"[,\s]+", line) else f"{line}, fuzzy"
        between = self.content[place : self.entry.translation]
        if not self.num_plurals:
            return flags + between + self._keyword("msgstr", translations[0])
        forms = [translations[min(index, 1)] for index in range(self.num_plurals)]
        forms = forms if len(forms) > 1 else [translations[1]]
        lines = [self._keyword(f"msgstr[{index}]", form) for index, form in enumerate(forms)]
        return flags + between + self.line_end.join(lines)

    def _keyword(self, name: str, text: str) -> str:
        """A keyword with its text, on one line if it fits and has no line end inside."""
        escaped = text.translate(_ESCAPES)
        if "\n" not in text[:-1] and len(name) + len(escaped) + 3 <= _WIDTH:
            return f'{name} "{escaped}"'
        lines = [line for part in text.splitlines(keepends=True) for line in _wrapped(part)]
        return self.line_end.join([f'{name} ""', *(f'"{line}"' for line in lines)])


def _wrapped(text: str) -> Iterator[str]:
    """Escaped pieces of a text that fit into lines, broken after spaces."""
    line = ""
    for part in _PARTS.findall(text):
        escaped = part.translate(_ESCAPES)
        if line and len(line) + len(escaped) + 2 > _WIDTH:
            yield line
            line = ""
        line += escaped
    if line:
        yield line


def _declared_charset(content: bytes) -> str | None:
    match = CHARSET.search(content)
    return None if match is None or match[1] == b"CHARSET" else match[1].decode("ascii", "replace")


def _is_header(entry: _Entry) -> bool:
    return entry.texts["msgid"] == "" and "msgctxt" not in entry.texts


def _entries(path: Path, content: str) -> Iterator[_Entry]:
    """Messages of a catalogue, without obsolete ones."""
    entry, keyword = _Entry(), ""
    raw: dict[str, str] = {}
    for place, line in lines_with_places(content):
        stripped, where = line.strip(), f"{path}, line {line_of(content, place):,}"
        if stripped and not stripped.startswith("#"):
            match = LINE.fullmatch(stripped)
            if match is None or not (match[1] or keyword):
                raise DocumentError(f"{where}: not a line of a gettext catalogue: {stripped[:60]!r}")
            keyword = match[1] or keyword
            if match[1] in ("msgctxt", "msgid") and entry.translation >= 0:
                yield _completed(path, content, entry, raw)
                entry, raw = _Entry(), {}
            if match[1] in raw:
                raise DocumentError(f"{where}: a second {match[1]} in one message")
            raw[keyword] = raw.get(keyword, "") + match[2]
            entry.first = place if entry.first < 0 else entry.first
            if keyword.startswith("msgstr") and entry.translation < 0:
                entry.translation = place
            entry.end = place + len(line)
            continue
        if entry.translation >= 0:
            yield _completed(path, content, entry, raw)
            entry, raw, keyword = _Entry(), {}, ""
        if stripped.startswith("#~"):
            entry = _Entry()
        elif stripped.startswith("#,"):
            entry.flags = place, place + len(line)
        elif stripped.startswith("#|") and entry.previous is None:
            entry.previous = place
    if entry.first >= 0:
        yield _completed(path, content, entry, raw)


def _completed(path: Path, content: str, entry: _Entry, raw: dict[str, str]) -> _Entry:
    where = f"{path}, line {line_of(content, entry.first):,}"
    missing = [name for name in ("msgid", "msgstr") if not any(key.startswith(name) for key in raw)]
    if missing or ("msgstr[0]" in raw) != ("msgid_plural" in raw):
        raise DocumentError(f"{where}: this message has no {missing[0] if missing else 'plural or no plural form'}")
    try:
        entry.texts = {name: unescaped(text, where).decode("utf-8") for name, text in raw.items()}
    except (CorpusError, UnicodeDecodeError) as error:
        raise DocumentError(str(error)) from None
    return entry
