"""Signals that ask a training to stop or to save.

Handlers only set flags: a signal can arrive while Python writes to standard error, and printing in a handler would then
raise RuntimeError. The loop prints, through `synchronize` and `take_save_request`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mt_cli.runtime.console import say
from mt_cli.runtime.group import ALONE, Group


class Signals:
    """Requests to stop or to save, received as signals by any process since training began."""

    def __init__(self, group: Group = ALONE) -> None:
        self._group = group
        self._is_stop_received = self._is_save_received = False
        self._is_stop_agreed = self._is_save_agreed = self._is_stop_announced = False

    @property
    def is_stop_requested(self) -> bool:
        """True if training must stop; several processes agree on it once a step."""
        return self._is_stop_received if self._group.size == 1 else self._is_stop_agreed

    def synchronize(self, seconds: float) -> float:
        """Exchange the signals of all processes, and announce a stop; return the `seconds` of the main process."""
        if is_save := self._is_save_received:
            self._is_save_received = False
        seconds, (self._is_stop_agreed, is_save) = self._group.agree(seconds, self._is_stop_received, is_save)
        self._is_save_agreed |= is_save
        if self._is_stop_agreed and not self._is_stop_announced:
            self._is_stop_announced = True
            say("Stopping after this step or validation, saving ... (a second Ctrl-C stops at once)")
        return seconds

    def take_save_request(self) -> bool:
        """True if SIGUSR1 was received since the last call; several processes agree on it once a step."""
        if is_requested := self._is_save_agreed or (self._group.size == 1 and self._is_save_received):
            self._is_save_received = self._is_save_agreed = False
            say("Saving ...")
        return is_requested

    def _stop(self, number: int, frame: object) -> None:
        # Only Ctrl-C is repeated by a person: schedulers, launchers, shells and kernels may send the others twice.
        if self._is_stop_received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._is_stop_received = True

    def _save(self, number: int, frame: object) -> None:
        self._is_save_received = True

    @contextmanager
    def recorded(self) -> Iterator[Signals]:
        """Context manager that records SIGINT, SIGTERM and SIGHUP as requests to stop, and SIGUSR1 as one to save.

        After a request to stop, SIGINT raises KeyboardInterrupt.
        """
        previous = set_handlers(dict.fromkeys(STOPS, self._stop) | {"SIGUSR1": self._save})
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


STOPS = ("SIGINT", "SIGTERM", "SIGHUP")


def set_handlers(handlers: Mapping[str, Any]) -> dict[int, Any]:
    """Set signal handlers by name, and return the previous ones by number.

    Signals to stop that are ignored stay ignored, such as SIGHUP under `nohup`. Outside of the main thread, nothing is
    set.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = {getattr(signal, name): handler for name, handler in handlers.items()}
    ignored = {number for name in STOPS if signal.getsignal(number := getattr(signal, name)) is signal.SIG_IGN}
    return {number: signal.signal(number, numbers[number]) for number in numbers.keys() - ignored}


def interrupt_training() -> None:
    """Let SIGTERM and SIGHUP interrupt this process as Ctrl-C does, and ignore SIGUSR1.

    A scheduler may send these signals before training begins and during the evaluation at its end, too.
    """
    stops: dict[str, Any] = dict.fromkeys(STOPS, signal.default_int_handler)
    set_handlers(stops | {"SIGUSR1": signal.SIG_IGN})
