"""A configuration of a dataset whose files are known: its splits, columns and tables, read with `datasets`."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mt_cli.corpus.quoting import quoting_of
from mt_cli.errors import CorpusError, MtError, one_line
from mt_cli.machine.console import say
from mt_cli.machine.hub import Repository, download
from mt_cli.machine.hub_errors import hub_errors

_ROWS_PER_TABLE = 1_000


@dataclass(frozen=True)
class Dataset:
    """A configuration of a dataset."""

    title: str
    """Display name."""
    builder: Any
    """Builder of `datasets`, which reads files of its format."""
    root: Path
    """Folder of the files, which may still have to be downloaded."""
    files: Mapping[str, Sequence[str]]
    """Names of the files of each split, relative to `root`."""
    repository: Repository | None
    """None for a local folder."""
    is_streaming: bool

    @cached_property
    def is_csv(self) -> bool:
        """Whether the files are CSV or TSV files."""
        return hasattr(self.builder.config, "keep_default_na")

    @property
    def _remote(self) -> Repository | None:
        """Repository whose files are read over the network; None if they are on this machine."""
        return self.repository if self.is_streaming else None

    def column_names(self, split: str) -> list[str]:
        """Columns of a split."""
        self._check_split(split)
        with self._reading(self.title):
            declared = self._stream(split_names(split)[0]).column_names
        return list(declared or self.first_row(split))

    def first_row(self, split: str) -> dict[str, Any]:
        """First row of a split, by column; empty if there is none."""
        name = split_names(split)[0]
        with self._reading(self.title):
            rows = (row for file in self._nonempty_files(name) for row in self._stream(name, [file]))
            return next(rows, {})

    def tables(self, split: str, columns: Sequence[str]) -> Iterator[Any]:
        """Arrow tables with some columns of a split, or of slices of splits as in `train[:1000]+valid`."""
        if split in self.files:
            yield from self._whole_tables(split, columns)
            return
        self._check_split(split)
        if self.is_streaming:
            raise CorpusError(f"{self.title}: a stream has no slices such as {split}")
        sizes = {
            name: sum(table.num_rows for table in self._whole_tables(name, columns)) for name in split_names(split)
        }
        for part in self._slices(split, sizes):
            name, num_rows = part.splitname, part.to - part.from_
            if num_rows <= 0:
                raise CorpusError(f"{self.title}: {split} has no rows: {name} has {sizes[name]:,}")
            with self._reading(self.title):
                rows = self._stream(name, self._nonempty_files(name)).select_columns(list(columns))
                yield from rows.skip(part.from_).take(num_rows).with_format("arrow").iter(_ROWS_PER_TABLE)

    def paths(self, splits: Sequence[str]) -> list[Path]:
        """Files of some splits, which are downloaded if they are missing."""
        names = [name for split in splits for name in self.files.get(split, ())]
        if self.repository is not None:
            download(self.repository, names)
        return [self.root / name for name in names]

    def _stream(self, split: str, names: Sequence[str] = ()) -> Any:
        """`IterableDataset` of a split, or of some of its files."""
        from datasets.data_files import DataFilesDict, DataFilesList

        names = names or self.files[split]
        if self._remote:
            places = [f"hf://datasets/{self._remote.id}@{self._remote.commit}/{name}" for name in names]
        else:
            self.paths([split])
            places = [str(self.root / name) for name in names]
        self.builder.config.data_files = DataFilesDict({split: DataFilesList(places, [])})
        if self.is_csv:
            self._read_cells_as_text(split, names)
        elif hasattr(self.builder.config, "newlines_in_values"):
            self.builder.info.features = None  # In JSON, text like a date would become a date, and text again.
        return self.builder.as_streaming_dataset(split)

    def _read_cells_as_text(self, split: str, names: Sequence[str]) -> None:
        """Let the cells of CSV files be read as they are: `007` and `NA` may be sentences."""
        from datasets import Features, Value

        config = self.builder.config
        config.keep_default_na = False
        if all(".tsv" in PurePosixPath(name).suffixes for name in names):
            # As in files that are read without `datasets`; a remote file would be read twice.
            is_quoted = not self._remote and all(quoting_of(self.root / name).is_quoted for name in names)
            config.quoting = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
        config.features = self.builder.info.features = None
        config.nrows = 1  # The columns are known from the first row. Read to the end, the file is closed.
        heading: dict[str, Any] = next(iter([*self.builder.as_streaming_dataset(split)]), {})
        config.nrows = None
        config.features = self.builder.info.features = Features({name: Value("string") for name in heading}) or None

    def _nonempty_files(self, split: str) -> list[str]:
        """Files of a split that are not empty."""
        if self.repository is not None:
            return [name for name in self.files[split] if self.repository.files[name].size]
        return [name for name in self.files[split] if (self.root / name).stat().st_size]

    def _whole_tables(self, split: str, columns: Sequence[str]) -> Iterator[Any]:
        for name in self._nonempty_files(split):
            with self._reading(f"{self.title}, {name}"):
                tables = self._stream(split, [name]).select_columns(list(columns)).with_format("arrow")
                yield from tables.iter(_ROWS_PER_TABLE)

    def _check_split(self, split: str) -> None:
        """Raise CorpusError for a split that does not exist."""
        for name in split_names(split):
            if name not in self.files:
                raise CorpusError(f"{self.title}: has no split {name!r}; it has {', '.join(self.files)}")

    def _slices(self, split: str, sizes: Mapping[str, int]) -> Any:
        """Slices of a split, with `splitname`, the first row `from_`, and the row `to` after the last one."""
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
        return slices

    @contextmanager
    def _reading(self, where: str) -> Iterator[None]:
        """Context manager that turns errors of the reading libraries into MtErrors."""
        try:
            with hub_errors("dataset", self._remote.id) if self._remote else nullcontext():
                yield
        except MtError:
            raise
        except Exception as error:
            # A dozen libraries may be involved; any of their errors means that the data is damaged or gone.
            hint = "" if self.repository is None else f"; delete {self.root.parents[1] / 'blobs'} to download it again"
            raise CorpusError(f"{where}: cannot be read: {one_line(error)}{hint}") from error


def split_names(split: str) -> list[str]:
    """Names in `train[:1000]+valid`."""
    return [part.partition("[")[0].strip() for part in split.split("+")]
