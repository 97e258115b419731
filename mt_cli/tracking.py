"""Where the numbers of a run go: `metrics.jsonl`, TensorBoard, `samples.txt` and a progress bar.

The names of the tags are those of `docs/design.md`; a row of `metrics.jsonl` holds what TensorBoard shows for the
same step.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

from mt_cli.errors import MtError

T = TypeVar("T")

_SECONDS_WORTH_A_LINE = 5.0


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
            rows = [row for row in _rows(self._paths[0]) if row["step"] == step]
            is_validated = any("valid/loss" in row for row in rows)
            _let_the_second_pass(directory)
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
        table = "| source | reference | hypothesis |\n|---|---|---|\n" + "".join(
            "| " + " | ".join(text.replace("|", "\\|") for text in sample) + " |\n" for sample in samples
        )
        with _writing(path.parent):
            self._board.add_text("samples", table, step)

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


def _let_the_second_pass(directory: Path) -> None:
    """Wait until a new event file has a name after all others: TensorBoard sorts them, and the second is in it."""
    now = time.time()
    if list(directory.glob(f"events.out.tfevents.{int(now)}.*")):
        time.sleep(1 - now % 1)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Inside, an OSError becomes an MtError that names the path."""
    try:
        yield
    except OSError as error:
        raise MtError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def _cut(path: Path, size: int) -> None:
    """Shorten a file of lines to a size, or to less where a line would be cut in two."""
    content = path.read_bytes()[:size] if path.is_file() else b""
    if len(content) < size:
        say(f"{path}: shorter than it was when the run was saved; what is missing is lost")
    if path.is_file():
        os.truncate(path, content.rfind(b"\n") + 1)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; lines that somebody has damaged are none."""
    rows = []
    if path.exists():
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                if isinstance(row, dict) and isinstance(row.get("step"), int):
                    rows.append(row)
    return rows


class Progress:
    """A bar on standard error where that is a terminal, else nothing."""

    def __init__(self, description: str, total: int | None, unit: str, done: int = 0) -> None:
        self._description, self._unit, self._done = description, unit, done
        self._bar: tqdm[Any] = tqdm(
            total=total,
            initial=done,
            desc=description,
            unit=f" {unit}s",
            unit_scale=total is None or total > 10_000,
            disable=not sys.stderr.isatty(),
            dynamic_ncols=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()

    @contextmanager
    def counting(self) -> Iterator[Callable[[int], None]]:
        """The bar as a context that gives a function to advance it by; without a terminal, one line says the rate."""
        started_at, before = time.monotonic(), self._done
        with self:
            yield self.advance
        seconds, done = time.monotonic() - started_at, self._done - before
        if done and seconds > _SECONDS_WORTH_A_LINE:
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

    def show(self, **values: str) -> None:
        """Show some values beside the bar from now on."""
        self._bar.set_postfix(values, refresh=False)


def say(message: str = "") -> None:
    """Print a line on standard error, above a progress bar if there is one."""
    tqdm.write(message, file=sys.stderr)
