"""Text on the user's terminal: notices, progress, clock times, and characters that are safe to print."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, TypeVar

from tqdm import tqdm

from mt_cli.errors import InputError

T = TypeVar("T")

_SECONDS_WORTH_A_LINE = 5.0
_SECONDS_BETWEEN_LINES = 30.0

MODES = ("auto", "bar", "plain", "none")
_mode = "auto"


def show_progress(mode: str) -> None:
    """Set how progress is shown: bars, lines, nothing, or (`auto`) bars on a terminal and lines elsewhere.

    Raises:
        InputError: for another mode.
    """
    global _mode
    if mode not in MODES:
        raise InputError(f"--progress {mode}: use {', '.join(MODES)}")
    _mode = mode


class Progress:
    """Progress of a stage, with rate and time left: a bar on standard error, or a line now and then.

    Args:
        description: the name of the stage.
        total: number of items; None if it is unknown.
        unit: what an item is called.
        done: items done before.
        max_seconds: time limit from now on; None for no limit.
        is_quiet: whether `auto` shows nothing where there is no terminal.
        leave: whether the bar stays on the terminal at the end.
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
        looks: Any = {"unit": f" {unit}s", "unit_scale": total is None or total > 10_000, "dynamic_ncols": True}
        self._bar: tqdm[Any] = tqdm(
            total=total, initial=done, desc=description, disable=not has_bar, leave=leave, **looks
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    @contextmanager
    def counting(self) -> Iterator[Callable[[int], None]]:
        """Context manager that gives `advance`; at the end of a long stage without a bar, a line shows the rate."""
        with self:
            yield self.advance
        seconds, done = time.monotonic() - self._started_at, self._done - self._before
        if done and seconds > _SECONDS_WORTH_A_LINE and _mode != "none":
            say(f"{self._description}: {done:,} {self._unit}s in {seconds:.0f} s ({done / seconds:,.0f} a second)")

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each counted after its use."""
        for item in items:
            yield item
            self.advance()

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more items."""
        self._done += amount
        self._bar.update(amount)
        if self._has_lines and time.monotonic() - self._said_at > _SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            say(self._line())

    def _line(self) -> str:
        seconds = self._said_at - self._started_at
        rate = (self._done - self._before) / seconds
        of_total = f" of {self._total:,}" if self._total else ""
        limits = [(self._total - self._done) / rate] if self._total and rate else []
        if self._max_seconds is not None:
            limits.append(max(0.0, self._max_seconds - seconds))
        left = f", {tqdm.format_interval(min(limits))} left" if limits else ""
        values = f"  {self._values}" if self._values else ""
        return f"{self._description}: {self._done:,}{of_total} {self._unit}s, {rate:,.1f} a second{left}{values}"

    def show(self, **values: str) -> None:
        """Show these values next to the progress from now on."""
        self._values = ", ".join(f"{name} {value}" for name, value in values.items())
        self._bar.set_postfix(values, refresh=False)


def say(message: str = "") -> None:
    """Print a line on standard error, above a progress bar if there is one."""
    tqdm.write(message, file=sys.stderr)


def clock(seconds: float) -> str:
    """A duration for display: `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def harmless(text: str) -> str:
    """Text without control characters, which could steer a terminal.

    Joiners stay: they are invisible, but belong to the spelling of some scripts.
    """
    return "".join(map(_harmless, text))


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return "" if unicodedata.category(character) == "Cf" else "\ufffd"


def fitted(text: str, num_columns: int) -> str:
    """Harmless text in at most `num_columns` columns of a terminal, with an ellipsis where it is truncated."""
    shown = harmless(text)
    ends = list(accumulate(map(_num_columns, shown)))
    if not ends or ends[-1] <= num_columns:
        return shown
    return shown[: sum(end < num_columns for end in ends)] + "…"


def _num_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
