"""A whole run: preparation, training with validations, and the final test."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.lineage import ancestor_of
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.corpus.sources import names_of
from mt_cli.errors import RunInterruptedError
from mt_cli.evaluation.texts import scorer_of
from mt_cli.machine.console import Progress, clock, say
from mt_cli.machine.devices import keep_memory, pick_device, seed_everything
from mt_cli.machine.group import is_main, note, num_processes, of_main, was_noted
from mt_cli.machine.storage import remove
from mt_cli.model.trainable import add_adapters
from mt_cli.run.data import prepare
from mt_cli.run.log import TooManyBadStepsError, TrainingLog
from mt_cli.run.plan import config_to_resume, prepare_new
from mt_cli.run.policy import Signals, follow
from mt_cli.run.records import NoTracker, Tracker
from mt_cli.run.report import finished_report, format_summary, write_report
from mt_cli.run.resuming import go_back, is_good, reconcile_best, resume
from mt_cli.run.setup import Setup, Whole, new_model, resolve_batch_tokens
from mt_cli.run.sharing import own_directory, shared_data, shared_state
from mt_cli.run.validation import sample_lines
from mt_cli.training.optimizer import learning_rate
from mt_cli.training.steps import Position, StepReport, optimization_steps

_MOVED_ASIDE = "moved aside"
"""The event that `--fresh` has done its work."""


def train(config: Config, runs: Path, fresh: bool = False) -> dict[str, Any]:
    """Start or resume the run that a config describes; return its report, which is also in the run directory.

    An existing run is not changed before the corpora have been read and the device has been found.

    Raises InputError if the data, the device or an older run in the directory does not fit, DeviceMemoryError if the
    model or a pair does not fit in memory, DivergenceError if training diverges, and RunInterruptedError after a
    signal, with the state saved.
    """
    device = pick_device(config.training.device)
    scorer_of(config, "valid")  # Raises now, not after the data is prepared, if the scorer is not available.
    if config.training.num_threads is not None:
        torch.set_num_threads(config.training.num_threads)
    with own_directory(runs / config.name) as directory:
        setup, state = _prepare(config, directory, runs / ".cache", device, fresh and not was_noted(_MOVED_ASIDE))
        report = of_main(lambda: finished_report(setup, state))
        if report is None:
            last, stopped_because = _optimize(setup, state)
            report = of_main(lambda: _finish(setup, last, stopped_because))
        else:
            say(f"This run is finished ({report['stopped_because']}); nothing is left to do.")
            if setup.config.training.average_checkpoints and not report.get("averaged_steps"):
                say(f"A mean is made at the end of training. Now: mt average --run {directory.path} --last N")
    say(format_summary(report, directory.path))
    return report


def _finish(setup: Setup, state: RunState, stopped_because: str) -> dict[str, Any]:
    """Average checkpoints if the config says so, and score the best one; return the report."""
    try:
        if setup.config.training.average_checkpoints is not None:
            hooks.average_at_end(setup, state)
        return write_report(setup, state, stopped_because)
    except KeyboardInterrupt:
        message = "interrupted during the final test; the model is saved, the same command resumes there"
        raise RunInterruptedError(message) from None


def _import_now() -> None:
    """Import what would be imported later, some of it in threads.

    A run that was stopped in that moment once waited for Python's import lock for ever.
    """
    import_module("torch.utils.tensorboard")
    pa.array([0]).to_numpy()  # Imports pandas, if it is installed.


def _prepare(
    config: Config, directory: RunDirectory, cache_path: Path, device: torch.device, fresh: bool
) -> tuple[Setup, RunState]:
    """Build what a run works with; load its state, or make the directory of a new run.

    Of several processes, the main one alone has the state, and the weights that training begins with.
    """
    changed, data, parent = list[str](), None, None
    resumes = not fresh and directory.can_resume()
    if resumes:
        config, tokenizers, changed = config_to_resume(directory, config)
        data = prepare(config, cache_path, tokenizers)
    elif is_main():
        config, data, parent = prepare_new(config, cache_path, directory.path)
    config, data = shared_data(config, data, cache_path)
    keep_memory()
    seed_everything(config.training.seed)
    model = new_model(config, data, device, parent)
    config = of_main(lambda: resolve_batch_tokens(config, model, data))
    if fresh and not directory.is_empty():
        say(f"The old run was moved to {directory.move_aside()}.")
    if is_main():
        note(_MOVED_ASIDE)
    if not resumes and is_main():
        directory.create(config, data.tokenizers)
        if config.init.adapter_rank is not None:
            directory.save_base(model)
    if is_main():
        directory.add_adapters(model, config.init)
    else:
        add_adapters(model, config.init)
    _import_now()
    setup = Setup(directory, config, model, data)
    state = resume(setup, changed) if resumes else _first_state(parent)
    setup.count_steps(state.position.num_processes)
    for line in setup.describe():
        say(line)
    if parent is not None:
        say(f"  begins with {parent.describe()}")
    return setup, state


def _first_state(parent: hooks.Parent | None) -> RunState:
    position = Position(num_processes())
    if parent is None:
        return RunState(position)
    return RunState(position, parents=[ancestor_of(parent.run)], longest_source=parent.run.max_tokens)


def _optimize(setup: Setup, state: RunState) -> tuple[RunState, str]:
    """Train until there is a reason to stop; return it with the last state. Goes back if training diverges."""

    def start() -> RunState:
        setup.validator.allow(state.longest_source)
        reconcile_best(setup, state)
        return state

    current = shared_state(setup, start)
    setup.validator.allow(current.longest_source)
    setup.count_steps(current.position.num_processes)
    while True:
        try:
            return current, _train_from(setup, current)
        except TooManyBadStepsError as error:
            current = _gone_back(setup, current, error)


def _gone_back(setup: Setup, diverged: RunState, error: TooManyBadStepsError) -> RunState:
    return shared_state(setup, lambda: go_back(setup, diverged, error))


def _train_from(setup: Setup, state: RunState) -> str:
    """Train from a state until there is a reason to stop; return that."""
    training, step = setup.config.training, state.position.step
    seconds = None if training.max_minutes is None else 60 * training.max_minutes - state.elapsed_seconds
    kind = Tracker if is_main() else NoTracker
    with (
        kind(setup.directory.path, step, state.tracked_bytes) as tracker,
        Progress("train", setup.num_steps, "step", step, max_seconds=seconds) as bar,
        Signals().recorded() as signals,
    ):
        loop = _Loop(setup, state, tracker, bar, signals)
        if state.begins_with_parent:
            loop.validate_parent()
        loop.save()
        if state.is_validation_due(training):  # It may have been interrupted; otherwise this does nothing.
            loop.validate()
            loop.save()
        if reason := state.reason_to_stop(training):
            loop.validate()
            return reason
        remove(setup.directory.report_path)  # It describes an end that no longer holds.
        return follow(
            loop.reports(),
            log=loop.log.add,
            is_time_to_validate=lambda: state.is_validation_due(training),
            validate=loop.validate,
            is_time_to_save=loop.is_time_to_save,
            save=loop.save,
            reason_to_stop=lambda: state.reason_to_stop(training),
            is_interrupted=lambda: signals.is_stop_requested,
        )


class _Loop:
    """The actions of training between two restarts."""

    def __init__(self, setup: Setup, state: RunState, tracker: Tracker, bar: Progress, signals: Signals) -> None:
        self._setup, self._state, self._tracker, self._signals = setup, state, tracker, signals
        self._trained = trained = hooks.Shards(setup) if setup.is_sharded else Whole(setup)
        training, parts = setup.config.training, names_of(setup.config.corpus.train)
        self.log = TrainingLog(training, state, tracker, bar, trained.optimizer, parts)
        scaler = trained.gradients.scaler
        scaler.load_state_dict(scaler.state_dict() | state.loss_scale)
        self._saved: tuple[int, int] | None = None
        self._saved_at = state.elapsed_seconds
        """When training began, or the step of the last save ended."""

    def reports(self) -> Iterator[StepReport]:
        """Train, and count the time that passes."""
        setup, state, training = self._setup, self._state, self._setup.config.training
        factor, num_steps = 0.5**state.num_restarts, setup.num_steps
        steps = optimization_steps(
            self._trained.gradients,
            self._trained.optimizer,
            setup.pairs,
            training,
            lambda step: factor * learning_rate(training, step, num_steps, state.elapsed_seconds),
            state.position,
        )
        started_at = time.monotonic() - state.elapsed_seconds
        for report in steps:
            if self._trained.average is not None:
                self._trained.average.update(report.step)
            state.elapsed_seconds = self._signals.agreed(time.monotonic() - started_at)
            yield report
            state.elapsed_seconds = self._signals.agreed(time.monotonic() - started_at)
            if self._saved is not None and self._saved[0] == report.step:
                self._saved_at = state.elapsed_seconds

    def validate_parent(self) -> None:
        """Score the validation set with the weights of another run, with which training begins."""
        setup, state = self._setup, self._state
        with self._trained.deployed() as model:
            found = setup.validator.validate(model)
        state.set_parent(found.value, setup.validator.measure)
        self._tracker.write_metrics(0, state.elapsed_seconds, found.metrics)
        names = " and ".join(parent.run for parent in state.parents)
        say(f"  {names} on valid, before the first step: {setup.validator.describe(found)}")

    def validate(self) -> None:
        """Score the validation set and save the weights if they are the best so far; once per step."""
        setup, state, step = self._setup, self._state, self._state.position.step
        if state.validated_step == step:
            return
        self._read()
        training = setup.config.training
        with self._trained.deployed() as model:
            found = setup.validator.validate(model)
            is_best = state.add_validation(found.value, found.loss, setup.validator.measure, training.warmup_steps)
            is_kept = state.keep_validation(step, found.value, found.loss, training.num_validated_kept)
            if is_kept and is_main():
                setup.directory.save_validated(setup.model, asdict(state), step)
            if is_best and is_main():
                setup.directory.save_best(setup.model, asdict(state))
        self._tracker.write_metrics(step, state.elapsed_seconds, found.metrics)
        self._tracker.write_samples(step, found.samples)
        self._tracker.write_pictures(step, found.pictures)
        epoch = step / setup.steps_per_epoch if setup.steps_per_epoch else float(state.position.epoch)
        accuracy, bleu, chrf = (found.metrics[f"valid/{name}"] for name in ("token_accuracy", "bleu", "chrf"))
        say(
            f"step {step:>6,}  epoch {epoch:5.1f}  {clock(state.elapsed_seconds)}  train loss "
            f"{self.log.recent_loss:.3f}  valid loss {found.loss:.3f}  accuracy {accuracy:.1%}  "
            f"BLEU {bleu:.2f}  chrF {chrf:.2f}"
            + ("  best" if is_best else "")
            + ("  below the parent" if state.is_below_parent(found.value, setup.validator.measure) else "")
        )
        for line in sample_lines(found.samples, max(80, shutil.get_terminal_size().columns)):
            say(line)

    def save(self) -> None:
        """Save everything that resuming needs; once per step, and again after a validation."""
        state = self._state
        self._read()
        now = (state.position.step, state.validated_step)
        if self._saved != now:
            self._trained.store()
            if is_main():
                self._write_state()
            self._saved = now

    def _write_state(self) -> None:
        setup, state = self._setup, self._state
        state.tracked_bytes = self._tracker.flush()
        state.fingerprints, state.longest_source = setup.fingerprints, setup.validator.longest_source
        step, keep_last = state.position.step, setup.config.training.keep_last
        good, average = is_good(state, setup.model), setup.average.weights if setup.average else None
        setup.directory.save_state(setup.model, asdict(state), setup.optimizer, step, keep_last, good, average)
        setup.directory.keep_validated([each.step for each in state.validations])

    def _read(self) -> None:
        """Bring the state up to date, waiting for a GPU."""
        self.log.read()
        self._state.loss_scale = self._trained.gradients.scaler.state_dict()

    def is_time_to_save(self) -> bool:
        """Whether a signal requested it, or `save_every_minutes` have passed since the last save; for all processes."""
        minutes = self._setup.config.training.save_every_minutes
        is_overdue = minutes is not None and self._state.elapsed_seconds - self._saved_at >= 60 * minutes
        return self._signals.take_save_request() or is_overdue
