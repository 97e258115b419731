"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import file_option, option, run_path
from mt_cli.cli.streams import Output, show
from mt_cli.errors import InputError, MtError


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
    from mt_cli.evaluation.results import RunSummary
    from mt_cli.exchange.destinations import describe_destinations
    from mt_cli.inspection.page import page_of
    from mt_cli.runtime.files import real_path, write_text

    is_page = output is None or output.suffix.lower() in (".html", ".htm")
    if output is not None and not is_page and output.exists() and real_path(output).is_relative_to(real_path(path)):
        raise InputError(f"{output}: a file of the run; give another name")
    page = Output(output) if output else None
    runs = [RunSummary.read(directory) for directory in [path, *(against or [])]]
    text = page_of(runs, [describe_destinations(run.config) for run in runs])
    if page is None:
        try:
            write_text(path / "report.html", text + "\n")
        except MtError as error:
            raise MtError(f"{error}; give another file with --output") from None
    else:
        with page:
            page.write(text)
    show(str(output or path / "report.html"))
