"""The loop of training: after each step, log, save, validate and stop.

`checkpoint/state.py` decides when to validate and to stop, this module when to save, and `log.py` when to log.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict

from mt_cli.checkpoint.state import PLAN_USED_UP, RunState
from mt_cli.corpus.source_rows import names_of
from mt_cli.errors import RunInterruptedError
from mt_cli.run.log import Records, TrainingLog
from mt_cli.run.report import Ending
from mt_cli.run.resume import follow, save_state
from mt_cli.run.selection import follow_selection, note_unselected, select_pairs
from mt_cli.run.setup import Setup
from mt_cli.run.synthetic import metrics_of_round
from mt_cli.run.validation import Validation
from mt_cli.runtime.console import Progress, clock, say, say_examples
from mt_cli.runtime.devices import release_memory
from mt_cli.runtime.signals import Signals
from mt_cli.training.plan import Plan, advanced, planned_rate
from mt_cli.training.steps import StepReport, optimization_steps
from mt_cli.training.update import build_update


def optimize(setup: Setup, state: RunState) -> Ending:
    """Train until there is a reason to stop; return its results.

    Raises RunInterruptedError after a signal, with the state saved, and DivergenceError.
    """
    training, step, group = setup.run.config.training, state.position.step, setup.run.group
    seconds = None if training.max_minutes is None else 60 * training.max_minutes - state.elapsed_seconds
    records = group.on_main(lambda: Records(setup.run.directory.path, step, state.tracked_bytes))
    progress = Progress("train", setup.num_steps(state), "step", step, max_seconds=seconds)
    closed = nullcontext() if records is None else closing(records)
    with closed, progress as bar, Signals(group).recorded() as signals:
        if records is not None:
            save_state(setup, state, records.flush())
        follow(setup)
        loop = TrainingLoop(setup, state, records, bar, signals)
        if state.parents and step == 0 and not state.parent_metric:  # The first weights were not validated yet.
            loop.validate_parent()
        elif state.is_validation_due(training):  # If the validation was not interrupted, this does nothing.
            loop.validate()
            loop.select_pairs()
        loop.save()
        if reason := state.reason_to_stop(training):
            loop.validate()
        else:
            reason = loop.run()
        if records is not None:
            records.flush()
        if signals.is_stop_requested:
            raise RunInterruptedError("interrupted after the last step; the same command does the rest")
        return Ending(state, reason, setup.num_parameters, setup.length, setup.pairs.counts)


class TrainingLoop:
    """Training from a saved state until a stop. Only the main process has `records` and saves."""

    def __init__(self, setup: Setup, state: RunState, records: Records | None, bar: Progress, signals: Signals) -> None:
        self._setup, self._state, self._records, self._signals = setup, state, records, signals
        self._config, self._bar = setup.run.config.training, bar
        self._update = build_update(
            setup.objective, setup.optimizer, self._config, setup.run.dtype, setup.run.group, setup.compiles_layers
        )
        texts = [lines.name for lines in setup.run.data.monolingual.values()]
        parts = names_of(setup.run.config.corpus.train) + texts
        self._log = TrainingLog(self._config, state, self._write_metrics, bar, parts)
        scaler = self._update.gradients.scaler
        scaler.load_state_dict(scaler.state_dict() | state.loss_scale)
        self._saved, self._saved_at = self._moment, state.elapsed_seconds
        self._pairs = setup.rounds.pairs(state) if setup.rounds else setup.pairs
        follow_selection(setup, state, self._pairs)
        self._has_new_pairs = False

    def run(self) -> str:
        """Train until there is a reason to stop, and return that reason.

        If the run ends between two validations, it saves first and validates after that; if it goes on, see
        `resume._reconcile_best`. Raises RunInterruptedError after a signal, with the state saved.
        """
        self._make_round()  # If the run was stopped in a round; otherwise this does nothing.
        for report in self._steps():
            self._log.add(report)
            if self._is_save_due():
                self.save()
            if self._state.is_validation_due(self._config) and not self._signals.is_stop_requested:
                self._drain()
                started_at = time.monotonic()
                self.validate()
                self.select_pairs()
                if not self._state.reason_to_stop(self._config):  # The last validation counts as a part of the end.
                    self._count_pause(time.monotonic() - started_at)
                self.save()
            if self._signals.is_stop_requested:
                self.save()
                raise RunInterruptedError(f"interrupted at step {report.step}; the same command resumes from there")
            self._make_round()
            if reason := self._state.reason_to_stop(self._config):
                self._note_on_time(reason)
                note_unselected(self._setup.run.config, self._state)
                self.save()
                self.validate()
                return reason
        raise AssertionError("the optimisation never ends by itself")

    def _steps(self) -> Iterator[StepReport]:
        """Yield the reports of training steps, from a new iterator after each round; count the elapsed time."""
        state, training, length = self._state, self._config, self._setup.length
        started_at = time.monotonic() - state.elapsed_seconds  # As if the run had never stopped.

        def rate(step: int) -> float:
            return planned_rate(training, step, length, state.plan_for(training), state.elapsed_seconds)

        while True:
            self._has_new_pairs = False
            for report in optimization_steps(self._update, self._pairs, training, rate, state.position):
                if self._setup.average is not None:
                    self._setup.average.update(report.step)
                state.elapsed_seconds = self._signals.synchronize(time.monotonic() - started_at)
                plan, step = state.plan_for(training), state.position.step
                if training.max_minutes is not None and (plan is None or plan.is_checked_at(step)):
                    self._drain()
                    state.elapsed_seconds = self._signals.synchronize(time.monotonic() - started_at)
                    position = step, state.position.num_target_tokens
                    state.plan = advanced(state.plan, training, length, position, state.elapsed_seconds)
                    self._say_plan(plan)
                yield report
                state.elapsed_seconds = self._signals.synchronize(time.monotonic() - started_at)
                if self._has_new_pairs:
                    break

    def _count_pause(self, seconds: float) -> None:
        """Count time without updates."""
        state, before = self._state, self._state.elapsed_seconds
        state.elapsed_seconds = self._signals.synchronize(before + seconds)
        if state.plan is not None:
            state.plan = state.plan.paused(state.elapsed_seconds - before)

    def _say_plan(self, before: Plan | None) -> None:
        """Say the plan if it is new or has more updates than before."""
        plan, length = self._state.plan_for(self._config), self._setup.length
        if plan is not None and (before is None or plan.num_steps > before.num_steps):
            self._bar.expect(plan.last_step(length))
            faster = f"The machine has become faster. {plan.describe_updates(length)}"
            say(faster if before else plan.describe(length))

    def _make_round(self) -> None:
        """Make a round if one is due, save it, and go on with its pairs in a new epoch.

        The state before it is saved. Half an epoch or more that the round ends counts as one epoch.
        """
        setup, state, rounds = self._setup, self._state, self._setup.rounds
        if rounds is None or state.reason_to_stop(self._config) or self._signals.is_stop_requested:
            return
        num_steps, started_at = setup.num_steps(state), time.monotonic()
        if not rounds.is_due(state, num_steps):
            return
        with setup.averaged():
            state.round, parts = rounds.make(state, num_steps, self._is_stopped)
        seconds = time.monotonic() - started_at
        self._count_pause(seconds)
        if not parts:
            return
        position = state.position
        per_epoch = rounds.steps_per_epoch * self._config.micro_batches_per_step * position.num_processes
        num_batches = position.pool * per_epoch // (setup.pairs.num_pools or 1) + position.num_batches
        position.epoch += 2 * num_batches >= per_epoch
        position.pool = position.num_batches = 0
        if state.selected is not None:
            state.selected = state.selected._replace(epoch=position.epoch, pool=0)
        for part in parts:
            say(f"step {position.step:>6,}  round {part.number}  {part.describe()}; {clock(seconds)} in all")
            say_examples(("translation", "line"), part.examples)
        self._write_metrics(position.step + 1, metrics_of_round(parts))  # The first step with the round.
        self.save()
        setup.run.group.on_main(rounds.remove_old)
        self._pairs, self._has_new_pairs = rounds.pairs(state), True
        follow_selection(setup, state, self._pairs)
        release_memory()

    def _is_stopped(self) -> bool:
        """True if a signal asked to stop; all processes get the same answer."""
        self._signals.synchronize(0.0)
        return self._signals.is_stop_requested

    def _note_on_time(self, reason: str) -> None:
        """Say so if the time ends before the planned updates are made, or long after them."""
        plan, step = self._state.plan_for(self._config), self._state.position.step
        if plan and reason.startswith("max_minutes") and step < plan.last_step(self._setup.length):
            say(f"note: the time is up after {step:,} of {plan.num_steps:,} updates: the machine has become slower")
        elif plan and reason.startswith(PLAN_USED_UP):
            left = clock(plan.training_seconds - self._state.elapsed_seconds)
            say(
                f"note: all planned updates are made, and {left} are left, because the machine has become faster; the "
                "same command with a larger training.max_minutes uses this time"
            )

    def _is_save_due(self) -> bool:
        """True if a signal requested a save, or `save_every_minutes` have passed; all processes get the same answer."""
        minutes = self._config.save_every_minutes
        is_overdue = minutes is not None and self._state.elapsed_seconds - self._saved_at >= 60 * minutes
        return self._signals.take_save_request() or is_overdue

    def save(self) -> None:
        """Save everything that resuming needs; once per step, and again after a validation."""
        self._drain()
        if self._saved != self._moment:
            if self._records is not None:
                save_state(self._setup, self._state, self._records.flush())
            self._saved, self._saved_at = self._moment, self._state.elapsed_seconds

    @property
    def _moment(self) -> tuple[int, int, str, int]:
        """Last step, validation and round; without a change of these, there is nothing new to save."""
        state = self._state
        return state.position.step, state.validated_step, state.parent_metric, state.round.number

    def validate_parent(self) -> None:
        """Score the validation set with the weights of the parent, before the first step."""
        setup, state = self._setup, self._state
        with setup.averaged():
            validation = setup.validator.validate(setup.run.group)
        state.parent_value = validation.value if math.isfinite(validation.value) else None
        state.parent_metric = setup.validator.metric_id
        self._write_metrics(0, validation.metrics)
        names = " and ".join(parent.run for parent in state.parents)
        say(f"  {names} on valid, before the first step: {setup.validator.describe(validation)}")

    def validate(self) -> None:
        """Score the validation set and save the weights if they are the best so far; once per step."""
        setup, state, step = self._setup, self._state, self._state.position.step
        if state.validated_step == step:
            return
        self._drain()
        with setup.averaged():
            validation = setup.validator.validate(setup.run.group)
            scores, number = (validation.value, validation.loss), self._config.average_checkpoints or 0
            warmup_steps = state.warmup_steps(self._config)
            is_best = state.add_validation(*scores, setup.validator.metric_id, warmup_steps)
            is_kept = state.keep_validation(step, *scores, number)
            if self._records is not None and is_kept:
                setup.run.directory.save_validated(setup.model, asdict(state), step)
            if self._records is not None and is_best:
                setup.run.directory.save_best(setup.model, asdict(state))
        self._write_metrics(step, validation.metrics)
        if self._records is not None:
            self._records.write_samples(step, validation.samples)
        self._say_scores(validation, is_best)
        release_memory()

    def select_pairs(self) -> None:
        """Select training pairs once, if the config asks for it: after a validation when half of the updates are made.

        If their number is unknown, it is the first validation after the warm-up that is not the best so far.
        """
        setup, state, step = self._setup, self._state, self._state.position.step
        planned = setup.num_steps(state)
        has_learned = 2 * step >= planned if planned else state.num_validations_without_better > 0
        is_warm = step > state.warmup_steps(self._config)
        if state.selected is None and state.validated_step == step and is_warm and has_learned:
            select_pairs(setup, state)
            if state.selected is not None:
                follow_selection(setup, state, self._pairs)
                self._has_new_pairs = True  # Batches that were made ahead have other pairs.

    def _say_scores(self, validation: Validation, is_best: bool) -> None:
        setup, state = self._setup, self._state
        step, per_epoch = state.position.step, setup.length.steps_per_epoch
        epoch = step / per_epoch if per_epoch else float(state.position.epoch)
        compared = validation.value, setup.validator.metric_id
        accuracy, bleu, chrf = (validation.metrics[f"valid/{name}"] for name in ("token_accuracy", "bleu", "chrf"))
        say(
            f"step {step:>6,}  epoch {epoch:5.1f}  {clock(state.elapsed_seconds)}  train loss "
            f"{self._log.recent_loss:.3f}  valid loss {validation.loss:.3f}  accuracy {accuracy:.1%}  "
            f"BLEU {bleu:.2f}  chrF {chrf:.2f}"
            + ("  best" if is_best else "")
            + ("  below the parent" if state.is_below_parent(*compared) else "")
            + ("  no better than the parent" if compared == (state.parent_value, state.parent_metric) else "")
        )
        say_examples(("source", "reference", "hypothesis"), validation.samples)

    def _write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._records is not None:
            self._records.write_metrics(step, self._state.elapsed_seconds, metrics)

    def _drain(self) -> None:
        """Copy step results that are pending on the GPU into the state."""
        self._log.drain()
        self._state.loss_scale = self._update.gradients.scaler.state_dict()
