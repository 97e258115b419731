"""The command `average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import MODEL, NEWEST_RUN, OUTPUT, check_new_run, run_paths, utf8
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.cpus import spin_less_if_busy


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        average,
        "Train",
        "mt average --run runs/my_run --last 5",
        "mt average --run runs/a --run runs/b --output runs/mean",
        page="docs/recipes.md",
    )


def average(
    runs: Annotated[
        list[Path] | None,
        Option(
            "--run",
            metavar="DIR",
            callback=utf8,
            help="Run directory; several for their mean.",
            show_default=NEWEST_RUN,
            rich_help_panel=MODEL,
        ),
    ] = None,
    last: Annotated[
        int | None,
        Option(min=2, metavar="N", help="Average the last N validated checkpoints.", rich_help_panel=MODEL),
    ] = None,
    best: Annotated[
        int | None,
        Option(min=2, metavar="N", help="Average the best N validated checkpoints.", rich_help_panel=MODEL),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            metavar="DIR", callback=utf8, help="New run directory, for a mean of several runs.", rich_help_panel=OUTPUT
        ),
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Average checkpoints of a run, or several runs.

    The mean of checkpoints becomes the best one if it is better on the validation set. The one before it stays as
    --checkpoint before_average. The mean of runs, which must come from one parent, is a new run. So is a run with
    adapters alone, which are merged.
    """
    paths = run_paths(runs)
    if len(paths) == 1 and output is None:
        spin_less_if_busy()
        from mt_cli.run.finish import average_run

        return show(*average_run(paths[0], last, best))
    if output is None or last is not None or best is not None:
        raise InputError("for a mean of runs, give --output DIR, without --last and --best")
    check_new_run(output)
    from mt_cli.features.averages.averages import average_runs

    say("\n".join(average_runs(paths, output)))
    return show(str(output))
