"""Readers of tables: TSV, CSV, JSON lines and Parquet; two columns, or one of {language: text}."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mt_cli.corpus.lines import LONGEST, not_utf8, opened, read_lines, read_whole_lines
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import ColumnError, CorpusError, one_line


def read_tsv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Tab-separated lines without quoting."""
    records = ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))
    return _read_table(path, records, languages, columns, "tab")


def names_in_tsv(path: Path) -> Names:
    """The first cells."""
    return Names(next(read_lines(path), "").split("\t"), False)


def read_csv(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Comma-separated records, quoted as in RFC 4180."""
    return _read_table(path, _csv_records(path), languages, columns, "comma")


def names_in_csv(path: Path) -> Names:
    """The first cells."""
    return Names(next(_csv_records(path), (0, [""]))[1], False)


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
_ROWS_WITH_KEYS = 100
_LONGEST_NAME = 40


def _hint_at_separator(lines: Sequence[str], expected: str, names: Iterable[str] = _SEPARATORS) -> str:
    """A hint if all lines have another separator than the expected one, otherwise an empty string."""
    for name in names:
        if name != expected and all(_SEPARATORS[name] in line for line in lines):
            return f"; the columns seem to be separated by {name}s: a .tsv file has tabs, a .csv file commas"
    return ""


def hint_at_heading(names: Sequence[str]) -> str:
    """A hint if the names of columns seem to be text, or to be separated otherwise; or else an empty string."""
    if len(names) == 1 and (hint := _hint_at_separator(names, "tab", ("semicolon", "bar", "comma"))):
        return hint
    is_text = any(len(name) > _LONGEST_NAME or name.count(" ") > 1 for name in names)
    return "; a CSV or TSV file of a dataset needs a first line with the names of its columns" if is_text else ""


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
    """The columns; raises ColumnError or CorpusError unless each is among the names exactly once."""
    for column in columns:
        if column not in names:
            found = ", ".join(map(repr, names[:20])) or "nothing"
            raise ColumnError(f"{where}: no {kind} {column!r} among {found}", hint)
        if names.count(column) > 1:
            raise CorpusError(f"{where}: the {kind} {column!r} occurs {names.count(column)} times; keep one of them")
    return columns


def read_jsonl(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
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
                raise ColumnError(f"{where}: {column!r} holds {json.dumps(side)[:40]}, not text")
            sides.append(_without_surrogates(side))
        yield number, sides[0], sides[1]


def names_in_jsonl(path: Path) -> Names:
    """The keys of the first object or of its `translation`."""
    record: Any = None
    with suppress(ValueError, RecursionError):  # `read_jsonl` will explain it.
        record = json.loads(next((line for line in read_lines(path) if line.strip()), "null"))
    if isinstance(record, dict) and isinstance(record.get("translation"), dict):
        return Names(list(record["translation"]), True)
    return Names(list(record) if isinstance(record, dict) else [], False)


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


def read_parquet(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """Two text columns, or a `translation` column."""
    with opened(path) as stream:
        try:
            with pq.ParquetFile(stream) as file:
                picked, keys = pick_columns(file.schema_arrow.names, languages, columns, str(path))
                yield from rows_of_tables(file.iter_batches(10_000, columns=list(picked)), picked, keys, str(path))
        except (pa.ArrowException, OSError) as error:
            raise CorpusError(f"{path}: not a readable Parquet file: {one_line(error)}") from None


def names_in_parquet(path: Path) -> Names:
    """The columns, or the fields of `translation`; if it is a map, the keys of its first rows."""
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
        raise ColumnError(f"{where}: holds {kind}, not text")
    return _values(column, where, number)


def _side_of(column: Any, language: str, where: str, number: int) -> Any:
    """The texts in one language of a column of {language: text}, a struct or a map, as a column."""
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        _checked_columns((language,), names, where, kind="language")
        return pc.struct_field(column, [names.index(language)])
    if str(column.type) == "extension<arrow.json>":  # How `datasets` reads objects with different keys.
        rows = [json.loads(text) if text else {} for text in _values(column, where, number)]
        return pa.array([row.get(language) if isinstance(row, dict) else None for row in rows], pa.string())
    if not pa.types.is_map(column.type) or not str(column.type.key_type).endswith("string"):
        raise ColumnError(f"{where}: holds {column.type}, not {{language: text}}")
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
