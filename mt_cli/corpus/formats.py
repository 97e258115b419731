"""Table of formats of parallel text: how rows and the names of their sides are read.

A reader yields rows, (number, source, target), and holds only a piece of the file in memory. Numbers count lines,
records or table rows from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from mt_cli.config.sources import FormatName
from mt_cli.corpus import delimited, tables
from mt_cli.corpus.delimited import TableRecord
from mt_cli.corpus.gettext import read_po, target_in_po
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.read_report import Item, ReadOptions
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.tmx import names_in_tmx, read_tmx, varieties_in
from mt_cli.corpus.varieties import Varieties
from mt_cli.corpus.xliff import names_in_xliff, read_xliff, varieties_in_xliff
from mt_cli.errors import CorpusError

Reader = Callable[[Path, Languages, Columns, ReadOptions], Iterator[Item]]


class Format(NamedTuple):
    """How files of a format are read."""

    suffixes: tuple[str, ...]
    read: Reader
    names: Callable[[Path], Names]
    varieties: Callable[[Path, bool], Varieties] | None = None
    """Count the varieties of languages in a file whose text has language codes; the flag skips damaged units."""


def _table(suffixes: tuple[str, ...], records: Callable[[Path], Iterator[TableRecord]], separator: str) -> Format:
    def read(path: Path, languages: Languages, columns: Columns, options: ReadOptions) -> Iterator[Row]:
        return delimited.read_table(path, records(path), languages, columns, separator)

    return Format(suffixes, read, lambda path: delimited.first_cells(records(path)))


def _without_options(read: Callable[[Path, Languages, Columns], Iterator[Row]]) -> Reader:
    return lambda path, languages, columns, options: read(path, languages, columns)


FORMATS: Mapping[str, Format] = {
    "tsv": _table((".tsv",), delimited.tsv_records, "tab"),
    "plain_tsv": _table((), delimited.plain_records, "tab"),
    "csv": _table((".csv",), lambda path: delimited.quoted_records(path, ","), "comma"),
    "json": Format((".jsonl", ".json"), _without_options(tables.read_json), tables.names_in_json),
    "parquet": Format((".parquet",), _without_options(tables.read_parquet), tables.names_in_parquet),
    "tmx": Format((".tmx",), read_tmx, names_in_tmx, varieties_in),
    "xliff": Format((".xlf", ".xliff"), read_xliff, names_in_xliff, varieties_in_xliff),
    "po": Format((".po",), _without_options(read_po), target_in_po),
}
"""Formats by name; the option `format` of a source takes the names in `FormatName`."""
BY_SUFFIX: Mapping[str, Format] = {suffix: format for format in FORMATS.values() for suffix in format.suffixes}


def suffix_of(path: Path) -> str | None:
    """The suffix of a file with both sides, such as `.po` or `.tsv.gz`; None if its format is unknown."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    is_compressed = path.suffix != kind
    is_readable = kind in BY_SUFFIX and not (kind == ".parquet" and is_compressed)
    return kind + path.suffix * is_compressed if is_readable else None


def format_of(path: Path, name: str | None = None) -> Format:
    """Format called `name`, or without a name the format of the suffix; raises CorpusError if it is unknown."""
    if name is not None:
        return FORMATS[name]
    suffix = suffix_of(path)
    if suffix is None:
        raise CorpusError(
            f"{path}: unknown format; use one of {', '.join(BY_SUFFIX)}, or set `format` (mt init --format) to "
            f"{', '.join(get_args(FormatName))}; of two files with a sentence per line, give both"
        )
    return BY_SUFFIX["." + suffix.split(".")[1]]


def read_file(path: Path, languages: Languages, columns: Columns, options: ReadOptions) -> Iterator[Item]:
    """Rows and events of a file with both sides.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    return format_of(path, options.format_name).read(path, languages, columns, options)


def names_in(path: Path, format_name: str | None = None) -> Names:
    """Names of the sides: languages of a memory, the target language of gettext, otherwise columns.

    The columns of a table without a heading are its first cells. Raises CorpusError if the format is unknown or the
    file cannot be read.
    """
    return format_of(path, format_name).names(path)
