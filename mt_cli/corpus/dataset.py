"""Parallel text from Hugging Face `datasets`: the hub, or a local folder with the same layout.

`datasets` finds the files of a configuration in a folder of empty files with the names of the repository. It makes no
request for that; `machine/hub.py` then downloads the files of the split.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mt_cli.config.sources import DatasetSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.dataset_files import Dataset, split_names
from mt_cli.corpus.delimited import hint_at_heading
from mt_cli.corpus.lines import folder_note
from mt_cli.corpus.rows import Languages, Names, Row
from mt_cli.corpus.tables import pick_columns, rows_of_tables
from mt_cli.errors import ColumnError, CorpusError, MtError, one_line
from mt_cli.machine.console import say
from mt_cli.machine.hub import Repository, download, find_repository, is_recorded, start_client
from mt_cli.machine.storage import writing

_NAMES_SHOWN = 20
_DESCRIPTIONS = ("README.md", ".huggingface.yaml", "dataset_infos.json")
"""Files that name the configurations of a dataset."""
_READER = 3
"""Version of the rows read from a dataset; increase it if another version of `mt` reads other rows."""


def read_dataset(source: DatasetSource, languages: Languages) -> Iterator[Row]:
    """Rows of a split, from its text columns or its `translation` column.

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
    """Names of the splits of a dataset; raises the errors of `read_dataset`."""
    return list(_open(source).files)


def names_in_dataset(source: DatasetSource) -> Names:
    """Columns of a split, or languages of its column `translation`; raises the errors of `read_dataset`."""
    dataset = _open(source)
    names = dataset.column_names(source.split)
    if "translation" in names:
        return Names(list(dataset.first_row(source.split).get("translation") or {}), True)
    if dataset.is_csv and (hint := hint_at_heading(names)):
        raise CorpusError(f"{dataset.title}: its first columns are called {', '.join(map(repr, names[:2]))}{hint}")
    return Names(names, False)


def commit_of_dataset(source: DatasetSource) -> str | None:
    """Commit of a dataset of the hub; None for a local folder."""
    return None if _is_local(source) else _repository(source).commit


def identity_of_dataset(source: DatasetSource) -> Any:
    """JSON value that changes when the rows of a source change; raises CorpusError if it cannot be read."""
    if not _is_local(source):
        return [_repository(source).commit, _READER]  # The rows of a commit depend on options alone.
    dataset = _open(source)
    paths = [*dataset.paths(split_names(source.split)), *(dataset.root / name for name in _DESCRIPTIONS)]
    return [[path.name, digest_of_file(path)] for path in paths if path.is_file()]


def _repository(source: DatasetSource) -> Repository:
    note = f"; there is no such folder either{folder_note(Path(source.dataset))}"
    return find_repository("dataset", source.dataset, source.revision, note)


def _is_local(source: DatasetSource) -> bool:
    return os.path.isdir(source.dataset)  # `Path.is_dir` raises errors for some names.


def _open(source: DatasetSource) -> Dataset:
    """Open the configuration that a source names."""
    start_client()
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Errors are in our message.
    datasets.config.STREAMING_READ_MAX_RETRIES = 1  # The hub's client retries, too, up to five times.
    if _is_local(source):
        return _open_folder(source)
    repository = _repository(source)
    with TemporaryDirectory(prefix="mt-") as folder:
        root = Path(folder).resolve() / PurePosixPath(repository.id).name
        _make_layout(repository, root)
        return _configuration(source, root, source.subset, repository)


def _open_folder(source: DatasetSource) -> Dataset:
    path, subset = Path(source.dataset), source.subset
    if source.revision is not None:
        raise CorpusError(
            f"dataset {path}: is a folder here, which has no revisions: remove `revision`; to read the dataset of the "
            "hub with this id, rename the folder, or run mt in another one"
        )
    if is_recorded("dataset", source.dataset):
        say(f"dataset {path}: read from the folder of this name, not from the hub")
    if subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # A subset that no dataset card declares is the folder with its name.
        path, subset = path / subset, None
    return _configuration(source, path.resolve(), subset, None)


