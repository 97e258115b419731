"""Kinds of corpus source: reading, names and fingerprints.

A new kind is a subclass of `TextSource`, a member of `Source` in `config/sources.py`, and a case in the functions here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import (
    BuiltinSource,
    DatasetSource,
    FileSource,
    FilesSource,
    FolderSource,
    Source,
    TextSource,
)
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.dataset import commit_of, identity_of_dataset, read_dataset
from mt_cli.corpus.folder import files_in_folder, places_in_folder, read_folder
from mt_cli.corpus.formats.delimited import plain_records, read_table
from mt_cli.corpus.formats.table import format_of, read_file
from mt_cli.corpus.lines import count_lines, read_lines
from mt_cli.corpus.misalignment import first_misaligned_line
from mt_cli.corpus.practice import reverse_words
from mt_cli.corpus.rows import Languages, ReadReport, Row
from mt_cli.errors import CorpusError

_LINES_PER_BLOCK = 10_000
_ROWS_OF_STREAM = 1_000
_PRACTICE = Path(__file__).parent / "practice"
_LINES_BELONG = "line N of one must translate line N of the other"

T = TypeVar("T")


def read_rows(source: TextSource, languages: Languages, report: ReadReport | None = None) -> Iterator[Row]:
    """Rows of a source, unchanged; `report` counts what is skipped.

    Raises CorpusError if the source is missing, unreadable, not UTF-8, or misaligned.
    """
    report = ReadReport() if report is None else report
    in_text = languages_in(source, languages)
    match source:
        case DatasetSource():
            rows = read_dataset(source, in_text, report)
        case FilesSource():
            rows = _read_files(source)
        case FileSource():
            rows = read_file(Path(source.file), in_text, source.columns, source.format, report)
        case FolderSource():
            rows = read_folder(source, in_text, report)
        case BuiltinSource():
            rows = _read_builtin(source, in_text)
        case _:
            raise TypeError(source)
    return ((number, second, first) for number, first, second in rows) if source.reverse else rows


def languages_in(source: TextSource, languages: Languages) -> Languages:
    """Languages of the two sides in the text, before `reverse`."""
    first, second = source.languages or languages
    return (second, first) if source.reverse else (first, second)


def content_of(source: TextSource, languages: Languages) -> Any:
    """JSON value that changes when the text of the source, or the beginning of a stream, changes."""
    if source.streaming:
        return list(islice(read_rows(source, languages), _ROWS_OF_STREAM))
    if isinstance(source, DatasetSource):
        return identity_of_dataset(source)
    return [(str(path), digest_of_file(path)) for path in files_of(source)]


def files_of(source: TextSource) -> list[Path]:
    match source:
        case FilesSource():
            return [Path(path) for path in source.files]
        case FileSource():
            return [Path(source.file)]
        case FolderSource():
            return files_in_folder(source)
        case BuiltinSource():
            return [_practice_file(source)]
    return []


def names_of(sources: Sequence[TextSource]) -> list[str]:
    """Names of sources in reports; duplicates get the name of the second file, or a number."""
    names = [_name_of(source) for source in sources]
    names = [
        _name_of(source, 1) if isinstance(source, FilesSource) and names.count(name) > 1 else name
        for source, name in zip(sources, names, strict=True)
    ]
    numbered = [f"{name} {names[:index].count(name) + 1}" for index, name in enumerate(names)]
    return [long if names.count(name) > 1 else name for name, long in zip(names, numbered, strict=True)]


def _name_of(source: TextSource, number: int = 0) -> str:
    """Name of a source; two files have the name of the file with this number."""
    if source.name:
        return source.name
    match source:
        case DatasetSource():
            name = " ".join(filter(None, (source.dataset, source.subset)))
        case BuiltinSource():
            name = source.builtin
        case FolderSource():
            name = source.root.absolute().name
        case _:
            name = files_of(source)[number].name
    return name + " reversed" * source.reverse


def places_in(corpus: CorpusConfig, name: str, rows: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Places of rows of a corpus, for people; a row is the name of its source and its number."""
    sources = corpus.groups.get(name) or corpus.train  # A held-out share is in the sources of `train`.
    places = dict[tuple[str, int], str]()
    for origin, source in zip(names_of(sources), sources, strict=True):
        numbers = {number for row_origin, number in rows if row_origin == origin}
        if numbers and isinstance(source, FolderSource):
            in_source = places_in_folder(source, languages_in(source, corpus.languages), numbers)
        else:
            unit = "row" if isinstance(source, DatasetSource) else "line"
            unit = format_of(Path(source.file), source.format).unit if isinstance(source, FileSource) else unit
            in_source = {number: f"{unit} {number:,}" for number in numbers}
        places |= {(origin, number): place for number, place in in_source.items()}
    return places


