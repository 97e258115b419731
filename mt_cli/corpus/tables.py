"""Readers of JSON lines, JSON and Parquet: two columns, or one of {language: text}."""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mt_cli.corpus.lines import CHUNK_BYTES, LONGEST, not_utf8, opened, read_chunks, read_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import ColumnError, CorpusError, one_line

_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_ROWS_WITH_KEYS = 100


def checked_columns(
    columns: Sequence[str], names: Sequence[str], where: str, hint: str = "", kind: str = "column"
) -> Sequence[str]:
    """Check that each column is among the names exactly once, and return the columns; raises CorpusError."""
    for column in columns:
        if column not in names:
            listed = ", ".join(map(repr, names[:20])) or "nothing"
            raise ColumnError(f"{where}: no {kind} {column!r} among {listed}", hint)
        if names.count(column) > 1:
            raise CorpusError(f"{where}: the {kind} {column!r} occurs {names.count(column)} times; keep one of them")
    return columns


def read_json(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of objects, one per line or in an array: {"en": ..., "it": ...} or {"translation": {...}}."""
    keys = f'{{"{languages[0]}": ..., "{languages[1]}": ...}}'
    advice = f"write an object per line: {keys}, or an array of such objects"
    for number, record in _objects(path, advice):
        where = f"{path}, line {number:,}"
        if isinstance(record, dict) and isinstance(record.get("translation"), dict) and not _has(record, columns):
            record = record["translation"]
        if not isinstance(record, dict):
            raise CorpusError(f"{where}: found {json.dumps(record, ensure_ascii=False)[:40]!r}; {advice}")
        sides = []
        for column in checked_columns(columns or languages, list(record), where):
            side = "" if record[column] is None else record[column]
            if not isinstance(side, str):
                raise ColumnError(f"{where}: {column!r} holds {json.dumps(side)[:40]}, not text")
            sides.append(_without_surrogates(side))
        yield number, sides[0], sides[1]


def names_in_json(path: Path) -> Names:
    """Keys of the first object or of its `translation`."""
    record: Any = None
    with suppress(InvalidJsonError):  # `read_json` will explain it.
        _, record = next(_objects(path, ""), (0, None))
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        return Names(list(record["translation"]), True)
    return Names(list(record) if isinstance(record, dict) else [], False)


class InvalidJsonError(CorpusError):
    """A file is not the JSON that is expected."""


def _objects(path: Path, advice: str) -> Iterator[tuple[int, Any]]:
    """Values of a JSON or JSON lines file, each with the line where it begins."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys)
    with opened(path) as file:
        beginning = file.read(CHUNK_BYTES).removeprefix(codecs.BOM_UTF8).lstrip()
    if beginning.startswith(b"["):
        yield from _objects_of_array(path, read_chunks(path), decoder, advice)
        return
    for number, line in enumerate(read_lines(path), start=1):
        try:
            if line.strip():
                yield number, decoder.decode(line)
        except (ValueError, RecursionError) as error:
            if number == 1 and line.startswith("{"):
                advice += f"; if an object holds the array: jq -c '.KEY[]' {shlex.quote(path.name)} > pairs.jsonl"
            raise InvalidJsonError(f"{path}, line {number:,}: not valid JSON: {error}; {advice}") from None


def _objects_of_array(
    path: Path, chunks: Iterator[str], decoder: json.JSONDecoder, advice: str
) -> Iterator[tuple[int, Any]]:
    """Objects of an array, one of which is in memory at a time."""
    text, place, line, expected, is_last = "", 0, 1, "[", False
    while not is_last:
        chunk = next(chunks, "")
        text, place, is_last = text[place:] + chunk, 0, not chunk
        while (start := _NOT_BLANK.search(text, place)) is not None:
            line += text.count("\n", place, start.start())
            place = start.start()
            where = f"{path}, line {line:,}"
            if text[place] not in expected:
                raise InvalidJsonError(f"{where}: found {text[place:][:40]!r} in a JSON array; {advice}")
            if text[place] != "{":
                expected = {"[": "{]", ",": "{", "]": " "}[text[place]]
                place += 1
                continue
            try:
                record, end = decoder.raw_decode(text, place)
            except (ValueError, RecursionError) as error:
                if not is_last and len(text) - place <= LONGEST:
                    break  # It may continue in the next chunk.
                problem = getattr(error, "msg", error)  # The line and column of the error count from the chunk.
                raise InvalidJsonError(f"{where}: not valid JSON: {problem}; {advice}") from None
            yield line, record
            line += text.count("\n", place, end)
            place, expected = end, ",]"
    if expected != " ":
        line += text.count("\n", place)
        raise InvalidJsonError(f"{path}, line {line:,}: not valid JSON: the array does not end; {advice}")


def _has(names: Collection[str], columns: Columns) -> bool:
    """Whether `columns` are set, and are names of the table rather than keys of `translation`."""
    return columns is not None and all(column in names for column in columns)


def _unique_keys(items: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(items)
    if len(record) < len(items):
        raise ValueError("a key occurs twice in one object")
    return record


def _without_surrogates(text: str) -> str:
    """Text with U+FFFD for halves of surrogate pairs, which JSON escapes can spell."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of two text columns, or of a column `translation`."""
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream) as file:
                picked, keys = pick_columns(file.schema_arrow.names, languages, columns, str(path))
                yield from rows_of_tables(file.iter_batches(10_000, columns=list(picked)), picked, keys, str(path))
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"{path}: not a readable Parquet file: {one_line(error)}") from None


