"""Text on the user's terminal: notices, progress, durations, and characters that are safe to print."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from mt_cli.errors import InputError

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 30.0

MODES = ("auto", "bar", "plain", "none")
_mode = "auto"
_is_silent = False
_log: TextIO | None = None
"""File that gets the notices instead of standard error."""


@cache
def bars() -> type[tqdm[Any]]:
    """Class of progress bars, imported at first use to keep `mt --help` fast."""
    from tqdm import tqdm

    # The default lock works across processes. Python 3.14 reports its semaphore as leaked after a signal.
    tqdm.set_lock(threading.RLock())
    return tqdm


def show_progress(mode: str) -> None:
    """Set how progress is shown; `auto` is a bar on a terminal and lines elsewhere. Raises InputError if unknown."""
    global _mode
    if mode not in MODES:
        raise InputError(f"--progress {mode}: use {', '.join(MODES)}")
    _mode = "none" if _is_silent else mode


def silence() -> None:
    """Suppress progress and notices from now on; every process of a group except the main one calls this."""
    global _mode, _is_silent
    _mode, _is_silent = "none", True


def has_bars() -> bool:
    return _mode == "bar" or (_mode == "auto" and sys.stderr.isatty())


@dataclass(eq=False)
class Progress:
    """Progress of a stage, with rate and time left: a bar on standard error, or a line every half minute.

    A `total` of None means unknown. `done` is the number of items that earlier commands completed. With `is_quiet`,
    the mode `auto` shows nothing if there is no terminal. With `leave=False`, the bar disappears at the end.
    """

    description: str
    total: int | None
    unit: str
    done: int = 0
    _: KW_ONLY
    max_seconds: float | None = None
    is_quiet: bool = False
    leave: bool = True

    def __post_init__(self) -> None:
        has_bar = has_bars()
        self._has_lines = not has_bar and (_mode == "plain" or (_mode == "auto" and not self.is_quiet))
        self._started_at = self._said_at = time.monotonic()
        self._before, self._values = self.done, ""
        units: Any = {"unit": f" {self.unit}s", "unit_scale": self.total is None or self.total > 10_000}
        bar: Any = {"disable": not has_bar, "dynamic_ncols": True, "leave": self.leave}
        self._bar: tqdm[Any] = bars()(desc=self.description, total=self.total, initial=self.done, **units, **bar)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; count an item when the caller asks for the next one."""
        for item in items:
            yield item
            self.advance()

    def advance(self, amount: int = 1) -> None:
        self.done += amount
        self._bar.update(amount)
        if self._has_lines and time.monotonic() - self._said_at > _SECONDS_BETWEEN_LINES:
            self._said_at = time.monotonic()
            bars().write(self._line(), file=sys.stderr)

    def _line(self) -> str:
        seconds = self._said_at - self._started_at
        rate = (self.done - self._before) / seconds
        of_total = f" of {self.total:,}" if self.total else ""
        limits = [max(0, self.total - self.done) / rate] if self.total and rate else []  # A total may be an estimate.
        if self.max_seconds is not None:
            limits.append(max(0.0, self.max_seconds - seconds))
        left = f", {bars().format_interval(min(limits))} left" if limits else ""
        values = f"  {self._values}" if self._values else ""
        return f"{self.description}: {self.done:,}{of_total} {self.unit}s, {rate:,.1f} a second{left}{values}"

    def expect(self, total: int) -> None:
        self.total = self._bar.total = total

    def show(self, **values: str) -> None:
        self._values = ", ".join(f"{name} {value}" for name, value in values.items())
        self._bar.set_postfix(values, refresh=False)


def say(message: str = "") -> None:
    if not _is_silent:
        bars().write(message, file=_log or sys.stderr)


def say_examples(labels: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the first two rows, each text on a line after its label, truncated at the width of the terminal."""
    num_columns = max(80, shutil.get_terminal_size().columns) - 14
    for label, text in (cell for row in rows[:2] for cell in zip(labels, row, strict=True)):
        say(f"  {label:<12}{truncate(text, num_columns)}")


@contextmanager
def notices_in(path: Path) -> Iterator[None]:
    """Append notices to a file instead of printing them; progress is still shown."""
    global _log
    with path.open("a", encoding="utf-8", buffering=1) as _log:
        try:
            yield
        finally:
            _log = None


def say_next(config: Path) -> None:
    quoted = shlex.quote(str(config))
    say(f"Next:  mt data check --config {quoted}\nThen:  mt train --config {quoted}")


def listed(items: Sequence[str], most: int = 5, count: int | None = None) -> str:
    """First items of a list for display, and how many more there are; `count` is the number of all, if larger."""
    count = len(items) if count is None else count
    more = f" and {count - most:,} more" if count > most else ""
    return ", ".join(items[:most]) + more


def clock(seconds: float) -> str:
    """A duration for display: `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def truncate(text: str, num_columns: int) -> str:
    """Text in at most `num_columns` columns of a terminal, with an ellipsis if it is truncated.

    Control characters, which could steer a terminal, are replaced. Joiners stay: they are invisible, but belong to the
    spelling of some scripts.
    """
    shown = "".join(map(_sanitize, text))
    ends = list(accumulate(map(_num_columns, shown)))
    if not ends or ends[-1] <= num_columns:
        return shown
    return shown[: sum(end < num_columns for end in ends)] + "…"


def _sanitize(character: str) -> str:
    if character.isspace():
        return " "
    if character.isprintable() or character in "\u200c\u200d":
        return character
    return "" if unicodedata.category(character) == "Cf" else "\ufffd"


def display_width(text: str) -> int:
    """Number of columns of a text on a terminal: East Asian wide characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_num_columns, text))


def _num_columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
