"""Results in a run directory, for pages and model cards: its report, metrics and samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, FiniteFloat

from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.checkpoint.state import Ancestor
from mt_cli.config.sections import Config
from mt_cli.corpus.rows import Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import SplitScores
from mt_cli.evaluation.learning import Learning
from mt_cli.runtime.console import say
from mt_cli.runtime.files import read_model, read_regular, reading, real_path

T = TypeVar("T")
Sample = tuple[str, str, str]
"""Source, reference and hypothesis."""
_MAX_FILE_BYTES = 2**30
_TOO_LARGE = 1e100


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
        return self.dropped | ({"held out for valid": self.num_held_out} if self.num_held_out else {})


class BestValidation(BaseModel):
    """Best score on the validation set, and the score of the weights that training began with."""

    metric: str = ""
    best: float | None = None
    parent: float | None = None
    is_below_parent: bool = False
    is_above_parent: bool | None = None
    """True if the best checkpoint is better than those weights; None if their score is unknown."""


class Report(SplitScores):
    """Content of `report.json`: how a run ended, with the scores of the first test set."""

    extra_tests: Mapping[str, SplitScores] = {}
    parents: Sequence[Ancestor] = ()
    validation: BestValidation = BestValidation()
    learning: Learning | None = None
    stopped_because: str
    best_step: int
    averaged_steps: list[int] | None = None
    num_steps: int
    num_epochs: int = 0
    num_target_tokens: int
    num_bad_steps: int = 0
    corpora: Sequence[DataRow] = ()
    elapsed_seconds: FiniteFloat = 0.0
    num_parameters: int
    precision: str = ""
    num_processes: int = 1
    hardware: Mapping[str, str | int | float | None] = {}
    versions: Mapping[str, str] = {}

    @property
    def tests(self) -> list[SplitScores]:
        return [self, *self.extra_tests.values()]


class Part(BaseModel):
    """Result of the translation of some lines of a text, beside the file of its pairs."""

    number: int
    step: int
    name: str
    languages: tuple[str, str]
    """Language of the translations, and language of the lines."""
    num_lines: int
    num_kept: int = 0
    dropped: Mapping[str, int]
    examples: Sequence[Pair] = ()
    round_trip_chrf: float | None = None
    """chrF of some translations that are translated back; None if it is not known."""
    is_sampled: bool = False
    """True if translations were drawn at random, and so are more varied, and worse, than those of a search."""
    made_from: str | None = None
    """Digest of the text and of the other model that translated it; None if the model in training did."""

    @property
    def kept_share(self) -> float:
        """Fraction of the lines, 0 to 1, whose pairs are kept."""
        return self.num_kept / max(1, self.num_lines)

    def describe(self) -> str:
        """The numbers in one line, for people."""
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        trip = "" if self.round_trip_chrf is None else f"; translated back, chrF {self.round_trip_chrf:.1f}"
        return (
            f"{self.num_lines:,} lines of {self.name} translated into {self.languages[0]}"
            + (" by sampling" * self.is_sampled)
            + f", {self.num_kept:,} kept"
            + (f" (dropped: {dropped})" if dropped else "")
            + trip
        )


def read_report(directory: RunDirectory) -> Report | None:
    """Report of a run; None if it is missing or damaged."""
    with suppress(InputError):
        return read_model(directory.report_path, Report)
    return None


def notes_on_training(report: Report) -> list[str]:
    """Sentences about learning, skipped steps, and a best checkpoint that is no better than the parent."""
    notes, validation = [], report.validation
    if report.learning:
        notes.append(f"{report.split}: {report.learning.describe()}.")
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
    samples: list[Sample]
    """Samples of the last validation."""
    report: Report | None
    """None if the run has not finished."""
    parts: Sequence[Part] = ()
    """Results of the translation of text of one language, in the order of the steps."""

    @property
    def is_imported(self) -> bool:
        return is_imported(self.config)

    @classmethod
    def read(cls, path: Path) -> RunSummary:
        """Read the usable files; raises RunError if `path` is not a run directory."""
        directory = RunDirectory(path)
        parts = [_usable(lambda path: read_model(path, Part), file) for file in directory.rounds_path.glob("*.json")]
        return cls(
            real_path(path).name,
            directory.config(),
            _usable(read_rows, directory.metrics_path) or [],
            _usable(read_samples, directory.samples_path) or [],
            _usable(lambda path: read_model(path, Report), directory.report_path),
            sorted(filter(None, parts), key=lambda part: (part.step, part.number, part.name)),
        )


def _usable(read: Callable[[Path], T], path: Path) -> T | None:
    """Content of a file; None if it is missing or unusable. Prints a message about an unusable file."""
    try:
        with reading(path):
            return read(path) if path.exists() else None
    except InputError as error:
        say(f"mt: {error}; this file is skipped")
        return None


def read_samples(path: Path) -> list[Sample]:
    """Last samples in a file; empty if the file is missing.

    Raises OSError if it cannot be read, is not a regular file, or is too large.
    """
    text = _content(path).decode("utf-8", errors="replace")
    values = [line.partition(" ")[2].strip() for line in text.rpartition("# step ")[2].split("\n")[1:] if line]
    return list(zip(values[::3], values[1::3], values[2::3], strict=False))


def read_rows(path: Path) -> list[dict[str, float]]:
    """Rows of a metrics file, without damaged lines and values that cannot be drawn; raises as `read_samples`."""
    rows = []
    for line in _content(path).splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            items = row.items() if isinstance(row, dict) else ()
            points = {tag: value for tag, value in items if type(value) in (int, float) and abs(value) < _TOO_LARGE}
            if isinstance(points.get("step"), int):
                rows.append(points)
    return rows


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
