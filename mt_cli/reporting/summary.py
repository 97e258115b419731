"""Contents of a run directory for reports and model cards. It is untrusted: damaged files are skipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.config.sections import Config
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.storage import read_model, reading, real_path
from mt_cli.reporting.records import read_rows, read_samples
from mt_cli.reporting.report import Report

T = TypeVar("T")


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
    """Content of a file, or None; a message names a file that exists but cannot be used."""
    try:
        with reading(path):
            return read(path) if path.exists() else None
    except InputError as error:
        say(f"mt: {error}; this file is skipped")
        return None
