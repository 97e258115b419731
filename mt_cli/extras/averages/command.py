"""The command `average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.options import (
    check_new_run,
    run_paths,
    utf8,
)
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.cpus import spin_less_if_busy


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(average)


def average(
    runs: options.RunsOption = None,
    last: Annotated[int | None, Option(min=2, help="Average this number of the last validated checkpoints.")] = None,
    best: Annotated[int | None, Option(min=2, help="Average this number of the best validated checkpoints.")] = None,
    output: Annotated[
        Path | None, Option(metavar="DIR", callback=utf8, help="New run directory for the mean of several runs.")
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
        from mt_cli.extras.averages.averages import average_run

        return show(*average_run(paths[0], last, best))
    if output is None or last is not None or best is not None:
        raise InputError("for a mean of runs, give --output DIR, without --last and --best")
    check_new_run(output)
    from mt_cli.extras.averages.averages import average_runs

    say("\n".join(average_runs(paths, output)))
    return show(str(output))
