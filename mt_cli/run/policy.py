"""When a run saves, validates and stops, and the signals that request it. Knows no model or file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from mt_cli.errors import RunInterruptedError
from mt_cli.machine.console import say
from mt_cli.machine.group import agreed, num_processes
from mt_cli.training.steps import StepReport


def follow(
    reports: Iterable[StepReport],
    *,
    log: Callable[[StepReport], None],
    is_time_to_validate: Callable[[], bool],
    validate: Callable[[], None],
    is_time_to_save: Callable[[], bool],
    save: Callable[[], None],
    reason_to_stop: Callable[[], str | None],
    is_interrupted: Callable[[], bool],
) -> str:
    """Consume the reports of the optimisation until there is a reason to stop, and return that reason.

    `validate` and `save` must do nothing when called again for the same state. A validation that happens only
    because the run ends comes after the last save, so that a run resumed from there equals one that never stopped.
    Raises RunInterruptedError after a signal, with the state saved.
    """
    for report in reports:
        log(report)
        if is_time_to_save() or is_interrupted() or reason_to_stop():
            save()
        if is_time_to_validate() and not is_interrupted():
            validate()
            save()
        if is_interrupted():
            save()
            raise RunInterruptedError(f"interrupted at step {report.step}; the same command resumes from there")
        if reason := reason_to_stop():
            save()
            validate()
            return reason
    raise AssertionError("the optimisation never ends by itself")


class Signals:
    """Requests that signals made since training began, to stop or to save, in any process."""

    def __init__(self) -> None:
        self._is_received = self._is_agreed = False
        self._is_save_received = self._is_save_agreed = False

    @property
    def is_stop_requested(self) -> bool:
        """Whether to stop; several processes agree on it once a step."""
        return self._is_received if num_processes() == 1 else self._is_agreed

    def agreed(self, seconds: float) -> float:
        """The `seconds` of the main process; from now on, all processes know of each other's signals."""
        is_save_received, self._is_save_received = self._is_save_received, False
        seconds, (self._is_agreed, is_save_agreed) = agreed(seconds, self._is_received, is_save_received)
        self._is_save_agreed |= is_save_agreed
        return seconds

    def take_save_request(self) -> bool:
        """Whether SIGUSR1 was received since the last call; several processes agree on it once a step."""
        requested = self._is_save_received if num_processes() == 1 else self._is_save_agreed
        self._is_save_received = self._is_save_agreed = False
        return requested

    def _stop(self, number: int, frame: object) -> None:
        if self._is_received:
            raise KeyboardInterrupt
        self._is_received = True
        say("Stopping after this step, saving ... (a second signal stops at once)")

    def _save(self, number: int, frame: object) -> None:
        self._is_save_received = True
        say("Saving after this step ...")

    def _hang_up(self, number: int, frame: object) -> None:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # Writing to the lost terminal would raise.
            os.dup2(nowhere.fileno(), 2)
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
