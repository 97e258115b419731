"""A configuration of a dataset whose files are known: its splits, columns and tables, read with `datasets`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mt_cli.corpus.hub_stream import address_of
from mt_cli.errors import CorpusError, MtError, one_line
from mt_cli.machine.console import say
from mt_cli.machine.hub import Repository
from mt_cli.machine.hub_files import download

_ROWS_PER_TABLE = 1_000


@dataclass(frozen=True)
class Dataset:
    """A configuration of a dataset."""

    title: str
    """Its name for people."""
    builder: Any
    """The object of `datasets` that reads files of its format."""
    root: Path
    """The folder that the files are in, or will be in once they are downloaded."""
    files: Mapping[str, Sequence[str]]
    """The names of the files of each split, relative to `root`."""
    repository: Repository | None
    is_streaming: bool

    @cached_property
    def is_csv(self) -> bool:
        """Whether the files are CSV or TSV files."""
        return hasattr(self.builder.config, "keep_default_na")

    def column_names(self, split: str) -> list[str]:
        """The columns of a split."""
        self._check(split)
        with _reading(self.title):
            declared = self.stream(splits_in(split)[0]).column_names
        return list(declared or self.first_row(split))

    def first_row(self, split: str) -> dict[str, Any]:
        """The first row of a split, by column; nothing if there is none."""
        config = self.builder.config
        with _reading(self.title):
            if not self.is_csv:
                return next(iter(self.stream(splits_in(split)[0])), {})
            config.nrows = 1  # Read to the end, the file is closed.
            rows = list(self.stream(splits_in(split)[0]))
            config.nrows = None
            return rows[0] if rows else {}

    def tables(self, split: str, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow tables with some columns of a split, or of slices of splits as in `train[:1000]+valid`."""
        if split in self.files:
            yield from self._all_tables(split, columns)
            return
        self._check(split)
        if self.is_streaming:
            raise CorpusError(f"{self.title}: a stream has no slices such as {split}")
        sizes = {name: sum(table.num_rows for table in self._all_tables(name, columns)) for name in splits_in(split)}
        for name, start, stop in self._slices(split, sizes):
            position = 0
            for table in self._all_tables(name, columns):
                first = max(0, start - position)
                yield table.slice(first, max(0, stop - position - first))
                position += table.num_rows

    def stream(self, split: str) -> Any:
        """The `IterableDataset` of a split."""
        from datasets.data_files import DataFilesDict, DataFilesList

        places = self.paths([split])
        if self.repository is not None and self.is_streaming:
            places = [address_of(self.repository, name) for name in self.files[split]]
        config = self.builder.config
        config.data_files = DataFilesDict({split: DataFilesList([str(place) for place in places], [])})
        if self.is_csv:
            config.keep_default_na = False  # `NA` may be a sentence.
            if all(".tsv" in PurePosixPath(name).suffixes for name in self.files[split]):
                config.quoting = csv.QUOTE_NONE  # As in files that are read without `datasets`.
        return self.builder.as_streaming_dataset(split)

    def paths(self, splits: Sequence[str]) -> list[Any]:
        """The files of some splits, which are downloaded unless they are there or read as a stream."""
        names = [name for split in splits for name in self.files.get(split, ())]
        if self.repository is not None and not self.is_streaming:
            download(self.repository, names)
        return [self.root / name for name in names]

    def _all_tables(self, split: str, columns: Sequence[str]) -> Iterator[Any]:
        with _reading(self.title):
            yield from self.stream(split).select_columns(list(columns)).with_format("arrow").iter(_ROWS_PER_TABLE)

    def _check(self, split: str) -> None:
        """Raise CorpusError for a split that does not exist."""
        for name in splits_in(split):
            if name not in self.files:
                raise CorpusError(f"{self.title}: has no split {name!r}; it has {', '.join(self.files)}")

    def _slices(self, split: str, sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """The slices of a split: a name, the first row, and the row after the last one."""
        from datasets import ReadInstruction

        try:
            slices = ReadInstruction.from_spec(split).to_absolute(sizes)
        except (ValueError, AssertionError):
            raise CorpusError(
                f"{self.title}: {split!r} is no split or slice; a slice is written train[:1000] or train[10%:20%]"
            ) from None
        for name, end in re.findall(r"(\w+)\[\d*:(\d+)\]", split):
            if int(end) > sizes.get(name, int(end)):
                say(f"{self.title}: {split} ends with row {sizes[name]:,}, the last one of {name}")
        for each in slices:
            yield each.splitname, each.from_, each.to


def splits_in(split: str) -> list[str]:
    """The names in `train[:1000]+valid`."""
    return [part.partition("[")[0].strip() for part in split.split("+")]


@contextmanager
def _reading(title: str) -> Iterator[None]:
    try:
        yield
    except MtError:
        raise
    except Exception as error:
        # A dozen libraries may be involved; any of their errors means that the data is damaged or gone.
        raise CorpusError(f"{title}: cannot be read: {one_line(error)}") from error
