"""Parallel text in repositories of the Hugging Face hub, or in local folders with the same layout.

`datasets` finds the files of a configuration by the card and the names of a repository, in a folder of empty files with
these names. The files of the split are then downloaded, and read as those of other sources: `datasets` itself reads no
snapshot of the hub without a network, and cannot keep `NA` and `007` as text beside a column of numbers with gaps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mt_cli.config.sources import DatasetSource, TextSource
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.formats.table import names_in, read_file
from mt_cli.corpus.hub import Repository, download, find_repository, start_client
from mt_cli.corpus.lines import folder_note
from mt_cli.corpus.rows import Languages, Names, ReadReport, Row
from mt_cli.errors import CorpusError, one_line
from mt_cli.runtime.console import say

_CARDS = ("README.md", "dataset_infos.json")


@dataclass(frozen=True)
class _Dataset:
    """A configuration of a dataset."""

    source: DatasetSource
    root: Path
    """Folder of the files, which may still have to be downloaded."""
    splits: dict[str, list[str]]
    """Names of the files of each split, relative to `root`."""
    repository: Repository | None
    """None for a local folder."""

    @property
    def names(self) -> list[str]:
        if self.source.split not in self.splits:
            problem = f"has no split {self.source.split!r}; it has {', '.join(self.splits)}"
            raise CorpusError(f"dataset {self.source.dataset}: {problem}")
        return self.splits[self.source.split]

    def paths(self, *names: str) -> list[Path]:
        """Files with these names; missing ones are downloaded."""
        if self.repository is not None:
            download(self.repository, names)
        return [self.root / name for name in names]


def read_dataset(source: DatasetSource, languages: Languages, report: ReadReport) -> Iterator[Row]:
    """Rows of a split, numbered consecutively; the files of a stream are downloaded one after the other.

    Raises CorpusError if the dataset has no such split or columns, or is damaged; InputError if there is no such
    dataset; MtError if the hub cannot be reached.
    """
    dataset, number = _open(source), 0
    if not source.streaming:
        dataset.paths(*dataset.names)
    for path in (path for name in dataset.names for path in dataset.paths(name) if path.stat().st_size):
        for _, first, second in read_file(path, languages, source.columns, None, report):
            number += 1
            yield number, first, second


def splits_of(source: DatasetSource) -> list[str]:
    return list(_open(source).splits)


def names_in_dataset(source: DatasetSource) -> Names:
    """Columns of a split, or languages of its column `translation`; raises the errors of `read_dataset`."""
    dataset = _open(source)
    return names_in(dataset.paths(dataset.names[0])[0])


def commit_of(source: TextSource) -> str | None:
    """Commit of a dataset of the hub; None for other sources and for a local folder."""
    return _repository(source).commit if isinstance(source, DatasetSource) and not _is_local(source) else None


def identity_of_dataset(source: DatasetSource) -> Any:
    """JSON value that changes when the rows of a source change; raises CorpusError if it cannot be read."""
    if not _is_local(source):
        return commit_of(source)  # Apart from the commit, only options decide the rows.
    dataset = _open(source)
    return [[name, digest_of_file(dataset.root / name)] for name in dataset.names]


def _repository(source: DatasetSource) -> Repository:
    note = f"; there is no such folder either{folder_note(Path(source.dataset))}"
    return find_repository("dataset", source.dataset, source.revision, note)


def _is_local(source: DatasetSource) -> bool:
    return os.path.isdir(source.dataset)  # `Path.is_dir` raises errors for some names.


def _open(source: DatasetSource) -> _Dataset:
    start_client()
    if not _is_local(source):
        repository = _repository(source)
        with TemporaryDirectory(prefix="mt-") as folder:
            root = Path(folder).resolve() / PurePosixPath(repository.id).name
            _make_layout(repository, root)
            return _Dataset(source, repository.folder, _splits_of_folder(source, root, source.subset), repository)
    path, subset = Path(source.dataset), source.subset
    if source.revision is not None:
        raise CorpusError(f"dataset {path}: is a folder here, which has no revisions: remove `revision`, or rename it")
    if len(path.parts) == 2 and not path.is_absolute() and path.parts[0] != "..":
        _note_folder(path)
    if subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # If no dataset card declares the subset, it is the folder of this name.
        path, subset = path / subset, None
    return _Dataset(source, path.resolve(), _splits_of_folder(source, path.resolve(), subset), None)


@cache  # A command opens a dataset several times.
def _note_folder(path: Path) -> None:
    say(f"dataset {path}: read from the folder of this name, not from the hub")


def _make_layout(repository: Repository, root: Path) -> None:
    """Make a folder with the names of a repository: its cards with content, and empty files."""
    cards = [name for name in _CARDS if name in repository.files]
    folder = download(repository, cards)
    for path in (root / name for name in repository.files if ".." not in PurePosixPath(name).parts):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for name in cards:
        (root / name).write_bytes((folder / name).read_bytes())


def _splits_of_folder(source: DatasetSource, root: Path, subset: str | None) -> dict[str, list[str]]:
    """Names of the files of each split; reads only file names and dataset cards."""
    import datasets
    from huggingface_hub import metadata_load

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Errors are in our message.
    title, patterns = f"dataset {source.dataset}", source.data_files
    files = patterns and {source.split: [patterns] if isinstance(patterns, str) else list(patterns)}
    paths: dict[str, Sequence[str]] | None = None
    try:
        card = (metadata_load(root / _CARDS[0]) if (root / _CARDS[0]).is_file() else None) or {}
        is_elsewhere = "://" in json.dumps([files, card.get("configs")])
        if not is_elsewhere:
            with TemporaryDirectory(prefix="mt-") as folder:  # The builder writes its locks there.
                builder = datasets.load_dataset_builder(str(root), subset, data_files=files, cache_dir=folder)
                paths = builder.config.data_files
    except FileNotFoundError as error:
        problem = "no file fits data_files" if files else "has no files that can be read"
        hint = "Parquet, JSON, CSV or TSV; of two files with a sentence per line, give `files`"
        raise CorpusError(f"{title}: {problem} ({hint})") from error
    except Exception as error:  # The libraries raise dozens of types of exceptions.
        advice = "set `subset` or `data_files` to what it has, or correct its description (README.md)"
        raise CorpusError(f"{title}: cannot be loaded: {one_line(error)}; {advice}") from error
    splits = {str(split): [Path(os.path.normpath(name)) for name in names] for split, names in (paths or {}).items()}
    if is_elsewhere or not all(path.is_relative_to(root) for names in splits.values() for path in names):
        raise CorpusError(f"{title}: data_files names files of another place; only its own files are read")
    return {split: [path.relative_to(root).as_posix() for path in names] for split, names in splits.items()}
