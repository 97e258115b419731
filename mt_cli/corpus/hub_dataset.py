"""A configuration of a dataset whose files are known: its splits, columns and tables, read with `datasets`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from mt_cli.corpus.hub_stream import address_of
from mt_cli.corpus.quoting import quoting_of
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
        name = splits_in(split)[0]
        with _reading(self.title):
            return next((row for file in self._files_of(name) for row in self._rows_at_the_beginning(name, file)), {})

    def _rows_at_the_beginning(self, split: str, file: str) -> list[dict[str, Any]]:
        config = self.builder.config
        if not self.is_csv:
            return list(islice(self.stream(split, [file]), 1))
        config.nrows = 1  # Read to the end, the file is closed.
        rows = list(self.stream(split, [file]))
        config.nrows = None
        return rows

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
            if stop <= start:
                raise CorpusError(f"{self.title}: {split} has no rows: {name} has {sizes[name]:,}")
            position = 0
            for table in self._all_tables(name, columns):
                first = max(0, start - position)
                yield table.slice(first, max(0, stop - position - first))
                position += table.num_rows

    def stream(self, split: str, names: Sequence[str] = ()) -> Any:
        """The `IterableDataset` of a split, or of some of its files."""
        from datasets.data_files import DataFilesDict, DataFilesList

        names = names or self.files[split]
        if self.repository is not None and self.is_streaming:
            places = [address_of(self.repository, name) for name in names]
        else:
            self.paths([split])
            places = [str(self.root / name) for name in names]
        self.builder.config.data_files = DataFilesDict({split: DataFilesList(places, [])})
        if self.is_csv:
            self._read_text_alone(split, names)
        elif hasattr(self.builder.config, "newlines_in_values"):
            self.builder.info.features = None  # In JSON, text like a date would become a date, and text again.
        return self.builder.as_streaming_dataset(split)

    def _read_text_alone(self, split: str, names: Sequence[str]) -> None:
        """Let the cells of CSV files be read as they are: `007` and `NA` may be sentences."""
        from datasets import Features, Value

        config = self.builder.config
        config.keep_default_na = False
        if all(".tsv" in PurePosixPath(name).suffixes for name in names):
            # As in files that are read without `datasets`; a stream of the hub would be read twice.
            is_remote = self.repository is not None and self.is_streaming
            is_quoted = not is_remote and all(quoting_of(self.root / name).is_quoted for name in names)
            config.quoting = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
        config.features, self.builder.info.features, num_rows = None, None, config.nrows
        config.nrows = 1  # Read to the end, the file is closed.
        heading: dict[str, Any] = next(iter(list(self.builder.as_streaming_dataset(split))), {})
        config.nrows = num_rows
        config.features = self.builder.info.features = Features({name: Value("string") for name in heading}) or None

    def paths(self, splits: Sequence[str]) -> list[Path]:
        """The files of some splits, which are downloaded unless they are there."""
        names = [name for split in splits for name in self.files.get(split, ())]
        if self.repository is not None:
            download(self.repository, names)
        return [self.root / name for name in names]

    def _files_of(self, split: str) -> list[str]:
        """The files of a split that are not empty."""
        if self.repository is not None:
            return [name for name in self.files[split] if self.repository.files[name].size]
        return [name for name in self.files[split] if (self.root / name).stat().st_size]

    def _all_tables(self, split: str, columns: Sequence[str]) -> Iterator[Any]:
        for name in self._files_of(split):
            with _reading(f"{self.title}, {name}"):
                tables = self.stream(split, [name]).select_columns(list(columns)).with_format("arrow")
                yield from tables.iter(_ROWS_PER_TABLE)

    def _check(self, split: str) -> None:
        """Raise CorpusError for a split that does not exist."""
        for name in splits_in(split):
            if name not in self.files:
                raise CorpusError(f"{self.title}: has no split {name!r}; it has {', '.join(self.files)}")

    def _slices(self, split: str, sizes: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """The slices of a split: a name, the first row, and the row after the last one."""
        from datasets import ReadInstruction

        if re.search(r"\[-?\d+%:-?\d+\]|\[-?\d+:-?\d+%\]", split):
            raise CorpusError(f"{self.title}: {split}: give both ends of a slice in rows, or both in percent")
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
