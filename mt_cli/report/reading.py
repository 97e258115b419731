"""What a run directory says of its run, as far as a page can use it. The files may come from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, FiniteFloat, model_validator

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.console import say
from mt_cli.errors import reason
from mt_cli.experiment.scoring import LABELS
from mt_cli.storage import read_regular
from mt_cli.tracking import read_rows, read_samples

T = TypeVar("T")

_MAX_REPORT_BYTES = 2**24


class Score(BaseModel):
    """One metric."""

    score: FiniteFloat
    signature: str
    confidence_95: FiniteFloat | None = None


class Scored(BaseModel):
    """Scores on one test set."""

    split: str
    exact_match: FiniteFloat = 0.0
    scores: dict[str, Score]
    """By the keys of `LABELS`."""

    @model_validator(mode="before")
    @classmethod
    def _scores_are_together(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        return tree | {"scores": {name: tree[name] for name in LABELS if name in tree}}


class Part(BaseModel):
    """What became of one source of a corpus."""

    corpus: str = ""
    name: str = ""
    num_read: int | None = None
    num_kept: int | None = None
    num_held_out: int = 0
    dropped: dict[str, int] = {}


class Report(Scored):
    """What of `report.json` is shown."""

    extra_tests: dict[str, Scored] = {}
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
    """What a run directory says of its run."""

    path: Path
    config: Config
    rows: list[dict[str, float]]
    """Of `metrics.jsonl`."""
    samples: list[tuple[str, str, str]]
    """Source, reference and hypothesis at the last validation."""
    report: Report | None
    """None if the run has not ended."""

    @classmethod
    def read(cls, path: Path) -> RunFiles:
        """Those of a directory, without files that cannot be used, which are named; raises RunError if it is no run."""
        directory = RunDirectory(path)
        return cls(
            path,
            directory.config(),
            _usable(read_rows, directory.metrics_path) or [],
            _usable(read_samples, directory.samples_path) or [],
            _usable(_read_report, directory.report_path),
        )

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name


def _read_report(path: Path) -> Report:
    return Report.model_validate(json.loads(read_regular(path, _MAX_REPORT_BYTES)))


def _usable(read: Callable[[Path], T], path: Path) -> T | None:
    """What `read` finds in a file; None if there is none, or, which is said, none that can be used."""
    try:
        return read(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        say(f"mt: {path}: {reason(error)[:200]}; the page does without this file")
        return None
