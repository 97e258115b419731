"""Parallel text from Hugging Face `datasets`: the hub, or a local folder with the same layout."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from pyarrow.lib import ArrowException
from pydantic import BaseModel

from mt_cli.config.corpora import DatasetSource
from mt_cli.corpus.lines import folder_note
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.tables import pick_columns, rows_of_tables
from mt_cli.errors import CorpusError, InputError, MtError, one_line
from mt_cli.machine.console import has_bars, say
from mt_cli.machine.hub import Repository, check_reachable, download, find, locked
from mt_cli.machine.hub_requests import asking
from mt_cli.machine.storage import read_model, write_text

_ROWS_PER_TABLE = 1_000
_NAMES_SHOWN = 20


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
    """Every split of the dataset of a source, by name; raises CorpusError, or MtError if the hub cannot be reached."""
    splits: Mapping[str, Any] = _load(source, None)
    return splits


def load_dataset(source: DatasetSource) -> Any:
    """The `Dataset` or, if streaming, `IterableDataset` of a source.

    Raises CorpusError, or MtError if the hub cannot be reached.
    """
    return _load(source, source.split)


def commit_of_dataset(source: DatasetSource) -> str | None:
    """The commit of a dataset of the hub; None for a local folder."""
    return None if _is_local(source) else _repository(source).commit


def _repository(source: DatasetSource) -> Repository:
    note = f"; there is no such folder either{folder_note(Path(source.dataset))}"
    return find("dataset", source.dataset, source.revision, note)


def identity_of_dataset(source: DatasetSource) -> Any:
    """A JSON value that changes when the rows of a source change; raises CorpusError if it cannot be read."""
    commit = commit_of_dataset(source)
    if commit is not None:
        return commit  # What is read of a commit depends on options alone.
    dataset = load_dataset(source)
    known: str | None = getattr(dataset, "_fingerprint", None)
    if known is not None:
        return known
    digest = hashlib.sha256()  # A version of `datasets` without fingerprints: all rows are read.
    for table in _tables(dataset, dataset.column_names, f"dataset {source.dataset}"):
        digest.update(str(table.to_pydict()).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _is_local(source: DatasetSource) -> bool:
    return os.path.isdir(source.dataset)  # `Path.is_dir` raises errors for some names.


def _load(source: DatasetSource, split: str | None) -> Any:
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # Errors are in our message.
    if not has_bars():
        datasets.disable_progress_bars()
    try:
        return _load_folder(source, split) if _is_local(source) else _load_repository(source, split)
    except MtError:
        raise
    except Exception as error:
        # The libraries raise dozens of kinds of exceptions.
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        raise CorpusError(f"dataset {source.dataset}: cannot be loaded: {one_line(cause or error)}") from error


def _load_folder(source: DatasetSource, split: str | None) -> Any:
    path, subset = Path(source.dataset), source.subset
    if source.revision is not None:
        raise CorpusError(f"dataset {path}: a folder has no revisions; remove `revision`")
    if subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # Without a dataset card that declares it, a subset is the folder with its name.
        path, subset = path / subset, None
    builder = _unquoted(str(path), subset, data_files=_data_files(source))
    if source.streaming:
        return _split_of(builder, split, builder.as_streaming_dataset)
    builder.download_and_prepare()
    return _split_of(builder, split, builder.as_dataset)


def _unquoted(name: str, subset: str | None, **options: Any) -> Any:
    """The builder of a dataset; in TSV files, quotes are characters like others, as in files without `datasets`."""
    import datasets

    builder = datasets.load_dataset_builder(name, subset, **options)
    files = list(chain.from_iterable((builder.config.data_files or {}).values()))
    if files and all(".tsv" in PurePosixPath(file).suffixes for file in files):
        return datasets.load_dataset_builder(name, subset, **options, quoting=csv.QUOTE_NONE)
    return builder


def _data_files(source: DatasetSource) -> dict[str, list[str]] | None:
    if source.data_files is None:
        return None
    files = [source.data_files] if isinstance(source.data_files, str) else list(source.data_files)
    return {source.split.partition("[")[0]: files}


def _load_repository(source: DatasetSource, split: str | None) -> Any:
    """A dataset of the hub, at the commit that its revision had when it was first used."""
    repository = _repository(source)
    files = json.dumps(_data_files(source))
    if source.streaming:
        with asking("dataset", repository.id):
            builder = _builder(repository.id, repository.commit, source.subset, files)
            return _split_of(builder, split, builder.as_streaming_dataset)
    builder = _prepared(repository, source.subset, files)
    try:
        return _split_of(builder, split, builder.as_dataset)
    except (OSError, ArrowException):  # The files of `datasets` are damaged or incomplete.
        say(f"{repository}: {builder.cache_dir} is damaged; it is made again")
        builder = _prepare(repository, source.subset, files, again=True)
        return _split_of(builder, split, builder.as_dataset)


def _split_of(builder: Any, split: str | None, load: Callable[[str | None], Any]) -> Any:
    where = f"dataset {builder.repo_id or builder.base_path}"
    try:
        return load(split)
    except ValueError as error:
        if split and "[" in split and load == builder.as_streaming_dataset:
            raise CorpusError(f"{where}: a stream has no slices such as {split}") from error
        names = list(builder.info.splits or builder.config.data_files or ())
        if split is None or split.partition("[")[0] in names:
            raise
        raise CorpusError(f"{where}: has no split {split!r}; it has {', '.join(names)}") from error


def _prepared(repository: Repository, subset: str | None, files: str) -> Any:
    """The builder for a configuration whose text is on disk: from an earlier call, or downloaded now."""
    record = repository.record(subset, files)
    builder = _prepared_before(repository, record)
    if builder is None:
        with locked(repository.folder):
            builder = _prepared_before(repository, record) or _prepare(repository, subset, files)
            config_id, version, _ = Path(builder.cache_dir).parts[-3:]
            write_text(record, _Prepared(config_id=config_id, version=version).model_dump_json())
    return builder


class _Prepared(BaseModel):
    """Where `datasets` has put a configuration of a dataset at a commit."""

    config_id: str
    version: str


def _prepared_before(repository: Repository, record: Path) -> Any:
    """The builder that reads what an earlier call has prepared, or None."""
    from datasets.packaged_modules.cache.cache import Cache

    try:
        found = read_model(record, _Prepared)
    except InputError:  # It is not there, or damaged.
        return None
    place = {"config_name": found.config_id, "version": found.version, "hash": repository.commit}
    builder = Cache(repo_id=repository.id, dataset_name=repository.id.rpartition("/")[2], **place)
    return builder if builder.info.splits else None


def _prepare(repository: Repository, subset: str | None, files: str, again: bool = False) -> Any:
    check_reachable(repository)
    with locked(repository.folder), asking("dataset", repository.id):
        builder = _builder(repository.id, repository.commit, subset, files)
        urls = chain.from_iterable(builder.config.data_files.values())
        names = (url.partition(f"@{repository.commit}/")[2] for url in urls)
        download(repository, [name for name in names if name in repository.files])
        builder.download_and_prepare(download_mode="reuse_cache_if_exists" if again else None)
    return builder


@cache
def _builder(name: str, commit: str, subset: str | None, data_files: str) -> Any:
    """The builder of `datasets` for a configuration of a dataset; needs a network."""
    import datasets

    try:
        builder = _unquoted(name, subset, data_files=json.loads(data_files), revision=commit)
    except ValueError as error:
        if "find cache" in str(error):  # After any error, `datasets` tries what it loaded before.
            chosen = f"subset {subset!r} and data_files {data_files}"
            raise CorpusError(f"dataset {name}: nothing was found for {chosen} at commit {commit}") from error
        known = datasets.get_dataset_config_names(name, revision=commit)
        if subset in known or len(known) == 1:
            raise
        lacks = "has several configurations" if subset is None else f"has no configuration {subset!r}"
        raise CorpusError(f"dataset {name}: {lacks}; set `subset` to one of {_some(known, subset)}") from error
    except RuntimeError as error:
        if "scripts" not in str(error):
            raise
        raise CorpusError(
            f"dataset {name}: is read by a Python program of its own, which `datasets` runs no more; the hub may "
            "have a copy of it: set `revision: refs/convert/parquet` and `data_files`, such as en-it/train/*.parquet"
        ) from error
    if commit not in Path(builder.cache_dir).parts:  # After some errors `datasets` takes what it had before.
        raise MtError(f"dataset {name}: the hub did not describe commit {commit[:12]}; run the command again")
    return builder


def _some(names: Sequence[str], wanted: str | None) -> str:
    """A few of many names, those first that are like another one."""
    alike = get_close_matches(wanted or "", names, n=3) + [
        name for name in names if set(re.split(r"\W", name)) == set(re.split(r"\W", wanted or ""))
    ]
    shown = list(dict.fromkeys([*alike, *names]))[:_NAMES_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} others" if len(names) > len(shown) else "")
