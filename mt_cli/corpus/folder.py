"""A folder of files of one format, such as the catalogues of a program, read as one corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path, PurePath

from mt_cli.config.sources import FolderSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.formats import format_of, read_file
from mt_cli.corpus.record import SKIP_HINT, Reading, Record, reading_of
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.varieties import Varieties, chosen_varieties
from mt_cli.errors import ColumnError, CorpusError


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


def read_folder(source: FolderSource, languages: Languages, record: Record) -> Iterator[Row]:
    """The rows of all files, numbered through; raises CorpusError as `read_file` does."""
    for number, (_, row) in enumerate(_rows_of_files(source, languages, record), start=1):
        yield number, row[1], row[2]


def places_in_folder(source: FolderSource, languages: Languages, numbers: Collection[int]) -> dict[int, str]:
    """The file and the line of each of some rows, for people."""
    places = {}
    for number, (path, row) in enumerate(_rows_of_files(source, languages, Record()), start=1):
        if number in numbers:
            places[number] = f"{path.relative_to(source.folder).as_posix()}, line {row[0]:,}"
            if len(places) == len(numbers):
                break
    return places


def content_of_folder(source: FolderSource) -> list[tuple[str, str]]:
    """The name and the SHA-256 of each file."""
    folder = Path(source.folder)
    return [(path.relative_to(folder).as_posix(), digest_of_file(path)) for path in files_in_folder(source)]


def varieties_in_folder(source: FolderSource) -> Varieties | None:
    """The varieties of languages in all files together; None if their format has no codes of languages."""
    varieties = Varieties()
    for path in files_in_folder(source):
        count = format_of(path, source.format).varieties
        if count is None:
            return None
        with suppress(CorpusError) if source.skip_damaged else nullcontext():
            varieties.update(count(path, source.skip_damaged))
    return varieties


def _rows_of_files(source: FolderSource, languages: Languages, record: Record) -> Iterator[tuple[Path, Row]]:
    chosen = None
    if (varieties := varieties_in_folder(source)) is not None:
        chosen = chosen_varieties(varieties, source.columns or languages, source.folder, record)
    paths = files_in_folder(source)
    for path in paths:
        reading = reading_of(source, record, chosen)
        record.num_read["file"] += 1
        if source.skip_damaged and (damage := _damage(path, source, languages, reading)):
            record.skip("file", damage.removeprefix(f"{Path(source.folder)}/"))
            continue
        try:
            for row in read_file(path, languages, source.columns, reading):
                yield path, row
        except ColumnError:
            raise
        except CorpusError as error:
            hint = "" if SKIP_HINT in str(error) or source.skip_damaged else f"; {SKIP_HINT}"
            raise CorpusError(f"{error}{hint}") from None
    if record.num_skipped["file"] == len(paths):
        raise CorpusError(
            f"folder {source.folder}: all of its files are damaged, the first: {record.skipped['file'][0]}"
        )


def _damage(path: Path, source: FolderSource, languages: Languages, reading: Reading) -> str:
    """Why a file cannot be read to its end; empty if it can."""
    try:
        for _ in read_file(path, languages, source.columns, replace(reading, record=Record())):
            pass
    except ColumnError:
        raise
    except CorpusError as error:
        return str(error)
    return ""
