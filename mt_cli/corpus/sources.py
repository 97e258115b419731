"""The kinds of corpus source: how each is read, named and fingerprinted. Knows nothing of filters or the cache.

A new kind is a subclass of `TextSource` and a member of `Source` in `config/sources.py`, and an entry in `_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
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
from mt_cli.corpus.folder import content_of_folder, files_in_folder, places_in_folder, read_folder
from mt_cli.corpus.formats import NAMED_FORMATS, format_of, read_file
from mt_cli.corpus.hub import commit_of_dataset, identity_of_dataset, read_dataset
from mt_cli.corpus.lines import count_lines, read_lines
from mt_cli.corpus.practice import reverse_words
from mt_cli.corpus.quoting import note_on_quoting
from mt_cli.corpus.record import Reading, Record, reading_of
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.slips import first_misaligned_line
from mt_cli.errors import CorpusError

_LINES_PER_BLOCK = 10_000
_ROWS_OF_STREAM = 1_000
_PRACTICE = Path(__file__).parent / "practice"

T = TypeVar("T")


@dataclass(frozen=True)
class _Kind:
    read: Callable[[Any, Languages, Record], Iterator[Row]]
    name: Callable[[Any], str]
    """The name in reports of a source that has no `name`."""
    content: Callable[[Any], Any]
    """A JSON value that changes when the text of the source changes."""
    files: Callable[[Any], Sequence[str | Path]] = lambda source: ()
    """The files that must be on disk."""


def read_rows(source: TextSource, languages: Languages, record: Record | None = None) -> Iterator[Row]:
    """The rows of a source, unchanged; `record` receives what is skipped.

    Raises CorpusError if the source is missing, unreadable, not UTF-8, or misaligned.
    """
    rows = _KINDS[type(source)].read(source, languages_in(source, languages), record or Record())
    return ((number, second, first) for number, first, second in rows) if source.reverse else rows


def languages_in(source: TextSource, languages: Languages) -> Languages:
    """The languages of the two sides as they are in the text, before `reverse`."""
    first, second = source.languages or languages
    return (second, first) if source.reverse else (first, second)


def content_of(source: TextSource, languages: Languages) -> Any:
    """A JSON value that changes when the text of the source changes; for a stream, when its beginning changes."""
    if source.streaming:
        return list(islice(read_rows(source, languages), _ROWS_OF_STREAM))
    return _KINDS[type(source)].content(source)


def files_of(source: TextSource) -> list[Path]:
    """The files that a source is read from; none for a dataset."""
    return [Path(path) for path in _KINDS[type(source)].files(source)]


def places_in(corpus: CorpusConfig, name: str, rows: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """Where rows of a corpus are, for people; each is the name of its source and its number."""
    sources = corpus.groups.get(name) or corpus.train  # A held-out share is in the sources of `train`.
    places: dict[tuple[str, int], str] = {}
    for own, source in zip(names_of(sources), sources, strict=True):
        numbers = {number for each, number in rows if each == own}
        found = {number: f"line {number:,}" for number in numbers}
        if numbers and isinstance(source, FolderSource):
            found |= places_in_folder(source, languages_in(source, corpus.languages), numbers)
        places |= {(own, number): place for number, place in found.items()}
    return places


def notes_on_files(corpus: CorpusConfig) -> list[str]:
    """What users should know about how the files of corpora are read; raises CorpusError if one cannot be read."""
    notes: list[str] = []
    for source in (source for sources in corpus.groups.values() for source in sources):
        if isinstance(source, FileSource | FolderSource):
            tables = [path for path in files_of(source) if format_of(path, source.format) is NAMED_FORMATS["tsv"]]
            of_source = [note for path in tables if (note := note_on_quoting(path))]
            more = f" (likewise {len(of_source) - 1:,} more of the folder)" if len(of_source) > 1 else ""
            notes += [of_source[0] + more] if of_source else []
    return list(dict.fromkeys(notes))


def commit_of(source: TextSource) -> str | None:
    """The commit of a dataset of the Hugging Face hub; None for other sources."""
    return commit_of_dataset(source) if isinstance(source, DatasetSource) else None


def with_commits(corpus: CorpusConfig, previous: CorpusConfig | None = None) -> CorpusConfig:
    """Corpora whose datasets of the hub name a revision: where there is none, that of `previous`, or the commit.

    So a saved config describes the same text everywhere. Raises the errors of `commit_of_dataset`.
    """
    before = previous.groups if previous else {}

    def group(name: str, sources: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(_with_commit, sources, (*before.get(name, ()), *[None] * len(sources))))

    changed = {name: group(name, sources) for name, sources in corpus.groups.items()}
    extra = {name: changed[name] for name in corpus.extra_tests}
    update = {name: changed[name] for name in ("train", "valid", "test") if name in changed}
    return corpus.model_copy(update=update | {"extra_tests": extra})


def _with_commit(source: Source, before: Source | None) -> Source:
    if not isinstance(source, DatasetSource) or source.revision is not None:
        return source
    if isinstance(before, DatasetSource) and before.model_copy(update={"revision": None}) == source:
        return before
    return source.model_copy(update={"revision": commit_of_dataset(source)})


def names_of(sources: Sequence[TextSource]) -> list[str]:
    """The names of sources in reports: where they would be equal, those of the second files, or numbered."""
    names = [source.name or _KINDS[type(source)].name(source) + " reversed" * source.reverse for source in sources]
    names = [
        f"{Path(source.files[1]).name}{' reversed' * source.reverse}"
        if isinstance(source, FilesSource) and source.name is None and names.count(name) > 1
        else name
        for source, name in zip(sources, names, strict=True)
    ]
    numbered = [f"{name} {names[:index].count(name) + 1}" for index, name in enumerate(names)]
    return [long if names.count(name) > 1 else name for name, long in zip(names, numbered, strict=True)]


def in_blocks(rows: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` rows; the last one may be shorter."""
    while block := list(islice(rows, size)):
        yield block


