"""A folder of files of one format, such as the catalogues of a program, read as one corpus."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePath

from mt_cli.config.sources import FolderSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.formats.table import FORMATS, format_of, names_in, read_file
from mt_cli.corpus.languages import primary
from mt_cli.corpus.read_report import SKIP_HINT, Item, SkippedFile
from mt_cli.corpus.rows import Languages
from mt_cli.corpus.varieties import ChosenVarieties, Varieties, chosen_varieties, is_variety_of, nearest_variety
from mt_cli.errors import ColumnError, CorpusError

_LISTED = 20


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
        number: f"{path.relative_to(source.folder).as_posix()}, {format_of(path, source.format).unit} {line:,}"
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
        with _skipping(source):
            varieties.update(count(path))
    return varieties


def _items_of_files(source: FolderSource, languages: Languages) -> Iterator[tuple[Path, Item]]:
    paths, damaged = files_in_folder(source), list[str]()
    num_files, chosen = len(paths), None
    if format_of(paths[0], source.format) is FORMATS["po"]:
        paths, chosen = _catalogues_in(paths, languages[1], source)
        yield paths[0], chosen
    elif (varieties := varieties_in_folder(source)) is not None:
        chosen = chosen_varieties(varieties, source.columns or languages, source.folder)
        yield paths[0], chosen
    for path in paths:
        items = read_file(path, languages, source.columns, source.format, chosen)
        if not source.skip_damaged:
            yield from ((path, item) for item in _with_hint(items))
            continue
        try:
            rows = list(items)  # A file is skipped as a whole.
        except ColumnError:
            raise
        except CorpusError as error:
            damaged.append(str(error).removeprefix(f"{Path(source.folder)}/"))
            yield path, SkippedFile(damaged[-1], num_files)
            continue
        yield from ((path, item) for item in rows)
    if len(damaged) == len(paths):
        raise CorpusError(f"folder {source.folder}: all of its files are damaged, the first: {damaged[0]}")


@contextmanager
def _skipping(source: FolderSource) -> Iterator[None]:
    """Context in which a file is examined; a damaged one is skipped, or its error says how."""
    try:
        yield
    except CorpusError as error:
        if not source.skip_damaged:
            raise CorpusError(f"{error}; {SKIP_HINT}") from None


def _with_hint(items: Iterator[Item]) -> Iterator[Item]:
    """Items of a file; an error also says how damaged files are skipped."""
    while True:
        try:
            item = next(items, None)
        except ColumnError:
            raise
        except CorpusError as error:
            raise CorpusError(f"{error}; {SKIP_HINT}") from None
        if item is None:
            return
        yield item


def _catalogues_in(paths: Sequence[Path], target: str, source: FolderSource) -> tuple[list[Path], ChosenVarieties]:
    """Catalogues with translations into one language, and the note on the others; those that name none are read.

    If all name the same language, an option of the user stands above it. Raises CorpusError if they name several
    languages, and the target is none of them.
    """
    codes, where = dict.fromkeys(paths, ""), source.folder
    for path in paths:
        with _skipping(source):
            codes[path] = next(iter(names_in(path, source.format).names), "")
    named = sorted({code for code in codes.values() if code})
    nearest = nearest_variety(target, named)
    if nearest is None and len({primary(code) for code in named}) > 1:
        listed = ", ".join(named[:_LISTED])
        raise CorpusError(f"{where}: no catalogue is in `{target}`; their headers or names say {listed}")
    others = [code for code in named if nearest is not None and not is_variety_of(code, nearest)]
    notes = []
    if others:
        numbers = [sum(code == other for code in codes.values()) for other in others]
        listed = ", ".join(f"{code} ({number:,})" for code, number in zip(others[:_LISTED], numbers, strict=False))
        notes = [f"{where}: `{target}` is read from catalogues in {nearest}; catalogues not read: {listed}"]
    elif nearest is None and named:
        notes = [f"{where}: the headers or names of the catalogues say {', '.join(named)}; read as `{target}`"]
    return [path for path in paths if codes[path] not in others], ChosenVarieties({}, notes)