def _make_layout(repository: Repository, root: Path) -> None:
    """Make a folder with the names of a repository: descriptions and archives with content, and empty files."""
    name = PurePosixPath(repository.id).name
    if f"{name}.py" in repository.files:
        raise CorpusError(
            f"dataset {repository.id}: is read by a Python program of its own, which `datasets` runs no more; the hub "
            "may have a copy of it: set `revision: refs/convert/parquet` and `data_files`, such as en-it/*/*.parquet"
        )
    with_content = [name for name in repository.files if name in _DESCRIPTIONS or name.endswith(".zip")]
    folder = download(repository, with_content)
    with writing(root):
        for path in (root / name for name in repository.files):
            if ".." not in path.parts and path.is_relative_to(root):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        for name in with_content:
            shutil.copyfile(folder / name, root / name)


def _configuration(source: DatasetSource, root: Path, subset: str | None, repository: Repository | None) -> Dataset:
    """Configuration of a dataset with this layout."""
    title = f"dataset {source.dataset}"
    builder = _builder(source, root, subset)
    files: dict[str, list[str]] = {}
    for split, names in (builder.config.data_files or {}).items():
        paths = [Path(os.path.normpath(name)) for name in names]
        if outside := [path for path in paths if not path.is_relative_to(root)]:
            raise CorpusError(f"{title}: the file {outside[0]} of split {split} is not one of its files")
        files[str(split)] = [path.relative_to(root).as_posix() for path in paths]
    folder = root if repository is None else repository.downloads
    return Dataset(title, builder, folder, files, repository, source.streaming)


def _builder(source: DatasetSource, root: Path, subset: str | None) -> Any:
    """Builder of `datasets` for a configuration; reads only names, descriptions and archives."""
    import datasets
    import yaml

    title, data_files = f"dataset {source.dataset}", None
    if source.data_files is not None:
        patterns = [source.data_files] if isinstance(source.data_files, str) else list(source.data_files)
        data_files = {split_names(source.split)[0]: patterns}
    try:
        if "://" in json.dumps([data_files, _configs_in(root / "README.md")]):
            raise CorpusError(f"{title}: data_files names files of another place; only its own files are read")
        with TemporaryDirectory(prefix="mt-") as folder:  # For its locks.
            return datasets.load_dataset_builder(str(root), subset, data_files=data_files, cache_dir=folder)
    except MtError:
        raise
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CorpusError(f"{title}: its description (README.md) is damaged: {one_line(error)}") from error
    except FileNotFoundError as error:
        problem = f"no file fits data_files {source.data_files}" if data_files else "has no files that can be read"
        hint = "Parquet, JSON, CSV or TSV; of two files with a sentence per line, give `files`"
        if _is_local(source):
            hint += "; the folder of this name is read, not the hub"
        raise CorpusError(f"{title}: {problem} ({hint})") from error
    except Exception as error:  # The libraries raise dozens of types of exceptions.
        names = [] if data_files else _configuration_names(root)
        if isinstance(error, ValueError) and len(names) > 1 and subset not in names:
            problem = "has several configurations" if subset is None else f"has no configuration {subset!r}"
            raise CorpusError(f"{title}: {problem}; set `subset` to one of {_closest(names, subset)}") from error
        raise CorpusError(f"{title}: cannot be loaded: {one_line(error)}") from error


def _configs_in(card: Path) -> Any:
    """Configurations that a dataset card declares."""
    from huggingface_hub import metadata_load

    return ((metadata_load(card) if card.is_file() else None) or {}).get("configs")


def _configuration_names(root: Path) -> list[str]:
    import datasets

    try:
        return list(datasets.get_dataset_config_names(str(root)))
    except Exception:  # The error of the caller has the reason.
        return []


def _closest(names: Sequence[str], name: str | None) -> str:
    """The names most similar to a name, for a message."""
    shown = get_close_matches(name, names, _NAMES_SHOWN, cutoff=0) if name else names[:_NAMES_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} others" if len(names) > len(shown) else "")
