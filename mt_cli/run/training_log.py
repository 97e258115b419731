"""Training log: rows of means over steps for `records.py`, and detection of divergence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from mt_cli.checkpoint.state import RunState, UnloggedStep
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import DivergenceError
from mt_cli.machine.console import Progress, say
from mt_cli.machine.devices import memory_used
from mt_cli.model.kernels import is_cpu
from mt_cli.training.optimizer import weight_norm
from mt_cli.training.steps import StepReport


class TooManyBadStepsError(DivergenceError):
    """Training has skipped `training.max_bad_steps` steps in a row; `last` is the report of the last one."""

    def __init__(self, message: str, last: StepReport) -> None:
        super().__init__(message)
        self.last = last


class TrainingLog:
    """Writer of rows with means over steps; it waits for a GPU only when it writes.

    All of its memory is in the state, so a resumed run writes the same rows as a run that never stopped.
    """

    def __init__(
        self,
        config: TrainingConfig,
        state: RunState,
        write_metrics: Callable[[int, Mapping[str, float]], None],
        bar: Progress,
        optimizer: torch.optim.Optimizer,
        parts: Sequence[str] = (),
    ) -> None:
        self._config, self._state, self._write_metrics, self._bar = config, state, write_metrics, bar
        self._optimizer, self._parts = optimizer, parts
        self._unread: list[StepReport] = []
        self._num_splits = 0

    @property
    def recent_loss(self) -> float:
        """Mean loss of the steps since the last row; without such steps, mean loss of the last row."""
        num_tokens = sum(step.num_target_tokens for step in self._state.unlogged)
        if num_tokens:
            return sum(step.cross_entropy for step in self._state.unlogged) / num_tokens
        return float("nan") if self._state.recent_loss is None else self._state.recent_loss

    def add(self, report: StepReport) -> None:
        """Add a step; raises TooManyBadStepsError if training has diverged."""
        self._unread.append(report)
        self._bar.advance()
        if report.num_splits and not self._num_splits:
            say("A batch did not fit in memory and was split; later batches are split too. The gradient stays equal.")
        self._num_splits = report.num_splits
        is_row_due = report.step % self._config.log_every_steps == 0
        if is_row_due or is_cpu(report.cross_entropy):
            self.drain()
        if is_row_due:
            self._write_row(report)

    def drain(self) -> None:
        """Copy results of steps from the GPU into the state; raises TooManyBadStepsError if training has diverged."""
        reports, self._unread = self._unread, []
        if not reports:
            return
        started_at = time.perf_counter()
        cross_entropies = torch.stack([report.cross_entropy for report in reports]).tolist()
        counts = torch.stack([report.num_correct for report in reports]).tolist()
        finite = torch.stack([report.is_finite for report in reports]).tolist()
        waited = (time.perf_counter() - started_at) / len(reports)
        for report, cross_entropy, num_correct, is_finite in zip(reports, cross_entropies, counts, finite, strict=True):
            seconds = report.elapsed_seconds + waited
            if is_finite:
                step = UnloggedStep(cross_entropy, report.num_target_tokens, seconds, int(num_correct))
                self._state.add_step(step)
                continue
            self._state.add_bad_step(seconds)
            number = self._state.num_bad_steps_in_row
            # In fp16 a gradient overflows now and then; the scale of the loss is then halved.
            if number == (3 if self._config.precision == "fp16" else 1):
                say(f"step {report.step:>6,}  the loss or the gradient is not finite; such steps are skipped")
            if number >= self._config.max_bad_steps:
                raise TooManyBadStepsError(f"{number} steps in a row up to step {report.step:,}", report)

    def _write_row(self, report: StepReport) -> None:
        state = self._state
        loss = self.recent_loss
        seconds = sum(step.seconds for step in state.unlogged)
        tokens_per_second = sum(step.num_target_tokens for step in state.unlogged) / seconds
        counted = [step for step in state.unlogged if step.num_correct is not None]
        num_counted = sum(step.num_target_tokens for step in counted)
        num_correct = sum(step.num_correct or 0 for step in counted)
        self._bar.show(loss=f"{loss:.3f}", tokens=f"{tokens_per_second:,.0f}/s")
        metrics = {
            "train/loss": loss,
            "train/token_accuracy": num_correct / num_counted if num_counted else float("nan"),
            "train/learning_rate": report.learning_rate,
            "train/tokens_per_second": round(tokens_per_second, 1),
            "train/grad_norm": float(report.grad_norm),
            "optimizer/weight_norm": float(weight_norm(self._optimizer)),
            "speed/steps_per_second": round(len(state.unlogged) / seconds, 3),
            "speed/padding_share": round(report.padding_share, 4),
        }
        if (memory := memory_used(report.cross_entropy.device)) is not None:
            metrics["speed/memory_mb"] = round(memory / 1e6)
        if len(self._parts) > 1:
            seen = zip(self._parts, state.position.num_pairs, strict=False)
            metrics |= {f"train/num_pairs/{name}": number for name, number in seen}
        self._write_metrics(report.step, metrics)
        state.close_row(loss)
