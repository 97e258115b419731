"""Readers of JSON lines, JSON and Parquet: two text columns, or one column of objects {language: text}."""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mt_cli.corpus.lines import CHUNK_BYTES, not_utf8, opened, read_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import ColumnError, CorpusError, one_line

_ROWS_PER_BATCH, _ROWS_WITH_KEYS = 10_000, 100


def checked_columns(columns: Sequence[str], names: Sequence[str], where: str, hint: str = "") -> Sequence[str]:
    """Check that each column is among the names exactly once, and return the columns; raises CorpusError."""
    for column in columns:
        if column not in names:
            listed = ", ".join(map(repr, names[:20])) or "nothing"
            raise ColumnError(f"{where}: no column {column!r} among {listed}", hint)
        if names.count(column) > 1:
            raise CorpusError(f"{where}: the column {column!r} occurs {names.count(column)} times; keep one of them")
    return columns


def read_json(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of objects, one per line or in an array: {"en": ..., "it": ...} or {"translation": {...}}."""
    keys = f'{{"{languages[0]}": ..., "{languages[1]}": ...}}'
    advice = f"write an object per line: {keys}, or an array of such objects"
    for number, record in _objects(path, advice):
        where = f"{path}, line {number:,}"
        if not isinstance(record, dict):
            raise CorpusError(f"{where}: found {json.dumps(record, ensure_ascii=False)[:40]!r}; {advice}")
        yield number, *_sides(record, languages, columns, where)


def names_in_json(path: Path) -> Names:
    """Keys of the first object or of its `translation`."""
    record: Any = None
    with suppress(InvalidJsonError):  # `read_json` will explain it.
        _, record = next(_objects(path, ""), (0, None))
    return _names([record] if isinstance(record, dict) else [])


def read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of two text columns, or of a column `translation`; a null is blank."""
    number = 0
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream, page_checksum_verification=True) as file:
                names = file.schema_arrow.names
                is_nested = "translation" in names and not _has(names, columns)
                chosen = checked_columns(("translation",) if is_nested else columns or languages, names, str(path))
                for table in file.iter_batches(_ROWS_PER_BATCH, columns=list(chosen)):
                    for record in table.to_pylist():
                        number += 1
                        yield number, *_sides(record, languages, columns, f"{path}, row {number:,}")
        except UnicodeDecodeError as error:
            problem = not_utf8(error.object, error.start)
            raise CorpusError(f"{path}, after row {number:,}: {problem}") from None
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"{path}: not a readable Parquet file: {one_line(error)}") from None


def names_in_parquet(path: Path) -> Names:
    """Columns, or the languages in `translation` in the first rows."""
    unreadable = suppress(pa.ArrowException, OSError, UnicodeDecodeError)  # `read_parquet` will explain it.
    with opened(path) as stream, unreadable, pq.ParquetFile(stream) as file:
        columns = list(file.schema_arrow.names)
        if "translation" not in columns:
            return Names(columns, False)
        batch = next(file.iter_batches(_ROWS_WITH_KEYS, columns=["translation"]), None)
        return Names(columns, False) if batch is None else _names(batch.to_pylist())
    return Names([], False)


def _names(records: Sequence[dict[str, Any]]) -> Names:
    """Languages in the first column `translation` that is not null, otherwise names of the columns."""
    nested = next((record["translation"] for record in records if record.get("translation")), None)
    if isinstance(nested, dict | list):
        return Names([str(name) for name in dict(nested)], True)
    return Names(list(records[0]) if records else [], False)


def _sides(record: dict[str, Any], languages: Languages, columns: Columns, where: str) -> tuple[str, str]:
    """Source and target in a record: in its columns, or in a struct or a map {language: text} called `translation`."""
    if "translation" in record and not _has(record, columns) and not isinstance(record["translation"], str):
        nested, where = record["translation"], f"{where}, `translation`"
        if nested is None:
            return "", ""
        try:
            record = _unique_keys(nested) if isinstance(nested, list) else dict(nested)
        except (TypeError, ValueError) as error:
            raise ColumnError(f"{where}: holds {nested!r:.40}, not {{language: text}}: {error}") from None
    sides = []
    for column in checked_columns(columns or languages, list(record), where):
        side = "" if record[column] is None else record[column]
        if not isinstance(side, str):
            raise ColumnError(f"{where}: {column!r} holds {side!r:.40}, not text")
        sides.append(_without_surrogates(side))
    return sides[0], sides[1]


class InvalidJsonError(CorpusError):
    """A file is not JSON, or not of the expected form."""


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
