"""Translation of lines into outputs: in blocks that several processes share, resumed from file to file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mt_cli.cli.streams import Output
from mt_cli.runtime.console import Progress
from mt_cli.runtime.group import Group
from mt_cli.translation.lines import Translation
from mt_cli.translation.pipeline import MOST_BLOCKS, Pipeline, TextWork
from mt_cli.translation.stream import LARGEST_BLOCK, LARGEST_BLOCK_OF_A_GPU, LineNotices, TranslatedLine, blocks
from mt_cli.translation.translator import Translator
from mt_cli.translation.unfinished import FinishedBlock, UnfinishedOutputs

Outputs = dict[Output, Callable[[Translation], str]]
"""Outputs, each with the function that formats a translation for it."""
_Written = tuple[Sequence[str], list[TranslatedLine]]
"""Lines of a block, and their translations."""


def can_resume(path: Path, outputs: Iterable[Output]) -> bool:
    """True if the input and all outputs are files, and a record can be written beside each output."""
    folders = [
        output.path.parent if output.path and (output.path.is_file() or not output.path.exists()) else None
        for output in outputs
    ]
    return path.is_file() and all(folder and os.access(folder, os.W_OK) for folder in folders)


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
        num_processes = 0
        if self.translator.is_on_gpu and not self.is_waited_for:
            from mt_cli.translation.text_processes import TextProcesses, num_text_processes

            num_processes = num_text_processes(self.group.size)
        pipeline = Pipeline(MOST_BLOCKS + num_processes)
        translator = self.translator if self.is_waited_for else pipeline.with_engine(self.translator)
        translated: Callable[[Sequence[str]], list[TranslatedLine]]
        translated = TextWork(translator, self.search, [*self.outputs.values()])
        if num_processes:
            translated = TextProcesses(translated, num_processes)

        def work(block: Sequence[str]) -> _Written:
            return block, translated(self.group.share_of(block))

        def join_and_write(result: _Written) -> None:
            block, share = result
            write(block, self.group.join_shares(share, len(block)))

        with self._writer() as write:
            if self.is_waited_for:
                for line in lines:
                    join_and_write(work([line]))
            else:
                pipeline.run(islice(self._blocks(lines), len(self._finished), None), work, join_and_write)

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
