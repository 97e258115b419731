"""Every format of parallel text, by one reader each. Knows files; does not know what becomes of their pairs.

A reader is a generator of rows, (number, source, target), and holds no more than a piece of the file; the number is
that of the line, of the record or of the table's row, counted from 1. A line ends at a line feed, or at a carriage
return and line feed, and nowhere else. Text comes as it stands there, blank sides included.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

from mt_cli.errors import CorpusError

Row = tuple[int, str, str]
Languages = tuple[str, str]
Columns = tuple[str, str] | None

_CHUNK_BYTES = 1 << 20
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_LONGEST_FIELD = 10_000_000
"""Characters of a CSV field at most: more means a quotation mark that is never closed."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if its name ends in `.gz` or `.zst`.

    Raises:
        CorpusError: if it cannot be opened, or what is in it cannot be unpacked.
    """
    try:
        with path.open("rb") as file:
            compression = _COMPRESSIONS.get(path.suffix)
            if compression is None:
                yield file
                return
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), compression)
            yield io.BufferedReader(stream, _CHUNK_BYTES)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{path}: {reason[:1].lower()}{reason[1:]}") from None


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; a byte order mark at the start is skipped.

    Raises:
        CorpusError: if the file cannot be read or is not UTF-8, with line and byte.
    """
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            try:
                yield content.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                found = content[error.start]
                utf16 = "it looks like UTF-16" if number == 1 and content[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
                raise CorpusError(
                    f"{path}, line {number:,}, byte {error.start + 1:,}: not UTF-8 (found 0x{found:02X}); "
                    f"{utf16 + '; ' if utf16 else ''}convert the file to UTF-8"
                ) from None


def count_lines(path: Path) -> int:
    """Number of lines of a file; raises CorpusError if it cannot be read."""
    count, last = 0, b"\n"
    with opened(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def read_file(path: Path, languages: Languages, columns: Columns = None) -> Iterator[Row]:
    """The rows of a file that holds both sides, by the reader of its kind.

    Raises:
        CorpusError: if the file is of no known kind, cannot be read, or does not hold what its kind promises.
    """
    return reader_of(path)(path, languages, columns)


def reader_of(path: Path) -> Callable[[Path, Languages, Columns], Iterator[Row]]:
    """The reader of a kind of file, by its name; raises CorpusError if there is none."""
    kind = Path(path.stem).suffix if path.suffix in _COMPRESSIONS else path.suffix
    if kind not in _READERS or (kind == ".parquet" and path.suffix != kind):
        raise CorpusError(f"{path}: unknown kind of file; a corpus in one file is one of {', '.join(_READERS)}")
    return _READERS[kind]


def _read_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated lines, without any quoting."""
    lines = read_lines(path)
    rows = ((number, line.split("\t")) for number, line in enumerate(lines, start=1))
    return _read_table(path, rows, languages, columns, "source, tab, target")


def _read_csv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Comma-separated records, quoted as RFC 4180 says."""
    csv.field_size_limit(_LONGEST_FIELD)
    with opened(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)

        def records() -> Iterator[tuple[int, list[str]]]:
            before = 0
            try:
                for record in reader:
                    if record:
                        yield before + 1, record
                    before = reader.line_num
            except UnicodeDecodeError as error:
                # The decoder works ahead in pieces, so that only the place where it stopped can be told.
                raise CorpusError(
                    f"{path}, after line {before:,}: not UTF-8 (found 0x{error.object[error.start]:02X}); "
                    "convert the file to UTF-8"
                ) from None
            except csv.Error as error:
                raise CorpusError(f"{path}, line {before + 1:,}: not valid CSV: {error}") from None

        yield from _read_table(path, records(), languages, columns, "source, comma, target")


def _read_table(
    path: Path, records: Iterator[tuple[int, list[str]]], languages: Languages, columns: Columns, expected: str
) -> Iterator[Row]:
    """Two columns of records: those whose heading is asked for or named like the languages, else the first two."""
    first = next(records, None)
    if first is None:
        return
    heading, wanted = first[1], columns or languages
    if columns is None and not set(languages) <= set(heading):
        source, target = 0, 1
        records = chain([first], records)
    else:
        if missing := [column for column in wanted if column not in heading]:
            raise CorpusError(
                f"{path}, line {first[0]:,}: no column {missing[0]!r} in its heading, only "
                f"{', '.join(map(repr, heading[:20]))}; set `columns`"
            )
        source, target = heading.index(wanted[0]), heading.index(wanted[1])
    for number, record in records:
        if len(record) <= max(source, target):
            found = f"{len(record)} column{'s' * (len(record) != 1)}"
            raise CorpusError(f"{path}, line {number:,}: found {found}; write {expected}")
        yield number, record[source], record[target]


def _read_jsonl(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """One JSON object a line: {"en": ..., "it": ...}, or the same below "translation"."""
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number:,}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{where}: not valid JSON: {error}") from None
        if isinstance(record, dict) and columns is None and isinstance(record.get("translation"), dict):
            record = record["translation"]
        if not isinstance(record, dict):
            raise CorpusError(f'{where}: found {line[:40]!r}; write {{"{languages[0]}": ..., "{languages[1]}": ...}}')
        sides = []
        for column in columns or languages:
            if column not in record:
                found = ", ".join(map(repr, list(record)[:20])) or "nothing"
                raise CorpusError(f"{where}: no {column!r} among {found}; set `columns`")
            side = "" if record[column] is None else record[column]
            if not isinstance(side, str):
                raise CorpusError(f"{where}: {column!r} holds {json.dumps(side)[:40]}, not text")
            sides.append(_without_surrogates(side))
        yield number, sides[0], sides[1]


def _without_surrogates(text: str) -> str:
    """JSON can spell halves of surrogate pairs, which are no characters: they become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Two text columns, or a `translation` column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            names = file.schema_arrow.names
            wanted = pick_columns(names, languages, columns, str(path))
            yield from rows_of_tables(file.iter_batches(10_000, columns=list(wanted)), wanted, languages, str(path))
    except OSError as error:
        raise CorpusError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except pa.ArrowException as error:
        raise CorpusError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())[:200]}") from None


def pick_columns(names: Sequence[str], languages: Languages, columns: Columns, where: str) -> tuple[str, ...]:
    """The columns asked for, else `translation`, else those named like the languages; raises CorpusError."""
    wanted: tuple[str, ...] = columns or (("translation",) if "translation" in names else languages)
    if missing := [column for column in wanted if column not in names]:
        found = ", ".join(map(repr, names[:20])) or "none"
        raise CorpusError(f"{where}: no column {missing[0]!r} among {found}; set `columns`")
    return wanted


def rows_of_tables(tables: Iterable[Any], columns: Sequence[str], languages: Languages, where: str) -> Iterator[Row]:
    """The rows of Arrow tables or record batches with two text columns, or with one that maps languages to text."""
    number = 0
    for table in tables:
        sides: list[list[Any]]
        if len(columns) == 1:
            sides = _sides_of_translations(table.column(columns[0]), languages, where, number)
        else:
            sides = [_text_column(table.column(column), column, where) for column in columns]
        for source, target in zip(*sides, strict=True):
            number += 1
            yield number, source or "", target or ""


def _text_column(column: Any, name: str, where: str) -> list[Any]:
    import pyarrow.types as kinds

    if not (kinds.is_string(column.type) or kinds.is_large_string(column.type) or kinds.is_null(column.type)):
        raise CorpusError(f"{where}: column {name!r} holds {column.type}, not text; set `columns`")
    texts: list[Any] = column.to_pylist()
    return texts


def _sides_of_translations(column: Any, languages: Languages, where: str, number: int) -> list[list[str]]:
    """Source and target texts of a column of {language: text}."""
    translations = [translation or {} for translation in column.to_pylist()]
    for offset, translation in enumerate(translations, start=1):
        if missing := [language for language in languages if language not in translation]:
            raise CorpusError(
                f"{where}, row {number + offset:,}: no language {missing[0]!r} in `translation`, "
                f"only {', '.join(map(repr, translation)) or 'nothing'}; see corpus.source and corpus.target"
            )
    return [[translation[language] for translation in translations] for language in languages]


_PO_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*)?"((?:[^"\\]|\\.)*)"')
_PO_ESCAPE = re.compile(r"\\(.)")
_PO_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _read_po(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """The messages of a gettext catalogue and their translations; a fuzzy one counts as not translated."""
    entry: dict[str, str] = {}
    began, keyword, is_fuzzy, next_is_fuzzy = 0, "", False, False
    for number, line in enumerate(read_lines(path), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            next_is_fuzzy |= line.startswith("#,") and "fuzzy" in re.split(r"[,\s]+", line)
            continue
        match = _PO_LINE.fullmatch(line)
        if match is None or not (match[1] or keyword):
            raise CorpusError(f"{path}, line {number:,}: not a line of a gettext catalogue: {line[:60]!r}")
        keyword = match[1] or keyword
        if match[1] in ("msgctxt", "msgid") and (not entry or "msgstr" in "".join(entry)):
            yield from _rows_of_message(began, entry, is_fuzzy)
            entry, began, is_fuzzy, next_is_fuzzy = {}, number, next_is_fuzzy, False
        entry[keyword] = entry.get(keyword, "") + _PO_ESCAPE.sub(
            lambda found: _PO_ESCAPED.get(found[1], found[1]), match[2]
        )
    yield from _rows_of_message(began, entry, is_fuzzy)


def _rows_of_message(number: int, entry: Mapping[str, str], is_fuzzy: bool) -> Iterator[Row]:
    """A message and its translation, and their plurals; nothing for the heading of a catalogue."""
    targets = ["" if is_fuzzy else text for keyword, text in sorted(entry.items()) if keyword.startswith("msgstr")]
    if targets and (entry.get("msgid") or "msgctxt" in entry):
        yield number, entry.get("msgid", ""), targets[0]
        if "msgid_plural" in entry:
            yield number, entry["msgid_plural"], targets[-1]


def _read_tmx(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """The translation units of a TMX file (Translation Memory eXchange 1.4b); `en` finds `en-US` too."""
    units = _TranslationUnits(languages)
    with opened(path) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                units.parser.Parse(chunk, False)
                yield from units.take()
            units.parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "")
            raise CorpusError(f"{path}, line {error.lineno:,}: not well-formed XML: {reason}") from None
        except ValueError as error:
            raise CorpusError(f"{path}, line {units.parser.CurrentLineNumber:,}: {error}") from None
    yield from units.take()


class _TranslationUnits:
    """Collects rows from the events of an XML parser that neither loads nor expands anything.

    Inline elements with native code (`bpt`, `ept`, `it`, `ph`, `ut`) are left out; the text of others is kept.
    """

    _CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))

    def __init__(self, languages: Languages) -> None:
        self._languages = languages
        self._rows: list[Row] = []
        self._line, self._language, self._code_depth = 0, "", 0
        self._segments: dict[str, str] = {}
        self._text: list[str] | None = None
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_entity

    def take(self) -> list[Row]:
        """The rows that are complete, each given once."""
        rows, self._rows = self._rows, []
        return rows

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "tu":
            self._line, self._segments = self.parser.CurrentLineNumber, {}
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            self._text = []
        elif name in self._CODE:
            self._code_depth += 1

    def _end(self, name: str) -> None:
        if name == "seg" and self._text is not None:
            self._segments.setdefault(self._language.lower().replace("_", "-"), "".join(self._text))
            self._text = None
        elif name in self._CODE:
            self._code_depth -= 1
        elif name == "tu":
            source, target = (self._segment(language.lower().replace("_", "-")) for language in self._languages)
            self._rows.append((self._line, source, target))

    def _segment(self, language: str) -> str:
        """The segment in a language, exactly or else by its primary subtag; without one, nothing."""
        if language in self._segments:
            return self._segments[language]
        primary = language.partition("-")[0]
        return next((text for code, text in self._segments.items() if code.partition("-")[0] == primary), "")

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._code_depth:
            self._text.append(text)

    def _refuse_entity(self, *declaration: object) -> None:
        raise ValueError("the file declares XML entities, which a translation memory has no use for; refused")


_READERS: Mapping[str, Callable[[Path, Languages, Columns], Iterator[Row]]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tmx": _read_tmx,
    ".po": _read_po,
}
