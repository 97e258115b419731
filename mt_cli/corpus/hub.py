"""Parallel text from Hugging Face `datasets`: the hub, or a local folder with the same layout.

`datasets` finds the files of a configuration and reads them. It makes no request and keeps nothing on disk: files of
the hub are downloaded by `machine/hub.py`, those of a stream are read by `corpus/hub_stream.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile

from mt_cli.config.sources import DatasetSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.delimited import hint_at_heading
from mt_cli.corpus.hub_dataset import Dataset, splits_in
from mt_cli.corpus.lines import folder_note
from mt_cli.corpus.rows import Languages, Names, Row
from mt_cli.corpus.tables import pick_columns, rows_of_tables
from mt_cli.errors import ColumnError, CorpusError, MtError, one_line
from mt_cli.machine.console import say
from mt_cli.machine.hub import Repository, find, is_known
from mt_cli.machine.hub_files import download
from mt_cli.machine.hub_requests import import_clients
from mt_cli.machine.storage import writing

_NAMES_SHOWN = 20
_DESCRIPTIONS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""The files that say which configurations a dataset has."""
_READER = 3
"""Version of what is read of a dataset; higher if another version reads other rows."""


def read_dataset(source: DatasetSource, languages: Languages) -> Iterator[Row]:
    """The rows of a split, from its text columns or its `translation` column.

    Raises CorpusError if the dataset has no such split or columns, or is damaged; InputError if there is no such
    dataset; MtError if the hub cannot be reached.
    """
    dataset = _open(source)
    names = dataset.column_names(source.split)
    try:
        columns, keys = pick_columns(names, languages, source.columns, dataset.title)
    except ColumnError as error:
        raise ColumnError(error.problem, hint_at_heading(names) if dataset.is_csv else "") from None
    return rows_of_tables(dataset.tables(source.split, columns), columns, keys, dataset.title)


def splits_of(source: DatasetSource) -> list[str]:
    """The names of the splits of a dataset; raises the errors of `read_dataset`."""
    return list(_open(source).files)


def names_in_dataset(source: DatasetSource) -> Names:
    """The columns of a split, or the languages of its column `translation`; raises the errors of `read_dataset`."""
    dataset = _open(source)
    names = dataset.column_names(source.split)
    if "translation" in names:
        return Names(list(dataset.first_row(source.split).get("translation") or {}), True)
    if dataset.is_csv and (hint := hint_at_heading(names)):
        raise CorpusError(f"{dataset.title}: its first columns are called {', '.join(map(repr, names[:2]))}{hint}")
    return Names(names, False)


def commit_of_dataset(source: DatasetSource) -> str | None:
    """The commit of a dataset of the hub; None for a local folder."""
    return None if _is_local(source) else _repository(source).commit


def identity_of_dataset(source: DatasetSource) -> Any:
    """A JSON value that changes when the rows of a source change; raises CorpusError if it cannot be read."""
    if not _is_local(source):
        return [_repository(source).commit, _READER]  # What is read of a commit depends on options alone.
    dataset = _open(source)
    paths = [*dataset.paths(splits_in(source.split)), *(dataset.root / name for name in _DESCRIPTIONS)]
    return [[path.name, digest_of_file(path)] for path in paths if path.is_file()]


def _repository(source: DatasetSource) -> Repository:
    note = f"; there is no such folder either{folder_note(Path(source.dataset))}"
    return find("dataset", source.dataset, source.revision, note)


def _is_local(source: DatasetSource) -> bool:
    return os.path.isdir(source.dataset)  # `Path.is_dir` raises errors for some names.


def _open(source: DatasetSource) -> Dataset:
    """The configuration that a source names."""
    import_clients()
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Errors are in our message.
    if _is_local(source):
        return _open_folder(source)
    repository = _repository(source)
    with TemporaryDirectory(prefix="mt-") as folder:
        root = Path(folder).resolve() / PurePosixPath(repository.id).name
        _lay_out(repository, root)
        return _described(source, root, source.subset, repository)


def _open_folder(source: DatasetSource) -> Dataset:
    path, subset = Path(source.dataset), source.subset
    if source.revision is not None:
        raise CorpusError(
            f"dataset {path}: is a folder here, which has no revisions: remove `revision`; to read the dataset of the "
            "hub with this id, rename the folder, or run mt in another one"
        )
    if is_known("dataset", source.dataset):
        say(f"dataset {path}: read from the folder of this name, not from the hub")
    if subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # Without a dataset card that declares it, a subset is the folder with its name.
        path, subset = path / subset, None
    return _described(source, path.resolve(), subset, None)


