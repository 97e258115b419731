"""Text on the user's terminal: notices, progress, clock times, and characters that are safe to print."""

from __future__ import annotations

import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

from mt_cli.errors import InputError

T = TypeVar("T")

_SECONDS_WORTH_A_LINE = 5.0
_SECONDS_BETWEEN_LINES = 30.0

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


def clock(seconds: float) -> str:
    """A time for people: `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def harmless(text: str) -> str:
    """Text as a terminal may have it, without characters that steer it.

    Joiners, invisible as they are, belong to the spelling of some scripts and stay.
    """
    return "".join(map(_harmless, text))


def _harmless(character: str) -> str:
    if character.isspace():
        return " "
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return "" if unicodedata.category(character) == "Cf" else "\ufffd"


def fitted(text: str, num_columns: int) -> str:
    """Text in at most so many columns of a terminal, with an ellipsis where it is cut, and nothing that steers it."""
    shown = harmless(text)
    ends = list(accumulate(map(_num_columns, shown)))
    if not ends or ends[-1] <= num_columns:
        return shown
    return shown[: sum(end < num_columns for end in ends)] + "…"


def _num_columns(character: str) -> int:
    """How wide a terminal draws a character."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
