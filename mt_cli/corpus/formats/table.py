"""Table of formats of parallel text: how rows and the names of their sides are read.

A reader yields rows, (number, source, target), and holds only a piece of the file in memory. Numbers count lines, or
table rows of Parquet, from 1. Text is not changed, and blank sides are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args
from zipfile import BadZipFile, ZipFile

from mt_cli.config.sources import FormatName
from mt_cli.corpus.formats import delimited, gettext, structured, tmx, xliff
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.read_report import Item
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.varieties import ChosenVarieties, Varieties, chosen_varieties, plain_code
from mt_cli.errors import CorpusError

_NO_TEXTS = ("/", "README", "LICENSE", ".xml", ".ids", ".info")
"""Ends of the names of other files in the archives of OPUS."""
_LISTED = 3
Reader = Callable[[Path, Languages, Columns, ChosenVarieties | None], Iterator[Item]]


class Format(NamedTuple):
    """Functions that read files of a format."""

    suffixes: tuple[str, ...]
    read: Reader
    names: Callable[[Path], Names]
    varieties: Callable[[Path], Varieties] | None = None
    """Count the varieties of languages in a file whose text has language codes."""
    unit: str = "line"
    """What the numbers of its rows count."""


def _format(
    suffixes: tuple[str, ...],
    read: Callable[[Path, Languages, Columns], Iterator[Row]],
    names: Callable[[Path], Names],
    unit: str = "line",
) -> Format:
    return Format(suffixes, lambda path, languages, columns, _: read(path, languages, columns), names, None, unit)


def _table(suffixes: tuple[str, ...], records: Callable[[Path], Iterator[delimited.Record]], separator: str) -> Format:
    def read(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
        return delimited.read_table(path, records(path), languages, columns, separator)

    return _format(suffixes, read, lambda path: delimited.first_cells(records(path)))


def _memory(
    suffixes: tuple[str, ...],
    read: Callable[[Path, ChosenVarieties], Iterator[Item]],
    varieties_in: Callable[[Path], Varieties],
) -> Format:
    """Format with language codes. The varieties are chosen by the codes of all units, so a file is read twice."""

    def read_chosen(
        path: Path, languages: Languages, columns: Columns, varieties: ChosenVarieties | None
    ) -> Iterator[Item]:
        if varieties is None:
            varieties = chosen_varieties(varieties_in(path), columns or languages, str(path))
            yield varieties
        yield from read(path, varieties)

    def names(path: Path) -> Names:
        return Names(list(dict.fromkeys(map(plain_code, varieties_in(path).counts))), True)

    return Format(suffixes, read_chosen, names, varieties_in)


FORMATS: Mapping[str, Format] = {
    "tsv": _table((".tsv",), delimited.tsv_records, "tab"),
    "plain_tsv": _table((), delimited.plain_records, "tab"),
    "csv": _table((".csv",), lambda path: delimited.quoted_records(path, ","), "comma"),
    "json": _format((".jsonl", ".json"), structured.read_json, structured.names_in_json),
    "parquet": _format((".parquet",), structured.read_parquet, structured.names_in_parquet, "row"),
    "tmx": _memory((".tmx",), tmx.read_tmx, tmx.varieties_in_tmx),
    "xliff": _memory((".xlf", ".xliff"), xliff.read_xliff, xliff.varieties_in_xliff),
    "po": _format((".po",), gettext.read_po, gettext.target_in_po),
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
    if path.suffix == ".zip":
        raise CorpusError(f"{path}: is a ZIP archive{_names_in_archive(path)}; unpack it, and give the files in it")
    if suffix is None:
        raise CorpusError(
            f"{path}: unknown format; use one of {', '.join(BY_SUFFIX)}, or set `format` (mt init --format) to "
            f"{', '.join(get_args(FormatName))}; of two files with a sentence per line, give both"
        )
    return BY_SUFFIX["." + suffix.split(".")[1]]


def _names_in_archive(path: Path) -> str:
    """Names of the texts in an archive, for messages; empty if it cannot be read."""
    try:
        with ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith(_NO_TEXTS)]
    except (OSError, BadZipFile):
        return ""
    return f" with {' and '.join(names[:_LISTED])}{' and others' * (len(names) > _LISTED)}" if names else ""


def read_file(
    path: Path,
    languages: Languages,
    columns: Columns,
    format_name: str | None = None,
    varieties: ChosenVarieties | None = None,
) -> Iterator[Item]:
    """Rows and events of a file with both sides; `varieties` are chosen for all files of a folder.

    Raises CorpusError if the format is unknown, or the file cannot be read or is not in its format.
    """
    return format_of(path, format_name).read(path, languages, columns, varieties)


def names_in(path: Path, format_name: str | None = None) -> Names:
    """Names of the sides: languages of a memory, the target language of gettext, otherwise columns.

    The columns of a table without a header are its first cells. Raises CorpusError if the format is unknown or the
    file cannot be read.
    """
    return format_of(path, format_name).names(path)
