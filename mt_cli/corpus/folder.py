"""A folder of files of one format, such as the catalogues of a program, read as one corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path, PurePath

from mt_cli.config.corpora import FolderSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.formats import read_file
from mt_cli.corpus.rows import Languages, Row
from mt_cli.errors import CorpusError


def files_in_folder(source: FolderSource) -> list[Path]:
    """The files of a folder that fit its pattern, by name; raises CorpusError if there are none."""
    folder, where = Path(source.folder), f"folder {source.folder}"
    if ".." in PurePath(source.pattern).parts or PurePath(source.pattern).is_absolute():
        raise CorpusError(f"{where}: the pattern {source.pattern} leads out of the folder")
    if not folder.is_dir():
        raise CorpusError(f"{where}: {'is a file; use `file`' if folder.exists() else 'no such folder'}")
    found = sorted((path for path in folder.glob(source.pattern) if path.is_file()), key=Path.as_posix)
    if not found:
        raise CorpusError(f"{where}: has no file {source.pattern}")
    return found


def read_folder(source: FolderSource, languages: Languages) -> Iterator[Row]:
    """The rows of all files, numbered through; raises CorpusError as `read_file` does."""
    for number, (_, row) in enumerate(_rows_of_files(source, languages), start=1):
        yield number, row[1], row[2]


def places_in_folder(source: FolderSource, languages: Languages, numbers: Collection[int]) -> dict[int, str]:
    """The file and the line of each of some rows, for people."""
    places = {}
    for number, (path, row) in enumerate(_rows_of_files(source, languages), start=1):
        if number in numbers:
            places[number] = f"{path.relative_to(source.folder).as_posix()}, line {row[0]:,}"
            if len(places) == len(numbers):
                break
    return places


def content_of_folder(source: FolderSource) -> list[tuple[str, str]]:
    """The name and the SHA-256 of each file."""
    folder = Path(source.folder)
    return [(path.relative_to(folder).as_posix(), digest_of_file(path)) for path in files_in_folder(source)]


def _rows_of_files(source: FolderSource, languages: Languages) -> Iterator[tuple[Path, Row]]:
    for path in files_in_folder(source):
        for row in read_file(path, languages, source.columns, source.format):
            yield path, row
