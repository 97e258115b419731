"""Reader of gettext catalogues (`.po`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mt_cli.corpus.lines import CHUNK_BYTES, not_utf8, opened, read_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import CorpusError

LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]+)|(.))")
_ESCAPED = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
_LANGUAGE = re.compile(rb'"Language:\s*([A-Za-z]{2,3}(?:[_-][A-Za-z]+)*)(?:@(\w+))?\s*\\n"')
_SCRIPTS = {b"latin": "_Latn", b"cyrillic": "_Cyrl"}
"""Script suffixes of language codes, by the modifier of a locale such as `sr@latin`."""
CHARSET = re.compile(rb'"Content-Type:[^"\n]*charset=([^\s"\\;]+)', re.IGNORECASE)


def read_po(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Messages of a gettext catalogue and their translations; fuzzy translations count as missing."""
    _check_charset(path)
    entry: dict[str, bytes] = {}
    began, keyword, is_fuzzy, next_is_fuzzy = 0, "", False, False
    for number, line in enumerate(read_lines(path), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            if line.startswith("#~"):  # The flags before it are those of an obsolete entry.
                next_is_fuzzy = False
            next_is_fuzzy |= line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line)
            continue
        where = f"{path}, line {number:,}"
        match = LINE.fullmatch(line)
        if match is None or not (match[1] or keyword):
            raise CorpusError(f"{where}: not a line of a gettext catalogue: {line[:60]!r}")
        keyword = match[1] or keyword
        if not entry or (match[1] in ("msgctxt", "msgid") and "msgstr" in "".join(entry)):
            yield from _rows_of_message(path, began, entry, is_fuzzy)
            entry, began, is_fuzzy, next_is_fuzzy = {}, number, next_is_fuzzy, False
        if match[1] in entry:
            raise CorpusError(f"{where}: a second {match[1]} in the message of line {began:,}")
        entry[keyword] = entry.get(keyword, b"") + unescaped(match[2], where)
    yield from _rows_of_message(path, began, entry, is_fuzzy)


def target_in_po(path: Path) -> Names:
    """Target language in the header of a catalogue, if there is one; the source language has no name."""
    with opened(path) as file:
        language = _LANGUAGE.search(file.read(CHUNK_BYTES))
    if language is None:
        return Names([], False)
    return Names([language[1].decode("ascii") + _SCRIPTS.get(language[2], "")], True)


def _check_charset(path: Path) -> None:
    """Raise CorpusError if the header of a catalogue names a charset other than UTF-8; templates have `CHARSET`."""
    with opened(path) as file:
        match = CHARSET.search(file.read(CHUNK_BYTES))
    charset = match[1].decode("ascii", "replace") if match else "UTF-8"
    if charset.lower().replace("-", "") not in ("utf8", "ascii", "usascii", "charset"):
        raise CorpusError(f"{path}: its charset is {charset}; convert it with `msgconv -t UTF-8`")


def unescaped(text: str, where: str) -> bytes:
    """Bytes of a quoted string."""

    def byte(escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, character = escape.groups()
        code = _ESCAPED.get(ord(character), 256) if character else int(octal or hexadecimal, 8 if octal else 16)
        if code > 255:
            raise CorpusError(f"{where}: unknown escape {escape[0].decode('utf-8', 'replace')!r}")
        return bytes([code])

    return _ESCAPE.sub(byte, text.encode("utf-8"))


def _rows_of_message(path: Path, number: int, entry: Mapping[str, bytes], is_fuzzy: bool) -> Iterator[Row]:
    """Rows of a message and its plural; none for the header of a catalogue."""
    where = f"{path}, line {number:,}"
    keywords = sorted(keyword for keyword in entry if keyword.startswith("msgstr"))
    if entry and not ("msgid" in entry and keywords):
        raise CorpusError(f"{where}: this message has no {'msgstr' if 'msgid' in entry else 'msgid'}")
    try:
        texts = {keyword: text.decode("utf-8") for keyword, text in entry.items()}
    except UnicodeDecodeError as error:
        raise CorpusError(f"{where}: the escapes of this message are {not_utf8(error.object, error.start)}") from None
    targets = ["" if is_fuzzy else texts[keyword] for keyword in keywords]
    if targets and (texts["msgid"] or "msgctxt" in texts):
        yield number, texts["msgid"], targets[0]
        if "msgid_plural" in texts:
            yield number, texts["msgid_plural"], targets[-1]
