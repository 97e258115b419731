"""Where the numbers of a run go: `metrics.jsonl`, TensorBoard, `samples.txt` and a progress bar.

The tags are explained in `docs/runs.md`; a row of `metrics.jsonl` holds what TensorBoard shows for the
same step.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mt_cli.disk import read_regular
from mt_cli.errors import InputError, MtError, reason
from mt_cli.sentences import units

T = TypeVar("T")

_SECONDS_WORTH_A_LINE = 5.0
_SECONDS_BETWEEN_LINES = 30.0
_MAX_FILE_BYTES = 2**30
_TOO_LARGE = 1e100


class Tracker:
    """Writes the metrics and samples of a run into its directory, from the step at which it is opened.

    Args:
        directory: of the run.
        step: up to which there is something already.
        sizes: of the files that `flush` gave when the state of this step was saved; what came later is cut off.
    """

    def __init__(self, directory: Path, step: int, sizes: Mapping[str, int]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._paths = [directory / name for name in ("metrics.jsonl", "samples.txt")]
        with _writing(directory):
            for path in self._paths:
                _cut(path, sizes.get(path.name, 0))
            # A validation at this very step may have come after the saving: TensorBoard forgets the whole step.
            rows = [row for row in read_rows(self._paths[0]) if row["step"] == step]
            is_validated = any("valid/loss" in row for row in rows)
            self._samples = {sample[:2]: sample[2] for sample in read_samples(self._paths[1])}
            _make_way_for_events(directory)
            self._board = SummaryWriter(str(directory), purge_step=step + is_validated)
            for row in [] if is_validated else rows:
                self._add_points(row)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError) if error else nullcontext():  # What went wrong first is what is told.
            self._board.close()

    def write_metrics(self, step: int, elapsed_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add one row, and one point to each of its curves; values that are not finite are left out.

        Raises:
            MtError: if it cannot be written.
        """
        finite = {tag: value for tag, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "elapsed_seconds": round(elapsed_seconds, 3), **finite}
        path = self._paths[0]
        with _writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        with _writing(path.parent):
            self._add_points(row)

    def _add_points(self, row: Mapping[str, Any]) -> None:
        for tag, value in row.items():
            if "/" in tag:
                self._board.add_scalar(tag, value, row["step"])

    def write_samples(self, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
        """Add (source, reference, hypothesis) of the same sentences as they are translated now.

        TensorBoard shows, in bold, which words are new since the last time.

        Raises:
            MtError: if they cannot be written.
        """
        if not samples:
            return
        path = self._paths[1]
        with _writing(path), path.open("a", encoding="utf-8") as file:
            file.write(f"# step {step}\n")
            for source, reference, hypothesis in samples:
                file.write(f"source     {source}\nreference  {reference}\nhypothesis {hypothesis}\n\n")
        rows = []
        for source, reference, hypothesis in samples:
            before = self._samples.get((source, reference))
            shown = _plain(hypothesis) if before is None else _marked(hypothesis, before)
            same = "the same" if before == hypothesis else _plain(before or "")
            rows.append(f"| {_plain(source)} | {_plain(reference)} | {shown} | {same} |\n")
            self._samples[source, reference] = hypothesis
        table = "| source | reference | hypothesis, **new words** | last time |\n|---|---|---|---|\n" + "".join(rows)
        with _writing(path.parent):
            self._board.add_text("samples", table, step)

    def write_pictures(self, step: int, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
        """Add pictures, height x width x 3, under their tags.

        Raises:
            MtError: if they cannot be written.
        """
        with _writing(self._paths[0].parent):
            for tag, pixels in pictures.items():
                self._board.add_image(tag, pixels, step, dataformats="HWC")

    def flush(self) -> dict[str, int]:
        """Have all of it on the disk; return the sizes of the files by name.

        Raises:
            MtError: if that cannot be.
        """
        sizes = {}
        with _writing(self._paths[0].parent):
            self._board.flush()
            for path in self._paths:
                with path.open("ab") as file:
                    os.fsync(file.fileno())
                    sizes[path.name] = file.tell()
        return sizes


def write_hparams(directory: Path, step: int, options: Mapping[str, Any], scores: Mapping[str, float]) -> None:
    """Give TensorBoard's table of runs the options of this one, and what they led to, as of a step.

    Raises:
        MtError: if they cannot be written.
    """
    from torch.utils.tensorboard.summary import hparams, scalar
    from torch.utils.tensorboard.writer import FileWriter

    kinds = (bool, int, float, str)
    plain = {name: value if isinstance(value, kinds) else str(value) for name, value in options.items()}
    with _writing(directory):
        _make_way_for_events(directory)
        writer = FileWriter(str(directory))
        for summary in hparams(plain, dict(scores)):
            writer.add_summary(summary, step)
        for tag, value in scores.items():
            writer.add_summary(scalar(tag, value), step)
        writer.close()


def _plain(text: str) -> str:
    """Text as a cell of a Markdown table that shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


def _marked(text: str, before: str) -> str:
    """The same, words that were not in `before` in bold."""
    words, former = ([(each[start:end], start, end) for start, end in units(each)] for each in (text, before))
    matcher = difflib.SequenceMatcher(a=[word for word, *_ in former], b=[word for word, *_ in words], autojunk=False)
    marked, done = "", 0
    for kind, _, _, first, last in matcher.get_opcodes():
        if first < last:
            start, end = words[first][1], words[last - 1][2]
            stretch = _plain(text[start:end])
            marked += text[done:start] + (stretch if kind == "equal" else f"**{stretch}**")
            done = end
    return marked


def _make_way_for_events(directory: Path) -> None:
    """Have a new event file sort after all others, whose names begin with seconds: TensorBoard reads them in order.

    That may take until the next second. If the clock has gone backwards, the others are renamed.
    """
    if list(directory.glob(f"events.out.tfevents.{int(time.time())}.*")):
        time.sleep(1 - time.time() % 1)
    names = (re.fullmatch(r"(events\.out\.tfevents\.)(\d{1,15})(\..*)", path.name) for path in directory.iterdir())
    matches = sorted(filter(None, names), key=lambda match: int(match[2]))
    for latest, match in enumerate(matches, start=int(time.time()) - len(matches)):
        if int(match[2]) > latest:
            (directory / match[0]).rename(directory / f"{match[1]}{latest}{match[3]}")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Inside, an OSError becomes an MtError that names the path."""
    try:
        yield
    except OSError as error:
        raise MtError(f"{path}: cannot be written: {reason(error)}") from error


def _cut(path: Path, size: int) -> None:
    """Shorten a file of lines to a size, or to less where a line would be cut in two."""
    content = path.read_bytes()[:size] if path.is_file() else b""
    if len(content) < size:
        say(f"{path}: shorter than it was when the run was saved; what is missing is lost")
    if path.is_file():
        os.truncate(path, content.rfind(b"\n") + 1)


def read_samples(path: Path) -> list[tuple[str, str, str]]:
    """Source, reference and hypothesis of the sentences in the last part of a samples file; none if there is none.

    Raises:
        OSError: if it cannot be read, is no regular file, or too large.
    """
    text = _content(path).decode("utf-8", errors="replace")
    values = [line.partition(" ")[2].strip() for line in text.rpartition("# step ")[2].split("\n")[1:] if line]
    return list(zip(values[::3], values[1::3], values[2::3], strict=False))


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file; damaged lines and values that are no numbers, or too large for a curve, are left out.

    Raises:
        OSError: as `read_samples`.
    """
    rows = []
    for line in _content(path).splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                numbers = {tag: value for tag, value in row.items() if _is_drawable(value)}
                if "step" in numbers:
                    rows.append(numbers)
    return rows


def _is_drawable(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE


def _content(path: Path) -> bytes:
    """What is in a file of the run; nothing if there is none."""
    try:
        return read_regular(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""


MODES = ("auto", "bar", "plain", "none")
_mode = "auto"


def show_progress(mode: str) -> None:
    """Show progress from now on as bars, as lines, not at all, or (`auto`) as bars on a terminal and else as lines.

    Raises:
        InputError: for another mode.
    """
    global _mode
    if mode not in MODES:
        raise InputError(f"--progress {mode}: use {', '.join(MODES)}")
    _mode = mode


class Progress:
    """How far a stage has come, with rate and time left: a bar on standard error, or a line now and then.

    Args:
        description: the stage.
        total: items of it; None if nobody knows.
        unit: what an item is.
        done: items that are done already.
        max_seconds: when it ends at the latest, from now on; None: when all items are done.
        is_quiet: whether `auto` means nothing at all where there is no terminal.
        leave: whether the bar stays when the stage is over.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        unit: str,
        done: int = 0,
        *,
        max_seconds: float | None = None,
        is_quiet: bool = False,
        leave: bool = True,
    ) -> None:
        self._description, self._total, self._unit, self._done = description, total, unit, done
        has_bar = _mode == "bar" or (_mode == "auto" and sys.stderr.isatty())
        self._has_lines = not has_bar and (_mode == "plain" or (_mode == "auto" and not is_quiet))
        self._started_at = self._said_at = time.monotonic()
        self._before, self._values, self._max_seconds = done, "", max_seconds
        self._bar: tqdm[Any] = tqdm(
            total=total,
            initial=done,
            desc=description,
            unit=f" {unit}s",
            unit_scale=total is None or total > 10_000,
            disable=not has_bar,
            dynamic_ncols=True,
            leave=leave,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    @contextmanager
    def counting(self) -> Iterator[Callable[[int], None]]:
        """The bar as a context that gives a function to advance it by; without a bar, a line says the rate."""
        with self:
            yield self.advance
        seconds, done = time.monotonic() - self._started_at, self._done - self._before
        if done and seconds > _SECONDS_WORTH_A_LINE and _mode != "none":
            say(f"{self._description}: {done:,} {self._unit}s in {seconds:.0f} s ({done / seconds:,.0f} a second)")

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, counted."""
        for item in items:
            yield item
            self.advance()

    def advance(self, amount: int = 1) -> None:
        """Go on by `amount`."""
        self._done += amount
        self._bar.update(amount)
        if self._has_lines and time.monotonic() - self._said_at > _SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            say(self._line())

    def _line(self) -> str:
        seconds = self._said_at - self._started_at
        rate = (self._done - self._before) / seconds
        of_all = f" of {self._total:,}" if self._total else ""
        ends = [(self._total - self._done) / rate] if self._total and rate else []
        if self._max_seconds is not None:
            ends.append(max(0.0, self._max_seconds - seconds))
        left = f", {tqdm.format_interval(min(ends))} left" if ends else ""
        values = f"  {self._values}" if self._values else ""
        return f"{self._description}: {self._done:,}{of_all} {self._unit}s, {rate:,.1f} a second{left}{values}"

    def show(self, **values: str) -> None:
        """Show some values beside the bar from now on."""
        self._values = ", ".join(f"{name} {value}" for name, value in values.items())
        self._bar.set_postfix(values, refresh=False)


def say(message: str = "") -> None:
    """Print a line on standard error, above a progress bar if there is one."""
    tqdm.write(message, file=sys.stderr)
