"""Signals that ask a training to stop or to save. Knows no steps, models or files.

Outside of training, `__main__.py` and `cli/main.py` decide what signals do. The launcher of several processes passes
them on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mt_cli.machine.console import drop_errors, say
from mt_cli.machine.group import ALONE, Group


class Signals:
    """Requests to stop or to save, received as signals by any process since training began."""

    def __init__(self, group: Group = ALONE) -> None:
        self._group = group
        self._is_received = self._is_agreed = False
        self._is_save_received = self._is_save_agreed = False

    @property
    def is_stop_requested(self) -> bool:
        """Whether to stop; several processes agree on it once a step."""
        return self._is_received if self._group.size == 1 else self._is_agreed

    def synchronize(self, seconds: float) -> float:
        """Exchange the signals of all processes; return the `seconds` of the main process."""
        is_save_received, self._is_save_received = self._is_save_received, False
        seconds, (self._is_agreed, is_save_agreed) = self._group.agree(seconds, self._is_received, is_save_received)
        self._is_save_agreed |= is_save_agreed
        return seconds

    def take_save_request(self) -> bool:
        """Whether SIGUSR1 was received since the last call; several processes agree on it once a step."""
        requested = self._is_save_received if self._group.size == 1 else self._is_save_agreed
        self._is_save_received = self._is_save_agreed = False
        return requested

    def _stop(self, number: int, frame: object) -> None:
        if self._is_received:
            raise KeyboardInterrupt
        self._is_received = True
        say("Stopping after this step or validation, saving ... (a second signal stops at once)")

    def _save(self, number: int, frame: object) -> None:
        self._is_save_received = True
        say("Saving after this step ...")

    def _hang_up(self, number: int, frame: object) -> None:
        drop_errors()
        if not self._is_received:  # The shell and the kernel may both send it.
            self._stop(number, frame)

    @contextmanager
    def recorded(self) -> Iterator[Signals]:
        """Context manager that records SIGINT, SIGTERM and SIGHUP as requests to stop, and SIGUSR1 as one to save.

        A second SIGINT or SIGTERM raises KeyboardInterrupt. SIGHUP stays ignored where it was, as under `nohup`.
        """
        handlers = {"SIGINT": self._stop, "SIGTERM": self._stop, "SIGUSR1": self._save, "SIGHUP": self._hang_up}
        previous: dict[int, Any] = {}
        for name, handler in handlers.items():
            number = getattr(signal, name, None)  # Windows has only the first two.
            if number and not (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                with suppress(ValueError):  # Only the main thread may set handlers.
                    previous[number] = signal.signal(number, handler)
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
