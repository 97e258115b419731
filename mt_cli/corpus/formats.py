"""The table of formats of parallel text: for each suffix or name, how rows and the names of their sides are read.

A reader is a generator of rows, (number, source, target), and holds only a piece of the file in memory. The number is
that of the line, record or table row, from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus import delimited, tables
from mt_cli.corpus.gettext import read_po, target_in_po
from mt_cli.corpus.lines import COMPRESSIONS, read_lines
from mt_cli.corpus.record import Reading
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.tmx import names_in_tmx, read_tmx, varieties_in
from mt_cli.corpus.varieties import Varieties
from mt_cli.errors import CorpusError

Reader = Callable[[Path, Languages, Columns, Reading], Iterator[Row]]


class Format(NamedTuple):
    """How files of one suffix are read."""

    read: Reader
    names: Callable[[Path], Names]
    varieties: Callable[[Path, bool], Varieties] | None = None
    """The varieties of languages in a file whose text is marked with codes, perhaps without its damaged units."""


def _without_options(read: Callable[[Path, Languages, Columns], Iterator[Row]]) -> Reader:
    """The reader of a format that has no options."""
    return lambda path, languages, columns, reading: read(path, languages, columns)


_FORMATS: Mapping[str, Format] = {
    ".tsv": Format(_without_options(delimited.read_tsv), delimited.names_in_tsv),
    ".csv": Format(_without_options(delimited.read_csv), delimited.names_in_csv),
    ".jsonl": Format(_without_options(tables.read_json), tables.names_in_json),
    ".json": Format(_without_options(tables.read_json), tables.names_in_json),
    ".parquet": Format(_without_options(tables.read_parquet), tables.names_in_parquet),
    ".tmx": Format(read_tmx, names_in_tmx, varieties_in),
    ".po": Format(read_po, target_in_po),
}
NAMED_FORMATS: Mapping[str, Format] = {
    "tsv": _FORMATS[".tsv"],
    "plain_tsv": Format(_without_options(delimited.read_plain_tsv), delimited.names_in_plain_tsv),
    "quoted_tsv": Format(_without_options(delimited.read_quoted_tsv), delimited.names_in_quoted_tsv),
    "csv": _FORMATS[".csv"],
    "json": _FORMATS[".json"],
}
"""Formats by the value of the option `format` of a source; `config/sources.py` lists the values."""
_LINES_EXAMINED = 20


def suffix_of(path: Path) -> str | None:
    """The suffix of a file with both sides, such as `.po` or `.tsv.gz`; None if its format is not known."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    is_known = kind in _FORMATS and (kind != ".parquet" or path.suffix == kind)
    return kind + (path.suffix if path.suffix != kind else "") if is_known else None


def format_of(path: Path, name: str | None = None) -> Format:
    """The format of a file: the one called `name`, otherwise by its suffix; raises CorpusError if it is unknown."""
    if name is not None:
        return NAMED_FORMATS[name]
    suffix = suffix_of(path)
    if suffix is None:
        raise CorpusError(f"{path}: unknown format; {_advice_on_format(path)}")
    kind = "." + suffix.split(".")[1]
    return _FORMATS[kind]


def _advice_on_format(path: Path) -> str:
    """How to say the format of a file whose suffix does not tell it, by its first lines."""
    lines: list[str] = []
    with suppress(CorpusError):
        lines = [line for line in islice(read_lines(path), _LINES_EXAMINED) if line.strip()]
    if lines and all("\t" in line for line in lines):
        return "its lines have tabs: set `format: tsv` (mt init: --format tsv)"
    if lines and all(line.lstrip().startswith("{") for line in lines):
        return "its lines are JSON objects: set `format: json` (mt init: --format json)"
    known = f"use one of {', '.join(_FORMATS)}"
    return f"{known}, or set `format` to {', '.join(NAMED_FORMATS)}; of two files with a sentence per line, give both"


def read_file(
    path: Path, languages: Languages, columns: Columns = None, reading: Reading | None = None
) -> Iterator[Row]:
    """The rows of a file with both sides, in the format that `reading` names or, without it, by its suffix.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    reading = reading or Reading()
    return format_of(path, reading.format_name).read(path, languages, columns, reading)


def names_in(path: Path, format_name: str | None = None) -> Names:
    """The languages of a translation memory or of `translation`, the target language of gettext, otherwise columns.

    Those of a table without a heading are its first cells. Raises CorpusError if the format is unknown or the file
    cannot be read.
    """
    return format_of(path, format_name).names(path)
