"""JSON lines, JSON and Parquet: two text columns, or one column of objects {language: text}."""

from __future__ import annotations

import codecs
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mt_cli.corpus.columns import columns_of
from mt_cli.corpus.lines import CHUNK_BYTES, opened, read_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import ColumnError, CorpusError, one_line

_NESTED = "translation"
_ROWS_PER_BATCH, _ROWS_WITH_KEYS = 10_000, 100


def read_json(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of objects, one per line or in an array: {"en": ..., "it": ...} or {"translation": {...}}."""
    sides = _Sides(languages, columns)
    advice = f'write an object per line: {{"{languages[0]}": ..., "{languages[1]}": ...}}, or an array of such objects'
    for number, record in _objects(path, advice):
        where = f"{path}, row {number:,}"
        if not isinstance(record, dict):
            raise CorpusError(f"{where}: found {json.dumps(record, ensure_ascii=False)[:40]!r}; {advice}")
        yield number, *sides.of(record, where)


def names_in_json(path: Path) -> Names:
    _, record = next(_objects(path, ""), (0, None))
    return _names([record] if isinstance(record, dict) else [])


def read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Rows of two text columns, or of a column `translation`; a null is blank."""
    number, sides = 0, _Sides(languages, columns)
    with _opened_parquet(path) as file:
        schema = file.schema_arrow
        is_nested = _is_nested(schema) and not _has(schema.names, columns)
        chosen = [_NESTED] if is_nested else sides.among(tuple(schema.names), str(path))
        for table in file.iter_batches(_ROWS_PER_BATCH, columns=chosen):
            for record in table.to_pylist():
                number += 1
                yield number, *sides.of(record, f"{path}, row {number:,}")


def names_in_parquet(path: Path) -> Names:
    """Columns, or the languages in `translation` in the first rows."""
    with _opened_parquet(path) as file:
        if _is_nested(file.schema_arrow):
            batch = next(file.iter_batches(_ROWS_WITH_KEYS, columns=[_NESTED]), None)
            if batch is not None:
                return _names(batch.to_pylist())
        return Names(list(file.schema_arrow.names), False)


@contextmanager
def _opened_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Context manager that opens a file; raises CorpusError if it cannot be read."""
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream, page_checksum_verification=True) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"{path}: not a readable Parquet file: {one_line(error)}") from None


def _is_nested(schema: pa.Schema) -> bool:
    """True if a table has one column `translation` of structs or maps."""
    indices = schema.get_all_field_indices(_NESTED)
    return len(indices) == 1 and pa.types.is_nested(schema.field(indices[0]).type)


def _names(records: Sequence[dict[str, Any]]) -> Names:
    """Languages in the first column `translation` that is not null, otherwise names of the columns."""
    nested = next((record[_NESTED] for record in records if record.get(_NESTED)), None)
    if isinstance(nested, dict | list):
        return Names([str(name) for name in dict(nested)], True)
    return Names(list(records[0]) if records else [], False)


class _Sides:
    """Source and target in records: in their columns, or in a struct or a map {language: text} called `translation`."""

    def __init__(self, languages: Languages, columns: Columns) -> None:
        self._languages, self._columns = languages, columns
        self._by_names: dict[tuple[str, ...], list[str]] = {}

    def of(self, record: dict[str, Any], where: str) -> tuple[str, str]:
        """Texts of a record; raises CorpusError, which begins with `where`, if it has no such columns of text."""
        if not isinstance(record.get(_NESTED, ""), str) and not _has(record, self._columns):
            nested, where = record[_NESTED], f"{where}, `{_NESTED}`"
            if nested is None:
                return "", ""
            try:
                record = dict(nested)
            except (TypeError, ValueError) as error:
                raise ColumnError(f"{where}: holds {nested!r:.40}, not {{language: text}}: {error}") from None
        source, target = (_text(record, column, where) for column in self.among(tuple(record), where))
        return source, target

    def among(self, names: tuple[str, ...], where: str) -> list[str]:
        """The columns of both sides among names; raises ColumnError if there are none."""
        if names not in self._by_names:
            try:
                pair = columns_of(names, self._languages, self._columns, where)
                # The second call raises the error.
                pair = pair or columns_of(names, self._languages, self._languages, where) or (0, 1)
            except ColumnError as error:
                if not self._by_names:
                    raise
                raise CorpusError(f"{error.problem}, which earlier rows have; repair this row, or remove it") from None
            self._by_names[names] = [names[index] for index in pair]
        return self._by_names[names]


def _text(record: dict[str, Any], column: str, where: str) -> str:
    """Text of a column, with U+FFFD for halves of surrogate pairs, which JSON escapes can spell."""
    text = "" if record[column] is None else record[column]
    if not isinstance(text, str):
        raise ColumnError(f"{where}: {column!r} holds {text!r:.40}, not text")
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _objects(path: Path, advice: str) -> Iterator[tuple[int, Any]]:
    """Values of a JSON lines file with their lines, or of an array, which is read at once, with their numbers."""
    with opened(path) as file:
        prefix = file.read(CHUNK_BYTES)
        is_array = prefix.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        rest = file.read() if is_array else b""
    number = 1
    try:
        if is_array:
            yield from enumerate(json.loads((prefix + rest).decode("utf-8-sig")), start=1)
            return
        lines: Iterable[str] = read_lines(path)
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, json.loads(line)
    except (ValueError, RecursionError) as error:
        line_number = getattr(error, "lineno", number) if is_array else number
        if not is_array and number == 1:
            advice += "; if an object holds the array, write that array alone into a file"
        raise CorpusError(f"{path}, line {line_number:,}: not valid JSON: {error}; {advice}") from None


def _has(names: Collection[str], columns: Columns) -> bool:
    """True if `columns` are set, and are names of the table rather than keys of `translation`."""
    return columns is not None and all(column in names for column in columns)
