"""Translation of lines into outputs: in blocks that several processes share, resumed from file to file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mt_cli.cli.streams import Output
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.files import append_row, remove, write_bytes
from mt_cli.runtime.group import Group
from mt_cli.translation.lines import Translation
from mt_cli.translation.pipeline import MOST_BLOCKS, Pipeline
from mt_cli.translation.stream import (
    LARGEST_BLOCK,
    LARGEST_BLOCK_OF_A_GPU,
    LineNotices,
    TextWork,
    TranslatedLine,
    blocks,
)
from mt_cli.translation.translator import Translator

Outputs = dict[Output, Callable[[Translation], str]]
"""Outputs, each with the function that formats a translation for it."""
_Written = tuple[Sequence[str], list[TranslatedLine]]
"""Lines of a block, and their translations."""


def can_resume(path: Path, outputs: Iterable[Output]) -> bool:
    """True if the input and all outputs are files."""
    paths = (output.path for output in outputs)
    return path.is_file() and all(output and (output.is_file() or not output.exists()) for output in paths)


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


@dataclass
class LineJob:
    """Translation of lines by the processes of a group, of which the main one writes."""

    translator: Translator
    search: dict[str, Any]
    """Options of `Translator.translate_fully`."""
    outputs: Outputs
    group: Group
    is_strict: bool
    is_waited_for: bool
    """True if a user waits for each line, so that lines are translated one by one."""
    has_bar: bool
    _unfinished: UnfinishedOutputs | None = None
    _finished: list[FinishedBlock] = field(default_factory=list)
    _total: int | None = None

    def resume(self, lines: Callable[[], Iterable[str]], key: str, total: int) -> None:
        """Keep what the outputs have of these lines, `total` in number, and what `run` will write."""
        self._unfinished = unfinished = UnfinishedOutputs([output.path for output in self.outputs if output.path], key)
        self._finished = self.group.from_main(lambda: unfinished.resume(self._blocks(lines())))
        self._total = total
        for index, output in enumerate(self.outputs):
            output.num_kept = sum(block.sizes[index] for block in self._finished)

    def _blocks(self, lines: Iterable[str]) -> Iterator[list[str]]:
        return blocks(lines, LARGEST_BLOCK_OF_A_GPU if self.translator.is_on_gpu else LARGEST_BLOCK)

    def run(self, lines: Iterable[str]) -> None:
        """Translate and write lines, without those of finished blocks."""
        alone = TextWork(self.translator, self.search, [*self.outputs.values()])
        work: Callable[[Sequence[str]], list[TranslatedLine]] = alone

        def translated(block: Sequence[str]) -> _Written:
            return block, work(self.group.share_of(block))

        def join_and_write(result: _Written) -> None:
            block, share = result
            write(block, self.group.join_shares(share, len(block)))

        with self._writer() as write:
            if self.is_waited_for:
                for line in lines:
                    join_and_write(translated([line]))
                return
            num_processes = 0
            if self.translator.is_on_gpu:
                from mt_cli.translation.text_processes import TextProcesses, num_text_processes

                num_processes = num_text_processes(self.group.size)
            pipeline = Pipeline(MOST_BLOCKS + num_processes)
            translator = self.translator.with_engine(pipeline.queued(self.translator.engine))
            work = queued = replace(alone, translator=translator)
            if num_processes:
                work = TextProcesses(queued, num_processes)
            pipeline.run(islice(self._blocks(lines), len(self._finished), None), translated, join_and_write)

    @contextmanager
    def _writer(self) -> Iterator[Callable[[Sequence[str], Sequence[TranslatedLine]], None]]:
        """Context manager that yields a function that writes a translated block; prints notices at the end."""
        is_main, unfinished = self.group.rank == 0, self._unfinished
        outputs = [*self.outputs] if is_main else []
        with ExitStack() as stack:
            quality = None if self.is_waited_for else self.translator.quality
            notices = stack.enter_context(LineNotices(self.is_strict, quality, "terms" in self.search))
            for line in chain.from_iterable(block.lines for block in self._finished):
                notices.add(line)
            if unfinished is not None and is_main:
                stack.enter_context(unfinished)
            for output in outputs:
                stack.enter_context(output)
            done = sum(block.num_lines for block in self._finished)
            bar = Progress("translate", self._total, "line", done, is_quiet=not self._total) if self.has_bar else None
            if bar is not None:
                stack.enter_context(bar)

            def write(block: Sequence[str], lines: Sequence[TranslatedLine]) -> None:
                for line in lines:
                    for output, text in zip(outputs, line.texts, strict=False):  # Only the main process has outputs.
                        output.write(text)
                    notices.add(line)
                if unfinished is not None and is_main:
                    unfinished.add(block, lines)
                if bar is not None:
                    bar.advance(len(lines))

            yield write
