"""Log of a training: rows of means over steps, detection of divergence, and the files that grow."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from mt_cli.checkpoint.state import RunState, UnloggedStep
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import DivergenceError
from mt_cli.evaluation.results import Sample, read_rows
from mt_cli.model.kernels import is_cpu
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.devices import memory_used
from mt_cli.runtime.files import writing
from mt_cli.training.steps import StepReport

_MAX_BAD_STEPS = 10
"""Number of steps in a row that are not finite after which training ends."""


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
        parts: Sequence[str] = (),
    ) -> None:
        self._config, self._state, self._write_metrics, self._bar = config, state, write_metrics, bar
        self._parts = parts
        self._unread: list[StepReport] = []

    @property
    def recent_loss(self) -> float:
        """Mean loss of the steps since the last row; without such steps, mean loss of the last row."""
        num_tokens = sum(step.num_target_tokens for step in self._state.unlogged)
        if num_tokens:
            return sum(step.cross_entropy for step in self._state.unlogged) / num_tokens
        return float("nan") if self._state.recent_loss is None else self._state.recent_loss

    def add(self, report: StepReport) -> None:
        """Add a step; raises DivergenceError if training has diverged."""
        self._unread.append(report)
        self._bar.advance()
        is_row_due = report.step % self._config.log_every_steps == 0
        if is_row_due or is_cpu(report.cross_entropy):
            self.drain()
        if is_row_due:
            self._write_row(report)

    def drain(self) -> None:
        """Copy results of steps from the GPU into the state; raises DivergenceError if training has diverged."""
        state, reports, self._unread = self._state, self._unread, []
        if not reports:
            return
        started_at = time.perf_counter()
        results = ((report.cross_entropy, report.num_correct, report.is_finite) for report in reports)
        rows = torch.stack([torch.stack([value.float() for value in row]) for row in results]).tolist()
        waited = (time.perf_counter() - started_at) / len(reports)
        for report, (cross_entropy, num_correct, is_finite) in zip(reports, rows, strict=True):
            seconds = report.elapsed_seconds + waited
            if is_finite:
                state.unlogged.append(UnloggedStep(cross_entropy, report.num_target_tokens, seconds, int(num_correct)))
                state.num_bad_steps_in_row = 0
                continue
            state.unlogged.append(UnloggedStep(0.0, 0, seconds, 0))
            state.num_bad_steps += 1
            state.num_bad_steps_in_row += 1
            number = state.num_bad_steps_in_row
            # In fp16 a gradient overflows now and then; the scale of the loss is then halved.
            if number == (3 if self._config.precision == "fp16" else 1):
                say(f"step {report.step:>6,}  the loss or the gradient is not finite; such steps are skipped")
            if number >= _MAX_BAD_STEPS:
                raise DivergenceError(
                    f"training diverged: in {number} steps in a row up to step {report.step:,}, the loss or the "
                    "gradient was not finite; lower training.learning_rate or raise training.warmup_steps, and start "
                    "over with --fresh"
                )

    def _write_row(self, report: StepReport) -> None:
        state = self._state
        loss = self.recent_loss
        seconds = sum(step.seconds for step in state.unlogged)
        num_tokens = sum(step.num_target_tokens for step in state.unlogged)
        tokens_per_second = num_tokens / seconds
        num_correct = sum(step.num_correct for step in state.unlogged)
        self._bar.show(loss=f"{loss:.3f}", tokens=f"{tokens_per_second:,.0f}/s")
        metrics = {
            "train/loss": loss,
            "train/token_accuracy": num_correct / num_tokens if num_tokens else float("nan"),
            "train/learning_rate": report.learning_rate,
            "train/tokens_per_second": round(tokens_per_second, 1),
            "train/grad_norm": float(report.grad_norm),
            "train/steps_per_second": round(len(state.unlogged) / seconds, 3),
        }
        if (memory := memory_used(report.cross_entropy.device)) is not None:
            metrics["train/memory_mb"] = round(memory / 1e6)
        if len(self._parts) > 1:
            seen = zip(self._parts, state.position.num_pairs, strict=False)
            metrics |= {f"train/num_pairs/{name}": number for name, number in seen}
        self._write_metrics(report.step, metrics)
        state.recent_loss = loss
        state.unlogged.clear()


class Records:
    """Writer of the metrics and samples of a run. Methods raise MtError if they cannot write.

    Training starts from `step`. Files are truncated to `sizes`, which `flush` returned when the state of this step was
    saved.
    """

    def __init__(self, directory: Path, step: int, sizes: Mapping[str, int]) -> None:
        self._directory, self._metrics, self._texts = directory, directory / "metrics.jsonl", directory / "samples.txt"
        with writing(directory):
            for path in (self._metrics, self._texts):
                _truncate(path, sizes.get(path.name, 0))
            # TensorBoard can only forget whole steps, and must forget a validation of this step that was not saved.
            # A round is in the row of the step after it.
            rows = [row for row in read_rows(self._metrics) if row["step"] >= step] if sizes else []
            first = step + any("valid/loss" in row for row in rows)
            self._board = SummaryWriter(directory, purge_step=first)
            for row in rows:
                if row["step"] >= first:
                    self._add_points(row)

    def write_metrics(self, step: int, elapsed_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add a row to `metrics.jsonl` and a point to each curve; values that are not finite are omitted."""
        finite = {tag: value for tag, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "elapsed_seconds": round(elapsed_seconds, 3), **finite}
        with writing(self._metrics), self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        with writing(self._directory):
            self._add_points(row)

    def _add_points(self, row: Mapping[str, Any]) -> None:
        for tag, value in row.items():
            if "/" in tag:
                self._board.add_scalar(tag, value, row["step"])

    def write_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Add the sample sentences to `samples.txt` and TensorBoard."""
        if not samples:
            return
        lines = (f"source     {sample[0]}\nreference  {sample[1]}\nhypothesis {sample[2]}\n\n" for sample in samples)
        text = "".join(lines)
        with writing(self._texts), self._texts.open("a", encoding="utf-8") as file:
            file.write(f"# step {step}\n{text}")
        with writing(self._directory):
            self._board.add_text("samples", indent(text, "    "), step)  # A block of code in Markdown.

    def flush(self) -> dict[str, int]:
        """Write all buffers to disk; return the sizes of the files by name."""
        with writing(self._directory):
            self._board.flush()
        sizes = {}
        for path in (self._metrics, self._texts):
            with writing(path), path.open("ab") as file:
                os.fsync(file.fileno())
                sizes[path.name] = file.tell()
        return sizes

    def close(self) -> None:
        """Write the last points and end the thread that writes them."""
        with writing(self._directory):
            self._board.close()


def _truncate(path: Path, size: int) -> None:
    """Truncate a text file to a size and to the end of its last whole line."""
    if path.is_file():
        os.truncate(path, path.read_bytes()[:size].rfind(b"\n") + 1)
