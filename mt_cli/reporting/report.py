"""Report of a finished run, and the contents of a run directory for pages and model cards."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, FiniteFloat

from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import SplitScores, format_scores
from mt_cli.evaluation.scores import metric_id_of, scorer_of
from mt_cli.machine.console import clock, say
from mt_cli.machine.storage import read_model, reading, real_path
from mt_cli.reporting.records import read_rows, read_samples

T = TypeVar("T")


class DataRow(BaseModel, extra="allow"):
    """Statistics of one source of a corpus."""

    corpus: str = ""
    name: str = ""
    num_read: int | None = None
    num_kept: int | None = None
    num_held_out: int = 0
    dropped: dict[str, int] = {}

    @property
    def excluded(self) -> dict[str, int]:
        """Number of excluded pairs, by reason."""
        return self.dropped | ({"held out for valid": self.num_held_out} if self.num_held_out else {})


class ParentRecord(BaseModel, extra="allow"):
    """Run whose weights a run began with."""

    run: str
    languages: tuple[str, str]


class BestValidation(BaseModel):
    """Best score on the validation set, and the score of the weights that training began with."""

    metric: str = ""
    best: float | None = None
    parent: float | None = None
    is_below_parent: bool = False
    is_above_parent: bool | None = None
    """Whether the best checkpoint is better than those weights; None if their score is unknown."""


class Report(SplitScores):
    """Content of `report.json`: how a run ended, with the scores of the first test set."""

    extra_tests: Mapping[str, SplitScores] = {}
    parents: Sequence[ParentRecord] = ()
    validation: BestValidation = BestValidation()
    stopped_because: str
    best_step: int
    averaged_steps: list[int] | None = None
    num_steps: int
    num_epochs: int = 0
    num_target_tokens: int
    num_bad_steps: int = 0
    num_restarts: int = 0
    corpora: Sequence[DataRow] = ()
    elapsed_seconds: FiniteFloat = 0.0
    num_parameters: int
    precision: str = ""
    num_processes: int = 1
    hardware: Mapping[str, str | int | float | None] = {}
    versions: Mapping[str, str] = {}


def read_report(directory: RunDirectory) -> Report | None:
    """Report of a run; None if it is missing or damaged."""
    with suppress(InputError):
        return read_model(directory.report_path, Report)
    return None


def finished_report(directory: RunDirectory, config: Config, state: RunState) -> Report | None:
    """Report of a run that is finished according to a config; None if it still has to be trained or scored."""
    report = read_report(directory) if state.reason_to_stop(config.training) else None
    if report is None:  # A damaged report is written again.
        return None
    tokenizer = scorer_of(config, report.split).bleu_tokenizer
    best = directory.best_state()
    is_current = (
        report.num_steps == state.position.step
        and "bleu" in report.scores
        and f"|tok:{tokenizer}" in report.scores["bleu"].signature
        and best is not None
        and best.best_metric == metric_id_of(config, scorer_of(config, "valid"))
    )
    return report if is_current else None


def format_summary(report: Report, path: Path, needs_tag: bool = False) -> str:
    """Scores of a run and the next commands, for people; `needs_tag` if the model has no default tag."""
    run = shlex.quote(str(path))
    on_valid = (
        "note: valid chose the checkpoint, so its scores are somewhat too high; name a test set (corpus.test) for an "
        "honest score"
    )
    to = "--to CODE " if report.directions else "--to TAG " if needs_tag else ""
    return "\n".join(
        [
            f"\nStopped by {report.stopped_because} after {report.num_steps:,} steps, "
            f"{report.num_target_tokens:,} target tokens and {clock(report.elapsed_seconds)}; "
            f"best step {report.best_step:,}.",
            *notes_on_training(report),
            *map(format_scores, (report, *report.extra_tests.values())),
            *([on_valid] if report.split == "valid" else []),
            f"\nThe run is in {path}: scores in report.json, translations in hypotheses/, weights in checkpoints/.",
            f'Translate:  mt translate --run {run} {to}"..."',
            f"Look:       mt report --run {run}",
            f"Curves:     tensorboard --logdir {shlex.quote(str(path.parent))}",
            f"Evaluate:   mt evaluate --run {run} {to}--source FILE --reference FILE",
        ]
    )


def notes_on_training(report: Report) -> list[str]:
    """Sentences about skipped steps, and about a best checkpoint that is no better than the parent."""
    notes, validation = [], report.validation
    if report.num_bad_steps:
        notes.append(f"{report.num_bad_steps:,} steps were skipped because their loss or gradient was not finite.")
    if validation.is_below_parent or validation.is_above_parent is False:
        verdict = "worse" if validation.is_below_parent else "no better"
        parent = f"instead of {validation.parent:.4g}" if validation.is_below_parent else "as before"
        scores = f"{validation.metric} {validation.best:.4g} {parent}"
        notes.append(
            f"The best checkpoint is {verdict} on valid than the run that training began with ({scores}): use that "
            "run, or try a smaller training.learning_rate, init.adapter_rank, or more pairs like those of valid."
        )
    return notes


def notes_on_comparison(reports: Sequence[Report | None]) -> list[str]:
    """Warnings for people who compare the scores of runs; None stands for a run without a report."""
    num_steps = [report.num_steps for report in reports if report is not None]
    lengths = " and ".join(f"{steps:,}" for steps in num_steps)
    unequal = [f"the runs had {lengths} steps, so a difference may come from the length of the training alone"]
    seeds = (
        "one run of each config says nothing about other seeds, so compare several values of training.seed; a p-value "
        "(mt evaluate --against) is about the choice of test sentences alone"
    )
    return [*(unequal if len(set(num_steps)) > 1 else []), seeds] if reports else []


@dataclass(frozen=True)
class RunSummary:
    """Config of a run, and the contents of its other files if they can be used."""

    name: str
    config: Config
    rows: list[dict[str, float]]
    """Rows of `metrics.jsonl`."""
    samples: list[tuple[str, str, str]]
    """Source, reference and hypothesis at the last validation."""
    report: Report | None
    """None if the run has not finished."""

    @property
    def is_imported(self) -> bool:
        """Whether another program made the model."""
        return is_imported(self.config)

    @classmethod
    def read(cls, path: Path) -> RunSummary:
        """Read the usable files; raises RunError if `path` is not a run directory."""
        directory = RunDirectory(path)
        return cls(
            real_path(path).name,
            directory.config(),
            _usable(read_rows, directory.metrics_path) or [],
            _usable(read_samples, directory.samples_path) or [],
            _usable(lambda path: read_model(path, Report), directory.report_path),
        )


def _usable(read: Callable[[Path], T], path: Path) -> T | None:
    """Content of a file; None if it is missing or unusable. Prints a message about an unusable file."""
    try:
        with reading(path):
            return read(path) if path.exists() else None
    except InputError as error:
        say(f"mt: {error}; this file is skipped")
        return None
