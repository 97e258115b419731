"""Where the numbers of a run go: `metrics.jsonl`, TensorBoard, `samples.txt` and a progress bar.

The names of the tags are those of `docs/design.md`; a row of `metrics.jsonl` holds what TensorBoard shows for the
same step.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

_SECONDS_WORTH_A_LINE = 5.0


class Tracker:
    """Writes the metrics and samples of a run into its directory, from the step at which it is opened."""

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._metrics_path = directory / "metrics.jsonl"
        self._samples_path = directory / "samples.txt"
        _drop_after(self._metrics_path, step)
        _drop_samples_after(self._samples_path, step)
        self._board = SummaryWriter(str(directory), purge_step=step + 1)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._board.close()

    def write_metrics(self, step: int, elapsed_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add one row, and one point to each of its curves."""
        row = {"step": step, "elapsed_seconds": round(elapsed_seconds, 3), **metrics}
        with open(self._metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        for tag, value in metrics.items():
            self._board.add_scalar(tag, value, step)

    def write_samples(self, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
        """Add (source, reference, hypothesis) of the same sentences as they are translated now."""
        if not samples:
            return
        with open(self._samples_path, "a", encoding="utf-8") as file:
            file.write(f"{_STEP} {step}\n")
            for source, reference, hypothesis in samples:
                file.write(f"source     {source}\nreference  {reference}\nhypothesis {hypothesis}\n\n")
        table = "| source | reference | hypothesis |\n|---|---|---|\n" + "".join(
            "| " + " | ".join(text.replace("|", "\\|") for text in sample) + " |\n" for sample in samples
        )
        self._board.add_text("samples", table, step)
        self._board.flush()


_STEP = "# step"


def _drop_after(path: Path, step: int) -> None:
    """Remove the rows that a run wrote after the step at which it goes on."""
    if path.exists():
        rows = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
        path.write_text("".join(row for row in rows if json.loads(row)["step"] <= step), encoding="utf-8")


def _drop_samples_after(path: Path, step: int) -> None:
    if path.exists():
        blocks = path.read_text(encoding="utf-8").split(_STEP + " ")[1:]
        kept = [block for block in blocks if int(block.partition("\n")[0]) <= step]
        path.write_text("".join(f"{_STEP} {block}" for block in kept), encoding="utf-8")


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
