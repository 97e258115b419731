"""The formats of parallel text, one reader for each. Knows files; does not know filters.

A reader is a generator of rows, (number, source, target), and holds only a piece of the file in memory. The number is
that of the line, record or table row, from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mt_cli.corpus.languages import primary
from mt_cli.corpus.lines import (
    CHUNK_BYTES,
    COMPRESSIONS,
    LONGEST,
    foreign_kind,
    not_utf8,
    opened,
    read_lines,
    read_whole_lines,
)
from mt_cli.errors import CorpusError, one_line

Row = tuple[int, str, str]
Languages = tuple[str, str]
Columns = tuple[str, str] | None


class Names(NamedTuple):
    """What names the sides of the texts in a file."""

    names: list[str]
    are_languages: bool
    """Whether they can be nothing but languages; otherwise they are columns, or the first cells of a table."""


def read_file(path: Path, languages: Languages, columns: Columns = None) -> Iterator[Row]:
    """The rows of a file with both sides.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    return reader_of(path)(path, languages, columns)


def reader_of(path: Path) -> Callable[[Path, Languages, Columns], Iterator[Row]]:
    """The reader for a file name; raises CorpusError for an unknown format."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if kind not in _READERS or (kind == ".parquet" and path.suffix != kind):
        raise CorpusError(f"{path}: unknown format; use one of {', '.join(_READERS)}")
    return _READERS[kind]


def names_in(path: Path) -> Names:
    """The languages of a translation memory or of `translation`, otherwise columns; none for gettext.

    Those of a table without a heading are its first cells. Raises CorpusError if the format is unknown or the file
    cannot be read.
    """
    reader = reader_of(path)
    if reader is _read_tmx:
        return Names(_languages_in_tmx(path), True)
    if reader is _read_parquet:
        with opened(path) as stream, suppress(pa.ArrowException):  # `read_file` will explain it.
            schema = pq.ParquetFile(stream).schema_arrow
            nested: Any = schema.field("translation").type if "translation" in schema.names else None
            is_struct = nested is not None and pa.types.is_struct(nested)
            return Names([field.name for field in nested] if is_struct else list(schema.names), is_struct)
    if reader is _read_jsonl:
        record: Any = None
        with suppress(ValueError, RecursionError):
            record = json.loads(next((line for line in read_lines(path) if line.strip()), "null"))
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            return Names(list(record["translation"]), True)
        return Names(list(record) if isinstance(record, dict) else [], False)
    if reader is _read_csv:
        return Names(next(_csv_records(path), (0, [""]))[1], False)
    return Names(next(read_lines(path), "").split("\t") if reader is _read_tsv else [], False)


def _read_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated lines without quoting."""
    records = ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))
    return _read_table(path, records, languages, columns, "tab")