def _read_files(source: FilesSource, languages: Languages, record: Record) -> Iterator[Row]:
    paths = [Path(path) for path in source.files]
    if not source.streaming:  # Counting needs a full pass.
        _check_line_counts(*paths)
    return _read_line_pairs(*paths)


def _read_line_pairs(source_path: Path, target_path: Path) -> Iterator[Row]:
    number = 0
    try:
        pairs = zip(read_lines(source_path), read_lines(target_path), strict=True)
        for number, (source, target) in enumerate(pairs, start=1):
            yield number, source, target
    except ValueError:
        raise CorpusError(
            f"{source_path} and {target_path}: one of them ends after {number:,} lines and the other is longer; line N "
            "of one must translate line N of the other"
        ) from None


def _check_line_counts(source_path: Path, target_path: Path) -> None:
    num_sources, num_targets = count_lines(source_path), count_lines(target_path)
    if num_sources == num_targets:
        return
    for path in (source_path, target_path):
        next(read_lines(path), None)  # A file of another kind is named as such.
    found = _first_misaligned_line(source_path, target_path)
    raise CorpusError(
        f"{source_path} has {num_sources:,} lines and {target_path} has {num_targets:,}: line N of one must "
        f"translate line N of the other{'' if found is None else f'; they seem to diverge near line {found:,}'}"
    )


def _first_misaligned_line(source_path: Path, target_path: Path) -> int | None:
    sides = (in_blocks(read_lines(path), _LINES_PER_BLOCK) for path in (source_path, target_path))
    lines = enumerate(first_misaligned_line(*blocks) for blocks in zip(*sides, strict=False))
    return next((number * _LINES_PER_BLOCK + line for number, line in lines if line is not None), None)


def _digest_of_file(source: FileSource) -> str:
    format_of(Path(source.file), source.format)  # An unknown format is reported before a missing file.
    return digest_of_file(Path(source.file))


def _read_one_file(source: FileSource, languages: Languages, record: Record) -> Iterator[Row]:
    return read_file(Path(source.file), languages, source.columns, reading_of(source, record))


def _read_builtin(source: BuiltinSource, languages: Languages, record: Record) -> Iterator[Row]:
    path = _practice_file(source)
    if path.suffix == ".tsv":
        return read_file(path, languages, reading=Reading("plain_tsv"))
    return ((number, *pair) for number, pair in enumerate(reverse_words.reversed_words(source.split), start=1))


def _practice_file(source: BuiltinSource) -> Path:
    """The file with the pairs of a built-in corpus, or with the program that generates them."""
    if source.builtin == "reverse-words" and source.split in reverse_words.SIZES:
        return Path(reverse_words.__file__)
    path = _PRACTICE / f"{source.builtin}.{source.split}.tsv"
    if path not in _PRACTICE.iterdir():
        raise CorpusError(f"builtin {source.builtin}: there is no split {source.split!r}")
    return path


_KINDS: Mapping[type[TextSource], _Kind] = {
    DatasetSource: _Kind(
        read=lambda source, languages, record: read_dataset(source, languages),
        name=lambda source: " ".join(filter(None, (source.dataset, source.subset))),
        content=identity_of_dataset,
    ),
    FilesSource: _Kind(
        read=_read_files,
        name=lambda source: Path(source.files[0]).name,
        content=lambda source: [digest_of_file(Path(path)) for path in source.files],
        files=lambda source: source.files,
    ),
    FileSource: _Kind(
        read=_read_one_file,
        name=lambda source: Path(source.file).name,
        content=_digest_of_file,
        files=lambda source: [source.file],
    ),
    FolderSource: _Kind(
        read=read_folder,
        name=lambda source: Path(source.folder).name,
        content=content_of_folder,
        files=files_in_folder,
    ),
    BuiltinSource: _Kind(
        read=_read_builtin,
        name=lambda source: source.builtin,
        content=lambda source: digest_of_file(_practice_file(source)),
        files=lambda source: [_practice_file(source)],
    ),
}
