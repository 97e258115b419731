"""Record of the blocks of lines that output files have, with which the same command continues after an interruption."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from mt_cli.runtime.console import say
from mt_cli.runtime.files import append_row, remove, write_bytes
from mt_cli.translation.stream import TranslatedLine


class FinishedBlock(NamedTuple):
    """Row of the record."""

    digest: str
    """Digest of model and options, the lines of the input, and the bytes in each output."""
    num_lines: int
    sizes: Sequence[int]
    """Bytes in each output."""
    noted: Mapping[int, tuple[Mapping[str, str], Sequence[str], Mapping[str, int]]]
    """Problems, unknown words and terms of a line, by its index in the block."""
    estimates: Mapping[str, float] = {}
    """Sums of the numbers of all estimates."""

    @property
    def lines(self) -> list[TranslatedLine]:
        """Lines without their texts, for notices."""
        lines = [TranslatedLine((), *self.noted.get(index, ({}, (), {}))) for index in range(self.num_lines)]
        return [lines[0]._replace(estimates=self.estimates), *lines[1:]]


_ROW = TypeAdapter(FinishedBlock)


@dataclass
class UnfinishedOutputs:
    """Outputs of a command that translates the lines of a file, and `NAME.unfinished`, the record beside the first one.

    As a context manager, it removes the record at the end; after an error or an interruption, it keeps the record and
    says how many lines are done.
    """

    paths: Sequence[Path]
    key: str
    """Value that changes when the model or the options do."""
    num_lines: int = 0
    """Lines in finished blocks."""

    @property
    def _record(self) -> Path:
        return self.paths[0].with_name(f"{self.paths[0].name}.unfinished")

    def resume(self, blocks: Iterable[Sequence[str]]) -> list[FinishedBlock]:
        """Finished blocks of the input: all before the first one of which anything has changed."""
        finished = []
        if self._record.exists():
            finished = [*self._unchanged(blocks)]
            self.num_lines = sum(block.num_lines for block in finished)
            anew = "begins anew: the model, an option, the text or the file has changed"
            say(f"{self.paths[0]}: {f'continues after {self.num_lines:,} lines' if finished else anew}")
        write_bytes(self._record, b"".join(_ROW.dump_json(block) + b"\n" for block in finished))
        return finished

    def _unchanged(self, blocks: Iterable[Sequence[str]]) -> Iterator[FinishedBlock]:
        with ExitStack() as stack:
            if not all(path.exists() for path in self.paths):
                return
            files = [stack.enter_context(path.open("rb")) for path in self.paths]
            for row, lines in zip(self._rows(), blocks, strict=False):
                contents = [file.read(size) for file, size in zip(files, row.sizes, strict=False)]
                if len(contents) < len(files) or self._digest(lines, contents) != row.digest:
                    break
                yield row

    def _rows(self) -> Iterator[FinishedBlock]:
        """Rows of the record up to the first incomplete one, which a crash may leave."""
        for line in self._record.read_bytes().splitlines():
            try:
                yield _ROW.validate_json(line)
            except ValueError:
                break

    def _digest(self, lines: Sequence[str], contents: Sequence[bytes]) -> str:
        return hashlib.sha256(repr((self.key, lines, contents)).encode()).hexdigest()

    def add(self, block: Sequence[str], lines: Sequence[TranslatedLine]) -> None:
        outputs = zip(*(line.texts for line in lines), strict=True)
        contents = ["".join(f"{text}\n" for text in texts).encode() for texts in outputs]
        noted = {index: line[1:4] for index, line in enumerate(lines) if any(line[1:4])}
        estimates = Counter[str]()
        for line in lines:
            estimates.update(line.estimates)
        row = FinishedBlock(self._digest(block, contents), len(lines), [*map(len, contents)], noted, estimates)
        append_row(self._record, _ROW.dump_json(row))
        self.num_lines += len(lines)

    def __enter__(self) -> UnfinishedOutputs:
        return self

    def __exit__(self, *error: object) -> None:
        if error == (None, None, None) or not self.num_lines:
            remove(self._record)
        else:
            say(f"{self.paths[0]}: {self.num_lines:,} lines are done; the same command continues")