def _read_csv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Comma-separated records, quoted as in RFC 4180."""
    return _read_table(path, _csv_records(path), languages, columns, "comma")


def _csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST)  # A longer field has an opening quotation mark without a closing one.
    reader = csv.reader(read_whole_lines(path), strict=True)
    before = 0
    try:
        for record in reader:
            if record:
                yield before + 1, record
            before = reader.line_num
    except csv.Error as error:
        line = next(islice(read_lines(path), reader.line_num - 1, None), "")
        hint = _hint_at_separator([line], "comma") if re.search(r'"[;|\t]"', line) else ""
        raise CorpusError(f"{path}, line {before + 1:,}: not valid CSV: {error}{hint}") from None


_SEPARATORS = {"tab": "\t", "semicolon": ";", "bar": "|", "comma": ",", "space": "  "}
_LINES_COMPARED = 20
_MIN_LINES_COMPARED = 6


def _hint_at_separator(lines: Sequence[str], expected: str, names: Iterable[str] = _SEPARATORS) -> str:
    """A hint if all lines have another separator than the expected one, otherwise an empty string."""
    for name in names:
        if name != expected and all(_SEPARATORS[name] in line for line in lines):
            return f"; the columns seem to be separated by {name}s: a .tsv file has tabs, a .csv file commas"
    return ""


def _read_table(
    path: Path, records: Iterator[tuple[int, list[str]]], languages: Languages, columns: Columns, separator: str
) -> Iterator[Row]:
    """Two columns of records: the `columns`, those named like the languages, or the first two."""
    first = next(records, None)
    if first is None:
        return
    heading, where = first[1], f"{path}, line {first[0]:,}"
    if re.fullmatch("sep=.?", heading[0]):
        raise CorpusError(f"{where}: found {heading[0]!r}, which is a note to Excel; remove this line")
    beginning = list(islice(records, _LINES_COMPARED))
    records = chain(beginning, records)
    lines = [_SEPARATORS[separator].join(record) for _, record in [first, *beginning]]
    hint = _hint_at_separator(lines, separator) if len(heading) == 1 else ""
    if columns is None and not set(languages) <= set(heading):
        if separator == "comma" and len(lines) >= _MIN_LINES_COMPARED:
            # Text alone would hardly have exactly one such mark in each line.
            marks = ("tab", "semicolon", "bar")
            other = next((name for name in marks if all(line.count(_SEPARATORS[name]) == 1 for line in lines)), None)
            if other:
                advice = _hint_at_separator(lines, separator, [other])
                raise CorpusError(f"{path}: each of its first {len(lines)} lines has one {other}{advice}")
        source, target = 0, 1
        records = chain([first], records)
    else:
        source, target = (heading.index(name) for name in _checked_columns(columns or languages, heading, where, hint))
    for number, record in records:
        if len(record) <= max(source, target):
            found = f"{len(record)} column{'s' * (len(record) != 1)}"
            raise CorpusError(
                f"{path}, line {number:,}: found {found}; each line needs a source, a {separator} and a target{hint}"
            )
        yield number, record[source], record[target]


def _checked_columns(
    columns: Sequence[str], names: Sequence[str], where: str, hint: str = "", kind: str = "column"
) -> Sequence[str]:
    """The columns; raises CorpusError unless each is among the names exactly once."""
    for column in columns:
        if column not in names:
            found = ", ".join(map(repr, names[:20])) or "nothing"
            raise CorpusError(f"{where}: no {kind} {column!r} among {found}; set `columns`{hint}")
        if names.count(column) > 1:
            raise CorpusError(f"{where}: the {kind} {column!r} occurs {names.count(column)} times; keep one of them")
    return columns


def _read_jsonl(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """One JSON object per line: {"en": ..., "it": ...} or {"translation": {"en": ..., "it": ...}}."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    advice = f'write an object per line: {{"{languages[0]}": ..., "{languages[1]}": ...}}'
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number:,}"
        if line.lstrip().startswith("["):
            raise CorpusError(f"{where}: found a JSON array; {advice}")
        try:
            record = decoder.decode(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{where}: not valid JSON: {error}; {advice}") from None
        if isinstance(record, dict) and isinstance(record.get("translation"), dict) and not _has(record, columns):
            record = record["translation"]
        if not isinstance(record, dict):
            raise CorpusError(f"{where}: found {line[:40]!r}; {advice}")
        sides = []
        for column in _checked_columns(columns or languages, list(record), where):
            side = "" if record[column] is None else record[column]
            if not isinstance(side, str):
                raise CorpusError(f"{where}: {column!r} holds {json.dumps(side)[:40]}, not text")
            sides.append(_without_surrogates(side))
        yield number, sides[0], sides[1]


def _has(names: Collection[str], columns: Columns) -> bool:
    """Whether the columns are given, and are among the names themselves rather than in `translation`."""
    return columns is not None and all(column in names for column in columns)


def _unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(items)
    if len(record) < len(items):
        raise ValueError("a key occurs twice in one object")
    return record


def _without_surrogates(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs, which JSON escapes can spell."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Two text columns, or a `translation` column."""
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream) as file:
                picked, keys = pick_columns(file.schema_arrow.names, languages, columns, str(path))
                yield from rows_of_tables(file.iter_batches(10_000, columns=list(picked)), picked, keys, str(path))
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"{path}: not a readable Parquet file: {one_line(error)}") from None


def pick_columns(
    names: Sequence[str], languages: Languages, columns: Columns, where: str
) -> tuple[Sequence[str], Languages]:
    """The columns to read, and the keys of `translation` to read; raises CorpusError.

    They are the `columns`, otherwise `translation`, in which the `columns` may be keys too, otherwise the columns that
    are named like the languages.
    """
    if "translation" in names and not _has(names, columns):
        return _checked_columns(("translation",), names, where), columns or languages
    return _checked_columns(columns or languages, names, where), languages


def rows_of_tables(tables: Iterable[Any], columns: Sequence[str], languages: Languages, where: str) -> Iterator[Row]:
    """The rows of Arrow tables with two text columns, or with one that maps languages to text; a null is blank."""
    number = 0
    for table in tables:
        places = [f"{where}, column {column!r}" for column in columns]
        sides = [table.column(column) for column in columns]
        if len(columns) == 1:
            sides = [_side_of(sides[0], language, places[0], number) for language in languages]
            places = [f"{places[0]}, language {language!r}" for language in languages]
        texts = [_texts(side, place, number) for side, place in zip(sides, places, strict=True)]
        for source, target in zip(*texts, strict=True):
            number += 1
            yield number, source or "", target or ""


