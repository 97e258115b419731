"""Parallel text from Hugging Face `datasets`: the hub, or a local folder with the same layout."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from mt_cli.config.corpora import DatasetSource
from mt_cli.corpus.formats import Languages, Row, pick_columns, rows_of_tables
from mt_cli.errors import CorpusError

_ROWS_PER_TABLE = 1_000


def read_dataset(source: DatasetSource, languages: Languages) -> Iterator[Row]:
    """The rows of a split, from its text columns or its `translation` column.

    Raises:
        CorpusError: if the dataset cannot be had, or has no such columns.
    """
    dataset = load_dataset(source)
    where = f"dataset {source.dataset}"
    with _explained(where):
        names = dataset.column_names
        if names is None:  # A stream that does not declare its columns shows them in its first row.
            names = list(next(iter(dataset), {}))
    columns = pick_columns(names, languages, source.columns, where)
    return rows_of_tables(_tables(dataset, columns, where), columns, languages, where)


def _tables(dataset: Any, columns: Sequence[str], where: str) -> Iterator[Any]:
    with _explained(where):
        yield from dataset.select_columns(list(columns)).with_format("arrow").iter(batch_size=_ROWS_PER_TABLE)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Reading goes through any of a dozen libraries; what they raise means that the data is broken or gone.
        raise CorpusError(f"{where}: cannot be read further: {' '.join(str(error).split())[:300]}") from error


def load_dataset(source: DatasetSource) -> Any:
    """The `Dataset` or, of a streaming source, `IterableDataset` of a source; raises CorpusError."""
    path, subset = Path(source.dataset), source.subset
    is_local = os.path.isdir(path)  # Unlike the path's own method it raises nothing, whatever the name.
    if not is_local and not _can_find_hub():
        # Otherwise the hub's client tries for half a minute; what it has cached is still found.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # What goes wrong is in our own message.
    if is_local and subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # Without a dataset card, which would declare it, a subset is the folder of its name.
        path, subset = path / subset, None
    try:
        return datasets.load_dataset(
            str(path) if is_local else source.dataset, subset, split=source.split, streaming=source.streaming
        )
    except Exception as error:
        # The hub's client raises dozens of kinds of exceptions; all of them mean that this corpus is not to be had.
        is_cause_better = isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__
        reason = " ".join(str(error.__cause__ if is_cause_better else error).split()) or type(error).__name__
        hint = "" if is_local else "; a hub id needs a network connection, a local folder must exist"
        raise CorpusError(f"dataset {source.dataset}: cannot be loaded: {reason[:300]}{hint}") from error


def _can_find_hub() -> bool:
    """Whether the hub's name can be looked up, or a proxy may do that for us."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        return bool(getproxies()) or bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
