"""A folder of files of one format, such as the catalogues of a program, read as one corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path, PurePath

from mt_cli.config.sources import FolderSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.formats import format_of, read_file
from mt_cli.corpus.read_report import SKIP_HINT, Item, Skipped, options_of
from mt_cli.corpus.rows import Languages
from mt_cli.corpus.varieties import Varieties, chosen_varieties
from mt_cli.errors import ColumnError, CorpusError


def files_in_folder(source: FolderSource) -> list[Path]:
    """Files of a folder that fit its pattern, by name; raises CorpusError if there are none."""
    folder, where = Path(source.folder), f"folder {source.folder}"
    if ".." in PurePath(source.pattern).parts or PurePath(source.pattern).is_absolute():
        raise CorpusError(f"{where}: the pattern {source.pattern} leads out of the folder")
    if not folder.is_dir():
        raise CorpusError(f"{where}: {'is a file; use `file`' if folder.exists() else 'no such folder'}")
    paths = sorted((path for path in folder.glob(source.pattern) if path.is_file()), key=Path.as_posix)
    if not paths:
        raise CorpusError(f"{where}: has no file {source.pattern}")
    return paths


def read_folder(source: FolderSource, languages: Languages) -> Iterator[Item]:
    """Rows of all files, numbered consecutively, and events; raises CorpusError as `read_file` does."""
    number = 0
    for _, item in _items_of_files(source, languages):
        if isinstance(item, tuple):
            number += 1
            yield number, item[1], item[2]
        else:
            yield item


def places_in_folder(source: FolderSource, languages: Languages, numbers: Collection[int]) -> dict[int, str]:
    """Names of the files and lines of the rows with these numbers, for people."""
    rows = ((path, item[0]) for path, item in _items_of_files(source, languages) if isinstance(item, tuple))
    requested = ((number, *row) for number, row in enumerate(rows, start=1) if number in numbers)
    return {
        number: f"{path.relative_to(source.folder).as_posix()}, line {line:,}"
        for number, path, line in islice(requested, len(numbers))
    }


def content_of_folder(source: FolderSource) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file."""
    folder = Path(source.folder)
    return [(path.relative_to(folder).as_posix(), digest_of_file(path)) for path in files_in_folder(source)]


def varieties_in_folder(source: FolderSource) -> Varieties | None:
    """Varieties of languages in all files together; None if their format has no codes of languages."""
    varieties = Varieties()
    for path in files_in_folder(source):
        count = format_of(path, source.format).varieties
        if count is None:
            return None
        with suppress(CorpusError) if source.skip_damaged else nullcontext():
            varieties.update(count(path, source.skip_damaged))
    return varieties


def _items_of_files(source: FolderSource, languages: Languages) -> Iterator[tuple[Path, Item]]:
    paths, chosen, damaged = files_in_folder(source), None, list[str]()
    if (varieties := varieties_in_folder(source)) is not None:
        chosen = chosen_varieties(varieties, source.columns or languages, source.folder)
        yield paths[0], chosen
    options = options_of(source, chosen)
    for path in paths:
        try:
            items = read_file(path, languages, source.columns, options)
            # A file is skipped as a whole, so its rows wait for its end.
            yield from ((path, item) for item in (list(items) if source.skip_damaged else items))
        except ColumnError:
            raise
        except CorpusError as error:
            if not source.skip_damaged:
                raise CorpusError(f"{error}{'' if SKIP_HINT in str(error) else f'; {SKIP_HINT}'}") from None
            damaged.append(str(error).removeprefix(f"{Path(source.folder)}/"))
            yield path, Skipped("file", damaged[-1], len(paths))
    if len(damaged) == len(paths):
        raise CorpusError(f"folder {source.folder}: all of its files are damaged, the first: {damaged[0]}")