def _texts(column: Any, where: str, number: int) -> list[str | None]:
    """The texts of a column, which may be dictionary-encoded; `number` rows are before it."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise CorpusError(f"{where}: holds {kind}, not text; set `columns`")
    return _values(column, where, number)


def _side_of(column: Any, language: str, where: str, number: int) -> Any:
    """The texts in one language of a column of {language: text}, a struct or a map, as a column."""
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        _checked_columns((language,), names, where, kind="language")
        return pc.struct_field(column, [names.index(language)])
    if not pa.types.is_map(column.type) or not str(column.type.key_type).endswith("string"):
        raise CorpusError(f"{where}: holds {column.type}, not {{language: text}}; set `columns`")
    for row, pairs in enumerate(_values(column, where, number), start=number + 1):
        if pairs is not None:
            _checked_columns((language,), [name for name, _ in pairs], f"{where}, row {row:,}", kind="language")
    return pc.map_lookup(column, pa.scalar(language, column.type.key_type), "first")


def _values(column: Any, where: str, number: int) -> list[Any]:
    """The Python values of a column; raises CorpusError, with the row, for text that is not UTF-8."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except UnicodeDecodeError as error:
        problem = not_utf8(error.object, error.start)
    with suppress(UnicodeDecodeError):
        for value in column:
            number += 1
            value.as_py()
    raise CorpusError(f"{where}, row {number:,}: {problem}")


_PO_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?"((?:[^"\\]|\\.)*)"')
_PO_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]+)|(.))")
_PO_ESCAPED = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))
_PO_CHARSET = re.compile(rb'"Content-Type:[^"\n]*charset=([^\s"\\;]+)', re.IGNORECASE)


