"""A folder of files of one format, such as the catalogues of a program, read as one corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from mt_cli.config.sources import FolderSource
from mt_cli.corpus.formats.table import FORMATS, format_of, names_in, suffix_of
from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import SKIP_HINT, Languages, ReadReport, Row
from mt_cli.corpus.varieties import (
    chosen_varieties,
    contradicts,
    is_in_same_region,
    merged_spellings,
    nearest_variety,
)
from mt_cli.errors import ColumnError, CorpusError
from mt_cli.runtime.console import listed

_SUFFIXES = (".po", ".tmx", ".xlf", ".xliff")


def files_in_folder(source: FolderSource) -> list[Path]:
    """Files of a folder, in the order of their names; raises CorpusError if there are none, or several formats."""
    root, where = source.root, f"folder {source.folder}"
    if not root.is_dir():
        raise CorpusError(f"{where}: {'is a file; use `file`' if root.exists() else 'no such folder'}")
    is_pattern = Path(source.folder) != root
    pattern = Path(source.folder).relative_to(root).as_posix() if is_pattern else "**/*"
    paths = sorted((path for path in root.glob(pattern) if path.is_file()), key=Path.as_posix)
    if not is_pattern:
        kinds = {path: suffix_of(path) or "" for path in paths}
        paths = [path for path in paths if kinds[path].startswith(_SUFFIXES)]
        if len(suffixes := sorted({kinds[path] for path in paths})) > 1:
            advice = f"name those to read by a pattern, such as {root}/**/*{suffixes[0]}"
            raise CorpusError(f"{where}: has files of several formats ({', '.join(suffixes)}); {advice}")
    if not paths:
        problem = "no file fits the pattern" if is_pattern else "has no .po, .tmx or .xlf files"
        raise CorpusError(
            f"{where}: {problem}; a pattern such as {root}/**/*.tsv names files of other formats, and `dataset` "
            "(mt init --dataset) a folder with the layout of the Hugging Face hub"
        )
    return paths


def read_folder(source: FolderSource, languages: Languages, report: ReadReport) -> Iterator[Row]:
    """Rows of all files, numbered consecutively; raises CorpusError as `read_file` does."""
    rows = _rows_of_files(source, languages, report)
    return ((number, first, second) for number, (_, (_, first, second)) in enumerate(rows, start=1))


def places_in_folder(source: FolderSource, languages: Languages, numbers: Collection[int]) -> dict[int, str]:
    """Names of the files and lines of the rows with these numbers, for people."""
    rows = enumerate(_rows_of_files(source, languages, ReadReport()), start=1)
    requested = ((number, path, row[0]) for number, (path, row) in rows if number in numbers)
    return {
        number: f"{path.relative_to(source.root).as_posix()}, {format_of(path, source.format).unit} {line:,}"
        for number, path, line in islice(requested, len(numbers))
    }


def varieties_in_folder(source: FolderSource) -> dict[str, int] | None:
    """Varieties of languages in all files together; None if their format has no codes of languages."""
    counts = Counter[str]()
    for path in files_in_folder(source):
        count = format_of(path, source.format).varieties
        if count is None:
            return None
        with _skipping(source, []):
            counts.update(count(path))
    return merged_spellings(counts)


def _rows_of_files(source: FolderSource, languages: Languages, report: ReadReport) -> Iterator[tuple[Path, Row]]:
    paths, columns = files_in_folder(source), source.columns
    report.num_files = len(paths)
    if format_of(paths[0], source.format) is FORMATS["po"]:
        paths = _catalogues_in(paths, languages[1], source, report)
    elif (varieties := varieties_in_folder(source)) is not None:
        columns = chosen_varieties(varieties, columns or languages, source.folder, report)
    for path in paths:
        with _skipping(source, report.skipped):
            rows = format_of(path, source.format).read(path, languages, columns, report)
            # A damaged file is skipped as a whole.
            yield from ((path, row) for row in (list(rows) if source.skip_damaged else rows))
    if len(report.skipped) == len(paths):
        raise CorpusError(f"folder {source.folder}: all of its files are damaged, the first: {report.skipped[0]}")


@contextmanager
def _skipping(source: FolderSource, skipped: list[str]) -> Iterator[None]:
    """Context in which a file is read; a damaged one is skipped and listed, or its error says how."""
    try:
        yield
    except ColumnError:
        raise
    except CorpusError as error:
        if not source.skip_damaged:
            raise CorpusError(f"{error}; {SKIP_HINT}") from None
        skipped.append(str(error).removeprefix(f"{source.root}/"))


def _catalogues_in(paths: Sequence[Path], target: str, source: FolderSource, report: ReadReport) -> list[Path]:
    """Catalogues with translations into one language, with a note on the others; those that name none are read.

    If all name the same language, an option of the user stands above it. Raises CorpusError if they name several
    languages, and the target is none of them.
    """
    codes, where = dict.fromkeys(paths, ""), source.folder
    for path in paths:
        with _skipping(source, []):
            codes[path] = next(iter(names_in(path, source.format).names), "")
    named = Counter(sorted(filter(None, codes.values())))
    nearest = nearest_variety(target, named)
    if nearest is None and len(set(map(primary, named))) > 1:
        raise CorpusError(f"{where}: no catalogue is in `{target}`; their headers or names say {listed([*named], 20)}")
    others = [code for code in named if nearest is not None and not is_in_same_region(code, nearest)]
    if nearest is None and named:
        report.choices.append(
            f"{where}: the headers or names of the catalogues say {', '.join(named)}; read as `{target}`"
        )
    elif nearest is not None and (others or contradicts(target, nearest)):
        counts = listed([f"{code} ({named[code]:,})" for code in others], 20)
        rest = f"; catalogues not read: {counts}" if others else ""
        report.choices.append(f"{where}: `{target}` is read from catalogues in {nearest}{rest}")
    return [path for path in paths if codes[path] not in others]