def with_commits(corpus: CorpusConfig, previous: CorpusConfig | None = None) -> CorpusConfig:
    """Give each dataset of the hub a revision, so that a saved config describes the same text.

    A missing revision comes from `previous` or, if that has none, is the current commit. Raises the errors of
    `commit_of`.
    """
    before = previous.groups if previous else {}
    return corpus.with_groups(
        {
            name: tuple(map(_with_commit, sources, (*before.get(name, ()), *[None] * len(sources))))
            for name, sources in corpus.groups.items()
        }
    )


def _with_commit(source: Source, before: Source | None) -> Source:
    if not isinstance(source, DatasetSource) or source.revision is not None:
        return source
    if isinstance(before, DatasetSource) and before.model_copy(update={"revision": None}) == source:
        return before
    return source.model_copy(update={"revision": commit_of(source)})


def in_blocks(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    while block := list(islice(rows, size)):
        yield block


def _read_files(source: FilesSource) -> Iterator[Row]:
    first, second = map(Path, source.files)
    if not source.streaming:  # Counting needs a full pass.
        _check_line_counts(first, second)
    number = 0
    try:
        for number, pair in enumerate(zip(read_lines(first), read_lines(second), strict=True), start=1):
            yield number, *pair
    except ValueError:
        raise CorpusError(f"{first} and {second}: one ends after {number:,} lines; {_LINES_BELONG}") from None


def _check_line_counts(*paths: Path) -> None:
    num_sources, num_targets = map(count_lines, paths)
    if num_sources == num_targets:
        return
    blocks = zip(*(in_blocks(read_lines(path), _LINES_PER_BLOCK) for path in paths), strict=False)
    lines = enumerate(first_misaligned_line(*block) for block in blocks)
    first = next((number * _LINES_PER_BLOCK + line for number, line in lines if line is not None), None)
    near = "" if first is None else f"; they seem to diverge near line {first:,}"
    numbers = f"{paths[0]} has {num_sources:,} lines and {paths[1]} has {num_targets:,}"
    shorter, missing = paths[num_targets < num_sources], abs(num_sources - num_targets)
    raise CorpusError(
        f"{numbers}: {_LINES_BELONG}{near}. A copy of {shorter} with {missing:,} empty lines more at its end can be "
        "read, and mt data check --write-clean then moves the lines to their partners"
    )


def _read_builtin(source: BuiltinSource, languages: Languages) -> Iterator[Row]:
    path = _practice_file(source)
    if path.suffix == ".gz":
        header = 0, source.builtin.split("-")[1:]  # Its languages decide which side is the source.
        return read_table(path, chain([header], plain_records(path)), languages, None, ReadReport())
    return ((number, *pair) for number, pair in enumerate(reverse_words.reversed_words(source.split), start=1))


def _practice_file(source: BuiltinSource) -> Path:
    """File with the pairs of a built-in corpus, or with the program that generates them."""
    if source.builtin == "reverse-words" and source.split in reverse_words.SIZES:
        return Path(reverse_words.__file__)
    path = _PRACTICE / f"{source.builtin}.{source.split}.tsv.gz"
    if path not in _PRACTICE.iterdir():
        raise CorpusError(f"builtin {source.builtin}: there is no split {source.split!r}")
    return path
