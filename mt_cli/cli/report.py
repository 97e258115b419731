"""The command `report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mt_cli.cli import options
from mt_cli.cli.options import RUNS, file_option, option, run_path
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError, MtError
from mt_cli.runtime.console import say

if TYPE_CHECKING:
    from mt_cli.evaluation.evaluate import Baseline
    from mt_cli.evaluation.results import Sample
    from mt_cli.inspection.trace import Map


def report(
    run: options.RunOption = None,
    against: Annotated[list[Path] | None, option(options.MODEL, "DIR", "Run to compare with; can be repeated.")] = None,
    output: Annotated[
        Path | None, file_option(options.OUTPUT, "HTML file.", "report.html in the run directory")
    ] = None,
) -> None:
    """Write a report of runs as an HTML page.

    Examples:
        mt report --run runs/quickstart
        mt report --run runs/new --against runs/old --output comparison.html

    More: docs/runs.md
    """
    path = run_path(run)
    from mt_cli.evaluation.results import RunSummary, notes_on_training
    from mt_cli.exchange.destinations import describe_destinations
    from mt_cli.inspection.page import page_of
    from mt_cli.runtime.files import real_path, write_bytes, write_output

    page = output or path / "report.html"
    check_output(page)
    is_named = page.suffix.lower() in (".html", ".htm")
    if not is_named and page.exists() and real_path(page).is_relative_to(real_path(path)):
        raise InputError(f"{page}: a file of the run; give another name")
    paths = [path, *(against or [])]
    runs = [RunSummary.read(directory) for directory in paths]
    baselines = [_baseline(path, other) for other in paths[1:]]
    attention = None if against else _attention(path, runs[0].samples)
    text = page_of(runs, [describe_destinations(run.config) for run in runs], baselines, attention)
    write = write_output if output else write_bytes  # A link in a run, which may be a stranger's, is not followed.
    write(page, f"{text}\n".encode("utf-8", "backslashreplace"))
    show(str(page))
    for note in notes_on_training(runs[0].report) if runs[0].report and not against else ():
        say(f"note: {note}")


def _baseline(run: Path, other: Path) -> Baseline | None:
    """Comparison of two runs; None, with a note, if their stored translations cannot be compared."""
    from mt_cli.corpus.cache import Cache
    from mt_cli.evaluation.compare import compare_finished

    try:
        return compare_finished(run, other, Cache(RUNS / ".cache"))
    except MtError as error:
        say(f"note: no p-values: {error}")
        return None


def _attention(run: Path, samples: Sequence[Sample]) -> Map | None:
    """Attention of the first sample; None if the weights cannot be loaded."""
    from mt_cli.inspection.trace import sample_attention
    from mt_cli.translation.translator import Translator

    try:
        translator = Translator.load(run, "cpu", "fp32") if samples else None
    except MtError as error:
        say(f"note: no picture of attention: {error}")
        return None
    return sample_attention(translator, samples) if translator else None