def names_in_parquet(path: Path) -> Names:
    """Columns, or the fields of `translation`; if it is a map, the keys of its first rows."""
    unreadable = suppress(pa.ArrowException, OSError, UnicodeDecodeError)  # `read_parquet` will explain it.
    with opened(path) as stream, unreadable, pq.ParquetFile(stream) as file:
        schema = file.schema_arrow
        nested: Any = schema.field("translation").type if "translation" in schema.names else None
        if nested is not None and pa.types.is_struct(nested):
            return Names([field.name for field in nested], True)
        if nested is not None and pa.types.is_map(nested):
            batch = next(file.iter_batches(_ROWS_WITH_KEYS, columns=["translation"]), None)
            rows = [] if batch is None else batch.column("translation").to_pylist()
            keys = dict.fromkeys(str(key) for row in rows if row is not None for key, _ in row)
            return Names(list(keys), True)
        return Names(list(schema.names), False)
    return Names([], False)


def pick_columns(
    names: Sequence[str], languages: Languages, columns: Columns, where: str
) -> tuple[Sequence[str], Languages]:
    """Columns to read, and keys of `translation` to read; raises CorpusError.

    The order of preference: `columns`; the column `translation`, whose keys may be the `columns`; columns named like
    the languages.
    """
    if "translation" in names and not _has(names, columns):
        return checked_columns(("translation",), names, where), columns or languages
    return checked_columns(columns or languages, names, where), languages


def rows_of_tables(tables: Iterable[Any], columns: Sequence[str], languages: Languages, where: str) -> Iterator[Row]:
    """Rows of Arrow tables with two text columns, or with one that maps languages to text; a null is blank."""
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
    """Texts of a column, which may be dictionary-encoded; `number` rows are before it."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise ColumnError(f"{where}: holds {kind}, not text")
    return _values(column, where, number)


def _side_of(column: Any, language: str, where: str, number: int) -> Any:
    """Texts in one language of a column of {language: text}, a struct or a map, as a column."""
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        checked_columns((language,), names, where, kind="language")
        return pc.struct_field(column, [names.index(language)])
    if str(column.type) == "extension<arrow.json>":  # How `datasets` reads objects with different keys.
        rows = [json.loads(text) if text else {} for text in _values(column, where, number)]
        return pa.array([row.get(language) if isinstance(row, dict) else None for row in rows], pa.string())
    if not pa.types.is_map(column.type) or not str(column.type.key_type).endswith("string"):
        raise ColumnError(f"{where}: holds {column.type}, not {{language: text}}")
    for row, pairs in enumerate(_values(column, where, number), start=number + 1):
        if pairs is not None:
            checked_columns((language,), [name for name, _ in pairs], f"{where}, row {row:,}", kind="language")
    return pc.map_lookup(column, pa.scalar(language, column.type.key_type), "first")


def _values(column: Any, where: str, number: int) -> list[Any]:
    """Python values of a column; raises CorpusError, with the row, for text that is not UTF-8."""
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