def _read_po(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """The messages of a gettext catalogue and their translations; fuzzy translations count as missing."""
    _check_charset(path)
    entry: dict[str, bytes] = {}
    began, keyword, is_fuzzy, next_is_fuzzy = 0, "", False, False
    for number, line in enumerate(read_lines(path), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            next_is_fuzzy |= line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line)
            continue
        where = f"{path}, line {number:,}"
        match = _PO_LINE.fullmatch(line)
        if match is None or not (match[1] or keyword):
            raise CorpusError(f"{where}: not a line of a gettext catalogue: {line[:60]!r}")
        keyword = match[1] or keyword
        if not entry or (match[1] in ("msgctxt", "msgid") and "msgstr" in "".join(entry)):
            yield from _rows_of_message(path, began, entry, is_fuzzy)
            entry, began, is_fuzzy, next_is_fuzzy = {}, number, next_is_fuzzy, False
        if match[1] in entry:
            raise CorpusError(f"{where}: a second {match[1]} in the message of line {began:,}")
        entry[keyword] = entry.get(keyword, b"") + _unescaped(match[2], where)
    yield from _rows_of_message(path, began, entry, is_fuzzy)


def _check_charset(path: Path) -> None:
    """Raise CorpusError if the header of a catalogue names a charset other than UTF-8; templates have `CHARSET`."""
    with opened(path) as file:
        found = _PO_CHARSET.search(file.read(CHUNK_BYTES))
    charset = found[1].decode("ascii", "replace") if found else "UTF-8"
    if charset.lower().replace("-", "") not in ("utf8", "ascii", "usascii", "charset"):
        raise CorpusError(f"{path}: its charset is {charset}; convert it with `msgconv -t UTF-8`")


def _unescaped(text: str, where: str) -> bytes:
    """The bytes of a quoted string."""

    def byte(found: re.Match[bytes]) -> bytes:
        octal, hexadecimal, character = found.groups()
        code = _PO_ESCAPED.get(ord(character), 256) if character else int(octal or hexadecimal, 8 if octal else 16)
        if code > 255:
            raise CorpusError(f"{where}: unknown escape {found[0].decode('utf-8', 'replace')!r}")
        return bytes([code])

    return _PO_ESCAPE.sub(byte, text.encode("utf-8"))


def _rows_of_message(path: Path, number: int, entry: Mapping[str, bytes], is_fuzzy: bool) -> Iterator[Row]:
    """A message and its translation, and their plurals; nothing for the header of a catalogue."""
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


_XML = expat.errors.codes
_DECLARE_UTF8 = "convert the file to UTF-8, and change the encoding in its first line"


def _read_tmx(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """The translation units of a TMX file (Translation Memory eXchange 1.4b); `en` also matches `en-US`."""
    units = _TranslationUnits(languages)
    parser, num_before, chunk = units.parser, 0, b""
    with opened(path) as file:
        try:
            while chunk := file.read(CHUNK_BYTES):
                parser.Parse(chunk, False)
                yield from units.take()
                num_before += len(chunk)
                if num_before - units.ended_at > LONGEST:
                    raise CorpusError(f"more than {LONGEST:,} bytes without the end of a translation unit")
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            hint = _encoding_hint(error.code, chunk, parser.ErrorByteIndex - num_before)
            problem = f"not well-formed XML: {expat.errors.messages.get(error.code, '')}{hint}"
            raise CorpusError(f"{path}, line {error.lineno:,}: {problem}") from None
        except CorpusError as error:
            raise CorpusError(f"{path}, line {parser.CurrentLineNumber:,}: {error}") from None
        except (LookupError, ValueError) as error:
            raise CorpusError(f"{path}, line 1: {error}; {_DECLARE_UTF8}") from None
    yield from units.take()


def _languages_in_tmx(path: Path) -> list[str]:
    """The languages of the units at the beginning of a TMX file, in their order."""
    found: dict[str, None] = {}

    def note(name: str, attributes: Mapping[str, str]) -> None:
        if name == "tuv":
            found[primary(attributes.get("xml:lang") or attributes.get("lang") or "")] = None

    parser = expat.ParserCreate()
    parser.StartElementHandler = note
    with opened(path) as file, suppress(expat.ExpatError, LookupError, ValueError):  # `read_file` will explain it.
        parser.Parse(file.read(CHUNK_BYTES), False)
    return [code for code in found if code]


def _encoding_hint(code: int, chunk: bytes, place: int) -> str:
    """A hint for an error of the XML parser at a place of a chunk."""
    if code in (_XML[expat.errors.XML_ERROR_UNKNOWN_ENCODING], _XML[expat.errors.XML_ERROR_INCORRECT_ENCODING]):
        return f"; {_DECLARE_UTF8}"
    if code != _XML[expat.errors.XML_ERROR_INVALID_TOKEN] or not 0 <= place < len(chunk):
        return ""
    problem: str | None
    if place < 4:
        problem = "; ".join(foreign_kind(chunk) or ())
    else:
        first = max(0, place - 200)
        problem = not_utf8(chunk[first : place + 200], place - first) if chunk[place] >= 0x80 else None
    return f"; {problem}" if problem else ""


class _TranslationUnits:
    """Collects rows from the events of an XML parser that loads no files and expands no entities."""

    _CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))
    """Inline elements with markup of the original format, which is dropped. The text of others is kept."""

    def __init__(self, languages: Languages) -> None:
        self._languages = languages
        self._rows: list[Row] = []
        self._open: list[str] = []  # Names of elements.
        self._line, self._language = 0, ""
        self._segments: dict[str, str] = {}
        self._text: list[str] | None = None
        self.ended_at = 0
        """The byte where the last unit ended."""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_entities
        self.parser.SkippedEntityHandler = self._refuse_entity

    def take(self) -> list[Row]:
        """The rows completed since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in ("tu", "tuv", "seg") and name in self._open:
            raise CorpusError(f"<{name}> within <{name}>")
        if name == "tu":
            self._line, self._segments = self.parser.CurrentLineNumber, {}
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg" and self._open[-1:] == ["tuv"]:
            self._text = []
        self._open.append(name)

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg" and self._text is not None:
            self._segments.setdefault(self._language.lower().replace("_", "-"), "".join(self._text))
            self._text = None
        elif name == "tu":
            source, target = (self._segment(language.lower().replace("_", "-")) for language in self._languages)
            self._rows.append((self._line, source, target))
            self.ended_at = self.parser.CurrentByteIndex

    def _segment(self, language: str) -> str:
        """The segment in a language, by its whole code or by its primary subtag, or an empty string."""
        if language in self._segments:
            return self._segments[language]
        return next((text for code, text in self._segments.items() if primary(code) == primary(language)), "")

    def _characters(self, text: str) -> None:
        if self._text is not None and self._CODE.isdisjoint(self._open):
            self._text.append(text)

    def _refuse_entities(self, *declaration: object) -> None:
        raise CorpusError("the file declares XML entities, which translation memories do not need; refused")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        mark = "%" if is_parameter else "&"
        raise CorpusError(f"the entity {mark}{name}; is unknown because no DTD is read; write the character itself")


_READERS: Mapping[str, Callable[[Path, Languages, Columns], Iterator[Row]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tmx": _read_tmx,
    ".po": _read_po,
}
