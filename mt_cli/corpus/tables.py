"""Readers of JSON lines, JSON and Parquet: two columns, or one of {language: text}."""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mt_cli.corpus.lines import CHUNK_BYTES, not_utf8, opened, read_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import ColumnError, CorpusError, one_line

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
    """Values of a JSON lines file with their lines, or of an array, which is read at once, with their numbers."""
    with opened(path) as file:
        beginning = file.read(CHUNK_BYTES)
        is_array = beginning.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        texts: Iterable[str | bytes] = [beginning + file.read()] if is_array else read_lines(path)
    for number, text in enumerate(texts, start=1):
        try:
            value: Any = json.loads(text, object_pairs_hook=_unique_keys) if text.strip() else None
        except (ValueError, RecursionError) as error:
            if number == 1 and isinstance(text, str) and text.startswith("{"):
                advice += f"; if an object holds the array: jq -c '.KEY[]' {shlex.quote(path.name)} > pairs.jsonl"
            line = getattr(error, "lineno", number) if is_array else number
            raise InvalidJsonError(f"{path}, line {line:,}: not valid JSON: {error}; {advice}") from None
        if is_array:
            yield from enumerate(value, start=1)
        elif text.strip():
            yield number, value


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
    """Rows of two text columns, or of a column `translation`, whose keys may be the `columns`; a null is blank."""
    number = 0
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream) as file:
                names = file.schema_arrow.names
                is_nested = "translation" in names and not _has(names, columns)
                sides = columns or languages
                chosen = checked_columns(("translation",) if is_nested else sides, names, str(path))
                for table in file.iter_batches(10_000, columns=list(chosen)):
                    if is_nested:
                        nested = table.column("translation")
                        texts = [_texts_in_language(nested, language, str(path), number) for language in sides]
                    else:
                        texts = [_texts(table.column(name), f"{path}, column {name!r}", number) for name in sides]
                    for source, target in zip(*texts, strict=True):
                        number += 1
                        yield number, source or "", target or ""
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


def _texts(column: Any, where: str, number: int) -> list[str | None]:
    """Texts of a column, which may be dictionary-encoded; `number` rows are before it."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if str(kind) not in ("string", "large_string", "string_view", "null"):
        raise ColumnError(f"{where}: holds {kind}, not text")
    return _values(column, where, number)


def _texts_in_language(column: Any, language: str, path: str, number: int) -> list[str | None]:
    """Texts in one language of a column of {language: text}, a struct or a map."""
    where = f"{path}, column 'translation'"
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        checked_columns((language,), names, where, kind="language")
        column = pc.struct_field(column, [names.index(language)])
    elif pa.types.is_map(column.type) and str(column.type.key_type).endswith("string"):
        for row, pairs in enumerate(_values(column, where, number), start=number + 1):
            if pairs is not None:
                checked_columns((language,), [name for name, _ in pairs], f"{where}, row {row:,}", kind="language")
        column = pc.map_lookup(column, pa.scalar(language, column.type.key_type), "first")
    else:
        raise ColumnError(f"{where}: holds {column.type}, not {{language: text}}")
    return _texts(column, f"{where}, language {language!r}", number)


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
