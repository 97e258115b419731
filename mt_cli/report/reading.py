"""The files of a run directory that a page shows. They are untrusted: a damaged one is named and left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, FiniteFloat, model_validator

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.console import say
from mt_cli.errors import reason
from mt_cli.evaluation.texts import METRICS
from mt_cli.storage import real_path
from mt_cli.tracking import read_rows, read_samples

T = TypeVar("T")


class Score(BaseModel):
    """One metric."""

    score: FiniteFloat
    signature: str
    confidence_95: FiniteFloat | None = None


class SplitScores(BaseModel):
    """Scores on one test set."""

    split: str
    exact_match: FiniteFloat = 0.0
    scores: dict[str, Score]
    """By the keys of `METRICS`, under which `report.json` has them."""

    @model_validator(mode="before")
    @classmethod
    def _collect_scores(cls, tree: Any) -> Any:
        return tree | {"scores": {key: tree[key] for key in METRICS if key in tree}} if isinstance(tree, dict) else tree


class Part(BaseModel):
    """The statistics of one source of a corpus."""

    corpus: str = ""
    name: str = ""
    num_read: int | None = None
    num_kept: int | None = None
    num_held_out: int = 0
    dropped: dict[str, int] = {}

    @property
    def left_out(self) -> dict[str, int]:
        """The number of pairs by the reason for which they are not in this corpus."""
        return self.dropped | ({"held out for valid": self.num_held_out} if self.num_held_out else {})


class Parent(BaseModel):
    """A run that a run began with."""

    run: str
    languages: tuple[str, str]


class Report(SplitScores):
    """The fields of `report.json` that are shown."""

    extra_tests: dict[str, SplitScores] = {}
    parents: list[Parent] = []
    stopped_because: str
    best_step: int
    num_steps: int
    num_target_tokens: int
    num_parameters: int
    elapsed_seconds: FiniteFloat = 0.0
    corpora: list[Part] = []
    hardware: dict[str, str | int | float | None] = {}
    versions: dict[str, str] = {}


@dataclass(frozen=True)
class RunFiles:
    """The content of a run directory."""

    name: str
    config: Config
    rows: list[dict[str, float]]
    """The rows of `metrics.jsonl`."""
    samples: list[tuple[str, str, str]]
    """Source, reference and hypothesis at the last validation."""
    report: Report | None
    """None if the run has not finished."""

    @classmethod
    def read(cls, path: Path) -> RunFiles:
        """Read what is usable; raises RunError if `path` is not a run directory."""
        directory = RunDirectory(path)
        return cls(
            real_path(path).name,
            directory.config(),
            _usable(read_rows, directory.metrics_path) or [],
            _usable(read_samples, directory.samples_path) or [],
            _usable(lambda path: Report.model_validate(directory.report()), directory.report_path),
        )


def _usable(read: Callable[[Path], T], path: Path) -> T | None:
    """The content of a file, or None; the user is told of a file that exists but cannot be used."""
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        say(f"mt: {path}: {reason(error)}; the page leaves this file out")
        return None
