"""Parallel text from Hugging Face `datasets`: the hub, or a local folder with the same layout."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from mt_cli.config.corpora import DatasetSource
from mt_cli.corpus.lines import folder_note
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.tables import pick_columns, rows_of_tables
from mt_cli.errors import CorpusError, one_line
from mt_cli.machine.console import has_bars

_ROWS_PER_TABLE = 1_000


def read_dataset(source: DatasetSource, languages: Languages) -> Iterator[Row]:
    """The rows of a split, from its text columns or its `translation` column.

    Raises CorpusError if the dataset is not available, or has no such columns.
    """
    dataset = load_dataset(source)
    where = f"dataset {source.dataset}"
    with _reading(where):
        names = dataset.column_names
        if names is None:  # The first row of a stream has the columns that it does not declare.
            names = list(next(iter(dataset), {}))
    columns, keys = pick_columns(names, languages, source.columns, where)
    return rows_of_tables(_tables(dataset, columns, where), columns, keys, where)


def _tables(dataset: Any, columns: Sequence[str], where: str) -> Iterator[Any]:
    with _reading(where):
        yield from dataset.select_columns(list(columns)).with_format("arrow").iter(batch_size=_ROWS_PER_TABLE)


@contextmanager
def _reading(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # A dozen libraries may be involved; any of their errors means that the data is damaged or gone.
        raise CorpusError(f"{where}: cannot be read: {one_line(error)}") from error


def load_splits(source: DatasetSource) -> Mapping[str, Any]:
    """Every split of the dataset of a source, by name; raises CorpusError."""
    splits: Mapping[str, Any] = _load(source, None)
    return splits


def load_dataset(source: DatasetSource) -> Any:
    """The `Dataset` or, if streaming, `IterableDataset` of a source; raises CorpusError."""
    return _load(source, source.split)


def identity_of_dataset(source: DatasetSource) -> str:
    """A text that changes when the rows of a source change; raises CorpusError if it cannot be read."""
    dataset = load_dataset(source)
    known: str | None = getattr(dataset, "_fingerprint", None)
    if known is not None:
        return known
    digest = hashlib.sha256()  # A version of `datasets` without fingerprints: all rows are read.
    for table in _tables(dataset, dataset.column_names, f"dataset {source.dataset}"):
        digest.update(str(table.to_pydict()).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _load(source: DatasetSource, split: str | None) -> Any:
    path, subset = Path(source.dataset), source.subset
    is_local = os.path.isdir(path)  # `Path.is_dir` raises errors for some names.
    if not is_local and not _hub_is_reachable():
        # Otherwise the hub's client retries for half a minute; datasets in its cache are still found.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Errors are in our message.
    if not has_bars():
        datasets.disable_progress_bars()
    if is_local and subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # Without a dataset card that declares it, a subset is the folder with its name.
        path, subset = path / subset, None
    name = str(path) if is_local else source.dataset
    try:
        return datasets.load_dataset(name, subset, split=split, streaming=source.streaming)
    except Exception as error:
        # The hub's client raises dozens of kinds of exceptions.
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        hint = "; a hub id needs a network connection, a local folder must exist"
        hint = "" if is_local else hint + folder_note(path)
        raise CorpusError(f"dataset {source.dataset}: cannot be loaded: {one_line(cause or error)}{hint}") from error


def _hub_is_reachable() -> bool:
    """Whether the hub's name can be resolved, or there is a proxy."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        return bool(getproxies()) or bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
