"""The table of formats of parallel text: for each suffix, how rows and the names of their sides are read.

A reader is a generator of rows, (number, source, target), and holds only a piece of the file in memory. The number is
that of the line, record or table row, from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mt_cli import hooks
from mt_cli.corpus import tables
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.record import Reading
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.varieties import Varieties
from mt_cli.errors import CorpusError


class Format(NamedTuple):
    """How files of one suffix are read."""

    read: Callable[[Path, Languages, Columns, Reading], Iterator[Row]]
    names: Callable[[Path], Names]
    varieties: Callable[[Path, bool], Varieties] | None = None
    """The varieties of languages in a file whose text is marked with codes, perhaps without its damaged units."""


def _without_options(read: Callable[[Path, Languages, Columns], Iterator[Row]]) -> Any:
    """The reader of a format that has no options."""
    return lambda path, languages, columns, reading: read(path, languages, columns)


_FORMATS: Mapping[str, Format] = {
    ".tsv": Format(_without_options(tables.read_tsv), tables.names_in_tsv),
    ".csv": Format(_without_options(tables.read_csv), tables.names_in_csv),
    ".jsonl": Format(_without_options(tables.read_jsonl), tables.names_in_jsonl),
    ".parquet": Format(_without_options(tables.read_parquet), tables.names_in_parquet),
}


def suffix_of(path: Path) -> str | None:
    """The suffix of a file with both sides, such as `.po` or `.tsv.gz`; None if its format is not known."""
    kind = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    is_known = kind in (*_FORMATS, *hooks.FORMATS) and (kind != ".parquet" or path.suffix == kind)
    return kind + (path.suffix if path.suffix != kind else "") if is_known else None


def format_of(path: Path) -> Format:
    """The format of a file, by its name; raises CorpusError if it is unknown."""
    suffix = suffix_of(path)
    if suffix is None:
        raise CorpusError(f"{path}: unknown format; use one of {', '.join((*_FORMATS, *hooks.FORMATS))}")
    kind = "." + suffix.split(".")[1]
    found: Format = _FORMATS.get(kind) or getattr(hooks, hooks.FORMATS[kind])
    return found


def read_file(
    path: Path, languages: Languages, columns: Columns = None, reading: Reading | None = None
) -> Iterator[Row]:
    """The rows of a file with both sides.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    return format_of(path).read(path, languages, columns, reading or Reading())


def names_in(path: Path) -> Names:
    """The languages of a translation memory or of `translation`, the target language of gettext, otherwise columns.

    Those of a table without a heading are its first cells. Raises CorpusError if the format is unknown or the file
    cannot be read.
    """
    return format_of(path).names(path)
