"""Table of formats of parallel text: how rows and the names of their sides are read.

A reader yields rows, (number, source, target), and holds only a piece of the file in memory. Numbers count lines, or
rows of Parquet and of a JSON array, from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from mt_cli.config.sources import FormatName
from mt_cli.corpus.formats import delimited, gettext, memories, structured
from mt_cli.corpus.lines import folder_note, suffix_inside
from mt_cli.corpus.rows import Columns, Languages, Names, ReadReport, Row
from mt_cli.corpus.varieties import chosen_varieties, merged_spellings, plain_code
from mt_cli.errors import CorpusError


class Format(NamedTuple):
    """Functions that read files of a format."""

    suffixes: tuple[str, ...]
    read: Callable[[Path, Languages, Columns, ReadReport], Iterator[Row]]
    """Reader of rows. With `varieties`, the columns are codes that were chosen for the whole source."""
    names: Callable[[Path], Names]
    varieties: Callable[[Path], Mapping[str, int]] | None = None
    """Count the segments of each language code in a file whose text has such codes."""
    unit: str = "line"
    """Unit that the numbers of its rows count."""


def _table(suffixes: tuple[str, ...], records: Callable[[Path], Iterator[delimited.Record]]) -> Format:
    return Format(
        suffixes,
        lambda path, languages, columns, report: delimited.read_table(path, records(path), languages, columns, report),
        lambda path: delimited.first_cells(records(path)),
    )


def _memory(
    suffixes: tuple[str, ...],
    read: Callable[[Path, tuple[str, str], ReadReport], Iterator[Row]],
    varieties_in: Callable[[Path], Mapping[str, int]],
) -> Format:
    def names(path: Path) -> Names:
        return Names(list(dict.fromkeys(map(plain_code, varieties_in(path)))), True)

    return Format(
        suffixes, lambda path, languages, codes, report: read(path, codes or languages, report), names, varieties_in
    )


FORMATS: Mapping[str, Format] = {
    "tsv": _table((".tsv",), delimited.tsv_records),
    "plain_tsv": _table((), delimited.plain_records),
    "csv": _table((".csv",), delimited.csv_records),
    "json": Format(
        (".jsonl", ".json"),
        lambda path, languages, columns, _: structured.read_json(path, languages, columns),
        structured.names_in_json,
        unit="row",
    ),
    "parquet": Format(
        (".parquet",),
        lambda path, languages, columns, _: structured.read_parquet(path, languages, columns),
        structured.names_in_parquet,
        unit="row",
    ),
    "tmx": _memory((".tmx",), memories.read_tmx, memories.varieties_in_units),
    "xliff": _memory((".xlf", ".xliff"), memories.read_xliff, memories.varieties_in_xliff),
    "tbx": _memory((".tbx",), memories.read_tbx, memories.varieties_in_units),
    "po": Format(
        (".po",), lambda path, _, __, report: gettext.read_po(path, report.keeps_drafts), gettext.target_in_po
    ),
}
"""Formats by name; the option `format` of a source takes the names in `FormatName`."""
_SPREADSHEETS = (".xlsx", ".xls", ".ods")
BY_SUFFIX: Mapping[str, Format] = {suffix: format for format in FORMATS.values() for suffix in format.suffixes}


def suffix_of(path: Path) -> str | None:
    """The suffix of a file with both sides, such as `.po` or `.tsv.gz`; None if its format is unknown."""
    kind = suffix_inside(path)
    is_compressed = path.suffix != kind
    is_readable = kind in BY_SUFFIX and not (kind == ".parquet" and is_compressed)
    return kind + path.suffix * is_compressed if is_readable else None


def format_of(path: Path, name: str | None = None) -> Format:
    """Format called `name`, or without a name the format of the suffix; raises CorpusError if it is unknown."""
    if name is not None:
        return FORMATS[name]
    suffix = suffix_of(path)
    if path.suffix == ".zip":
        raise CorpusError(f"{path}: is a ZIP archive; unpack it, and give the files in it")
    if suffix is None:
        if not os.path.exists(path):
            raise CorpusError(f"{path}: no such file or folder{folder_note(path)}")
        if path.suffix.lower() in _SPREADSHEETS:
            raise CorpusError(f"{path}: is a spreadsheet; save it as CSV in UTF-8, and give that file")
        raise CorpusError(
            f"{path}: not a file with both sides ({', '.join(BY_SUFFIX)}); if it is one of two files with a sentence "
            "per line, give both (mt init: --files A B, --valid A --valid B); if it is a table, set `format` (mt init "
            f"--format) to {', '.join(get_args(FormatName))}"
        )
    return BY_SUFFIX["." + suffix.split(".")[1]]


def read_file(
    path: Path,
    languages: Languages,
    columns: Columns,
    format_name: str | None = None,
    report: ReadReport | None = None,
) -> Iterator[Row]:
    """Rows of a file with both sides; `report` counts what is dropped.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    format, report = format_of(path, format_name), ReadReport() if report is None else report
    if format.varieties is not None:
        # Varieties are chosen by the codes of all units, so a memory is read twice.
        columns = chosen_varieties(merged_spellings(format.varieties(path)), columns or languages, str(path), report)
    yield from format.read(path, languages, columns, report)


def names_in(path: Path, format_name: str | None = None) -> Names:
    """Names of the sides: languages of a memory, the target language of gettext, otherwise columns.

    The columns of a table without a header are its first cells. Raises CorpusError if the format is unknown or the
    file cannot be read.
    """
    return format_of(path, format_name).names(path)
