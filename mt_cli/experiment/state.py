"""How far a run has come, and the policy around its optimisation. Knows no model, file or terminal."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from mt_cli.config.sections import TrainingConfig
from mt_cli.console import say
from mt_cli.errors import DamagedFileError, RunInterruptedError
from mt_cli.training import Position, StepReport


class UnloggedStep(NamedTuple):
    """What the next row of `metrics.jsonl` needs to know of a step; one that was skipped has no tokens."""

    cross_entropy: float
    """Sum over the target tokens, in nats."""
    num_target_tokens: int
    seconds: float
    num_correct: int | None = None
    """Target tokens that had the highest score; None in states that were saved before they were counted."""


@dataclass
class RunState:
    """What a run remembers beside weights: where it is and what was best. Saved with every checkpoint."""

    position: Position = field(default_factory=Position)
    elapsed_seconds: float = 0.0
    best_step: int = 0
    best_value: float | None = None
    """Of `best_metric`; higher is better, a loss is negated."""
    best_loss: float | None = None
    """Validation loss of the same weights, which decides between equal values."""
    best_metric: str = ""
    """What `best_value` measures, with BLEU's tokenizer: `bleu/13a`, `chrf`, `loss`."""
    num_validations_without_better: int = 0
    validated_step: int = 0
    unlogged: list[UnloggedStep] = field(default_factory=list)
    """The steps since the last row of `metrics.jsonl`."""
    recent_loss: float | None = None
    """Mean loss of the steps in the last row."""
    num_bad_steps: int = 0
    """Skipped since their loss or gradient was not finite."""
    num_bad_steps_in_row: int = 0
    num_restarts: int = 0
    """How often training went back after too many bad steps, each time with half the learning rate."""
    tracked_bytes: dict[str, int] = field(default_factory=dict)
    """Sizes, when this was saved, of the files that grow as the run goes on."""
    longest_source: int | None = None
    """Tokens of the longest source sentence that is trained on, as far as that is known before: of no stream."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Of the corpora and tokenizers that the run began with."""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RunState:
        """The inverse of `asdict`; raises DamagedFileError if it is none."""
        try:
            found = TypeAdapter(cls).validate_python(state)
            numbers = [value for part in (found, found.position) for value in vars(part).values()]
            if any(isinstance(number, int) and number < 0 for number in numbers):
                raise DamagedFileError("damaged checkpoint: a negative count in its state")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise DamagedFileError(f"damaged checkpoint: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return found

    def is_better(self, value: float, loss: float) -> bool:
        """Whether a validation beats the best one so far; one that is not finite never does."""
        if not math.isfinite(value) or not math.isfinite(loss):
            return False
        best_loss = math.inf if self.best_loss is None else self.best_loss
        return self.best_value is None or (value, -loss) > (self.best_value, -best_loss)

    def is_due(self, config: TrainingConfig) -> bool:
        """Whether the schedule of the config has a validation at this step."""
        position, every = self.position, config.validate_every_steps
        ends_epoch = position.pool == position.num_batches == 0
        return position.step > 0 and (position.step % every == 0 if every else ends_epoch)

    def reason_to_stop(self, config: TrainingConfig) -> str | None:
        """The option of the config that ends the run here, with its value."""
        reached = {
            "max_steps": config.max_steps is not None and self.position.step >= config.max_steps,
            "max_epochs": config.max_epochs is not None and self.position.epoch >= config.max_epochs,
            "max_minutes": config.max_minutes is not None and self.elapsed_seconds >= 60 * config.max_minutes,
            "patience": config.patience is not None and self.num_validations_without_better >= config.patience,
        }
        return next((f"{name} {getattr(config, name)}" for name, is_reached in reached.items() if is_reached), None)


class Signals:
    """What has been asked for from outside while the work went on."""

    def __init__(self) -> None:
        self.is_stop_wanted = False
        self._is_save_wanted = False

    def take_save_wanted(self) -> bool:
        """Whether SIGUSR1 has come since this was last asked."""
        wanted, self._is_save_wanted = self._is_save_wanted, False
        return wanted

    def _stop(self, number: int, frame: object) -> None:
        if self.is_stop_wanted:
            raise KeyboardInterrupt
        self.is_stop_wanted = True
        say("Stopping after this step, saving ... (once more: stop at once)")

    def _save(self, number: int, frame: object) -> None:
        self._is_save_wanted = True
        say("Saving after this step ...")

    def _hang_up(self, number: int, frame: object) -> None:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # Writing to the lost terminal would raise.
            os.dup2(nowhere.fileno(), 2)
        if not self.is_stop_wanted:  # The shell and the kernel may both send it.
            self._stop(number, frame)

    @contextmanager
    def noted(self) -> Iterator[Signals]:
        """Inside, SIGINT and SIGTERM are noted, and a second one ends the program at once; SIGUSR1 asks to save.

        SIGHUP, a lost connection, is noted as well, but where it is ignored, as with `nohup`, it stays so.
        """
        handlers: dict[int, Any] = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
        if hasattr(signal, "SIGUSR1"):
            handlers[signal.SIGUSR1] = self._save
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handlers[signal.SIGHUP] = self._hang_up
        try:
            former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        except ValueError:  # Not the main thread: signals stay as they are.
            former = {}
        try:
            yield self
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


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
    """The policy around the optimisation: take its reports until there is a reason to stop, and return that.

    `validate` and `save` do nothing if they have been called at this step already and nothing has changed. A validation
    that only the end of the run brings comes after the last save, so that a run which later goes on from there is one
    that was never stopped.

    Raises:
        RunInterruptedError: after saving, if a signal came.
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
            raise RunInterruptedError(f"interrupted at step {report.step}; the same command goes on from there")
        if reason := reason_to_stop():
            save()
            validate()
            return reason
    raise AssertionError("the optimisation never ends by itself")