def _lay_out(repository: Repository, root: Path) -> None:
    """Make a folder with the layout of a repository: its descriptions, and otherwise empty files.

    The names of files are enough to find those of a configuration, unless they are archives.
    """
    name = PurePosixPath(repository.id).name
    if f"{name}.py" in repository.files:
        raise CorpusError(
            f"dataset {repository.id}: is read by a Python program of its own, which `datasets` runs no more; the hub "
            "may have a copy of it: set `revision: refs/convert/parquet` and `data_files`, such as en-it/*/*.parquet"
        )
    descriptions = [name for name in _DESCRIPTIONS if name in repository.files]
    folder = download(repository, descriptions)
    with writing(root):
        for path in (root / name for name in repository.files):
            if ".." not in path.parts and path.is_relative_to(root):
                with _without_long_names():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
        for name in descriptions:
            shutil.copyfile(folder / name, root / name)


@contextmanager
def _without_long_names() -> Iterator[None]:
    """Context manager for files that may have names that this file system cannot have; such files are left out."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise


def _described(source: DatasetSource, root: Path, subset: str | None, repository: Repository | None) -> Dataset:
    """The configuration of a dataset with this layout."""
    title = f"dataset {source.dataset}"
    try:
        builder = _builder(source, root, subset)
    except BadZipFile:
        if repository is None:
            raise
        archives = [name for name in repository.files if name.endswith(".zip")]
        folder = download(repository, archives)
        for name in archives:
            shutil.copyfile(folder / name, root / name)
        builder = _builder(source, root, subset)
    files: dict[str, list[str]] = {}
    for split, paths in (builder.config.data_files or {}).items():
        found = [Path(os.path.normpath(path)) for path in paths]
        if outside := [path for path in found if not path.is_relative_to(root)]:
            raise CorpusError(f"{title}: the file {outside[0]} of split {split} is not one of its files")
        files[str(split)] = [path.relative_to(root).as_posix() for path in found]
    place = root if repository is None else repository.downloads
    return Dataset(title, builder, place, files, repository, source.streaming)


def _builder(source: DatasetSource, root: Path, subset: str | None) -> Any:
    """The object of `datasets` for a configuration; it reads names and descriptions alone."""
    import datasets
    import yaml

    title, chosen = f"dataset {source.dataset}", None
    if source.data_files is not None:
        patterns = [source.data_files] if isinstance(source.data_files, str) else list(source.data_files)
        chosen = {splits_in(source.split)[0]: patterns}
    try:
        if "://" in json.dumps([chosen, _configs_in(root / "README.md")]):
            raise CorpusError(f"{title}: data_files names files of another place; only its own files are read")
        with TemporaryDirectory(prefix="mt-") as folder:  # For its locks.
            return datasets.load_dataset_builder(str(root), subset, data_files=chosen, cache_dir=folder)
    except (BadZipFile, MtError):
        raise
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CorpusError(f"{title}: its description (README.md) is damaged: {one_line(error)}") from error
    except FileNotFoundError as error:
        what = f"no file fits data_files {source.data_files}" if chosen else "has no files that `datasets` can read"
        hint = "Parquet, JSON, CSV or TSV; of two files with a sentence per line, give `files`"
        if _is_local(source):
            hint += "; the folder of this name is read, not the hub"
        raise CorpusError(f"{title}: {what} ({hint})") from error
    except Exception as error:
        # The libraries raise dozens of kinds of exceptions.
        known = [] if chosen else _configurations(root)
        if isinstance(error, ValueError) and len(known) > 1 and subset not in known:
            lacks = "has several configurations" if subset is None else f"has no configuration {subset!r}"
            raise CorpusError(f"{title}: {lacks}; set `subset` to one of {_some(known, subset)}") from error
        raise CorpusError(f"{title}: cannot be loaded: {one_line(error)}") from error


def _configs_in(card: Path) -> Any:
    """What a dataset card says about its configurations."""
    from huggingface_hub import metadata_load

    return ((metadata_load(card) if card.is_file() else None) or {}).get("configs")


def _configurations(root: Path) -> list[str]:
    import datasets

    try:
        return list(datasets.get_dataset_config_names(str(root)))
    except Exception:  # What is wrong with it is in the error of the caller.
        return []


def _some(names: Sequence[str], wanted: str | None) -> str:
    """A few of many names, those first that are like another one."""
    alike = get_close_matches(wanted or "", names, n=3) + [
        name for name in names if set(re.split(r"\W", name)) == set(re.split(r"\W", wanted or ""))
    ]
    shown = list(dict.fromkeys([*alike, *names]))[:_NAMES_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} others" if len(names) > len(shown) else "")
