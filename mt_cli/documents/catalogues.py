"""Gettext catalogues (`.po`, `.pot`): untranslated messages get a draft, marked fuzzy.

Comments, contexts and all other messages stay as they are. See the GNU gettext manual, "The Format of PO
Files".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from mt_cli.corpus.formats.gettext import CHARSET, messages_in
from mt_cli.documents.document import (
    Document,
    DocumentError,
    Options,
    State,
    Unit,
    line_end_of,
    lines_with_places,
    read_content,
)
from mt_cli.errors import CorpusError
from mt_cli.translation.inline_marks import INTERFACE, PLACEHOLDERS, QT

_WIDTH = 79
_NUM_PLURALS = re.compile(r"nplurals\s*=\s*(\d{1,2})")
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b"})
_PARTS = re.compile(r"\S*\s*")


def read_catalogue(path: Path, options: Options) -> Document:
    """Messages of a catalogue as units; raises DocumentError for a line that is none of a catalogue."""
    content, encoding, mark = read_content(path, _declared_charset)
    lines = list(lines_with_places(content))
    try:
        messages = list(messages_in((line for _, line in lines), str(path)))
    except CorpusError as error:
        raise DocumentError(str(error)) from None
    header = next((message.texts["msgstr"] for message in messages if message.is_header), "")
    number = _NUM_PLURALS.search(header)
    line_end, units = line_end_of(content), []
    for message in messages:
        if ("msgstr[0]" in message.texts) != ("msgid_plural" in message.texts):
            raise DocumentError(f"{path}, line {message.number:,}: this message has no plural or no plural form")
        for place in range(message.translation, message.end):
            if not (line := lines[place][1].strip()) or line.startswith("#"):  # It would be lost.
                raise DocumentError(f"{path}, line {place + 1:,}: inside of a translation: {line[:60]!r}")
        if message.is_header or not message.texts["msgid"].strip():
            continue
        texts = tuple(message.texts[keyword] for keyword in ("msgid", "msgid_plural") if keyword in message.texts)
        num_written = len(message.translations)
        num_plurals = ((number and int(number[1])) or num_written) if len(texts) > 1 else 0
        first = lines[(message.flags or message.previous or message.number) - 1][0]
        flags = first + len(lines[message.flags - 1][1]) if message.flags else first
        translation, last = lines[message.translation - 1][0], lines[message.end - 1]
        parts = content[first:flags], content[flags:translation]
        write = _Writer(*parts, message.is_fuzzy, num_plurals, message.translations, line_end)
        is_translated = all(message.translations) and num_written >= num_plurals
        units.append(Unit(first, last[0] + len(last[1]), texts, write, is_translated, has_states=True))
    return Document(content, units, encoding, mark, marks=(*PLACEHOLDERS, QT, INTERFACE))


@dataclass(frozen=True)
class _Writer:
    """Writes the part of a message from its flags to its translation."""

    flags: str
    """Line of flags, or empty."""
    between: str
    is_fuzzy: bool
    num_plurals: int
    written: Sequence[str]
    """Translations that the message has; the forms of a plural that are there stay."""
    line_end: str

    def __call__(self, translations: Sequence[str], state: State) -> str:
        marked = self.flags + ", fuzzy" * (not self.is_fuzzy) if self.flags else f"#, fuzzy{self.line_end}"
        before = (self.flags if state == "final" else marked) + self.between
        if not self.num_plurals:
            return before + self._keyword("msgstr", translations[0])
        forms = [translations[min(index, 1)] for index in range(self.num_plurals)]
        forms = forms if len(forms) > 1 else [translations[1]]
        if not all(self.written) or len(self.written) < len(forms):
            forms = [old or new for old, new in zip_longest(self.written, forms, fillvalue="")]
        lines = [self._keyword(f"msgstr[{index}]", form) for index, form in enumerate(forms)]
        return before + self.line_end.join(lines)

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
