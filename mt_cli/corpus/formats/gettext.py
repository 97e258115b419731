"""Reader of gettext catalogues (`.po`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.languages import is_common, parsed
from mt_cli.corpus.lines import CHUNK_BYTES, not_utf8, opened, read_lines
from mt_cli.corpus.rows import Names, Row
from mt_cli.errors import CorpusError

_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_LINE = re.compile(rf"(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?((?:{_STRING.pattern}\s*)++)")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]+)|(.))")
_ESCAPED = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
CHARSET = re.compile(rb'"Content-Type:[^"\n]*charset=([^\s"\\;]+)', re.IGNORECASE)
_LANGUAGE = re.compile(rb'"Language:\s*([\w.@-]+)\s*\\n"', re.ASCII)


@dataclass
class Message:
    """A message of a catalogue, with the numbers of its lines, from 1."""

    number: int
    """Line of the first keyword."""
    flags: int | None
    """Line of flags, such as `#, c-format`."""
    previous: int | None
    """First line of the previous text (`#|`)."""
    is_fuzzy: bool
    translation: int = 0
    """Line of the first `msgstr`."""
    end: int = 0
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def is_header(self) -> bool:
        return self.texts["msgid"] == "" and "msgctxt" not in self.texts

    @property
    def translations(self) -> list[str]:
        """Text of each `msgstr`, in the order of the forms of a plural."""
        forms = [keyword for keyword in self.texts if keyword.startswith("msgstr")]
        return [self.texts[keyword] for keyword in sorted(forms, key=lambda keyword: (len(keyword), keyword))]


def messages_in(lines: Iterable[str], name: str) -> Iterator[Message]:
    """Messages of the lines of a catalogue, without obsolete ones.

    Raises CorpusError, whose message begins with `name`, for a line that is none of a catalogue.
    """
    message: Message | None = None
    raw, keyword = dict[str, bytes](), ""
    comments = _Comments()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            comments = _Comments() if line.startswith("#~") else comments.with_line(line, number)
            continue
        where = f"{name}, line {number:,}"
        match = _LINE.fullmatch(line)
        if match is None or not (match[1] or keyword):
            raise CorpusError(f"{where}: not a line of a gettext catalogue: {line[:60]!r}")
        keyword = match[1] or keyword
        if message is None or (match[1] in ("msgctxt", "msgid") and message.translation):
            if message is not None:
                yield _completed(message, raw, name)
            message, raw, comments = Message(number, *comments), {}, _Comments()
        if match[1] in raw:
            raise CorpusError(f"{where}: a second {match[1]} in the message of line {message.number:,}")
        strings = (_unescaped(string, where) for string in _STRING.findall(match[2]))
        raw[keyword] = b"".join([raw.get(keyword, b""), *strings])
        message.translation = message.translation or number * keyword.startswith("msgstr")
        message.end = number
    if message is not None:
        yield _completed(message, raw, name)


class _Comments(NamedTuple):
    """Comments before a message that say something about it."""

    flags: int | None = None
    previous: int | None = None
    is_fuzzy: bool = False

    def with_line(self, line: str, number: int) -> _Comments:
        if line.startswith("#|"):
            return self._replace(previous=self.previous or number)
        if not line.startswith("#,"):
            return self
        return self._replace(flags=number, is_fuzzy=self.is_fuzzy or "fuzzy" in re.split(r"[,\s]+", line))


def _completed(message: Message, raw: Mapping[str, bytes], name: str) -> Message:
    """Message with its texts; raises CorpusError if it has no text, no translation, or damaged escapes."""
    where = f"{name}, line {message.number:,}"
    if not ("msgid" in raw and message.translation):
        raise CorpusError(f"{where}: this message has no {'msgstr' if 'msgid' in raw else 'msgid'}")
    try:
        message.texts = {keyword: text.decode("utf-8") for keyword, text in raw.items()}
    except UnicodeDecodeError as error:
        raise CorpusError(f"{where}: the escapes of this message are {not_utf8(error.object, error.start)}") from None
    return message


def read_po(path: Path, keeps_drafts: bool = False) -> Iterator[Row]:
    """Messages of a gettext catalogue and their translations; fuzzy ones count as missing unless drafts are kept."""
    for message in messages_in(read_lines(path), str(path)):
        if message.is_header:
            continue
        is_missing = message.is_fuzzy and not keeps_drafts
        first, *_, last = [*message.translations, message.translations[-1]]
        yield message.number, message.texts["msgid"], "" if is_missing else first
        if "msgid_plural" in message.texts:
            yield message.number, message.texts["msgid_plural"], "" if is_missing else last


def target_in_po(path: Path) -> Names:
    """Target language in the header of a catalogue, otherwise in its name; the source language has no name."""
    with opened(path) as file:
        match = _LANGUAGE.search(file.read(CHUNK_BYTES))
    if match is None:
        name = path.name.partition(".")[0]
        return Names([name] if is_common(name) else [], True)
    tag = parsed(match[1].decode("ascii"))
    return Names([str(tag).replace("-", "_")] if tag else [], True)


def _unescaped(text: str, where: str) -> bytes:
    def byte(escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, character = escape.groups()
        code = _ESCAPED.get(ord(character), 256) if character else int(octal or hexadecimal, 8 if octal else 16)
        if code > 255:
            raise CorpusError(f"{where}: unknown escape {escape[0].decode('utf-8', 'replace')!r}")
        return bytes([code])

    return _ESCAPE.sub(byte, text.encode("utf-8"))
