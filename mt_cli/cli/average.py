"""The command `average`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import MODEL, NEWEST_RUN, OUTPUT, check_new_run, option, run_paths
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.runtime.console import say

_model = partial(option, MODEL)


def average(
    runs: Annotated[
        list[Path] | None, _model("DIR", "Run directory; several for their mean.", NEWEST_RUN, "--run")
    ] = None,
    last: Annotated[int | None, _model("N", "Average the last N validated checkpoints.", min=2)] = None,
    best: Annotated[int | None, _model("N", "Average the best N validated checkpoints.", min=2)] = None,
    output: Annotated[Path | None, option(OUTPUT, "DIR", "New run directory, for a mean of several runs.")] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Average checkpoints, or several runs.

    The mean of checkpoints becomes the best one if it is better on the validation set. The mean of runs, which must
    come from one parent, is a new run. With one run of adapters, --output merges them.

    Examples:
        mt average --run runs/my_run --last 5
        mt average --run runs/a --run runs/b --output runs/mean

    More: docs/runs.md
    """
    paths = run_paths(runs)
    if len(paths) == 1 and output is None:
        from mt_cli.run.averages import average_run

        return show(*average_run(paths[0], last, best))
    if output is None or last is not None or best is not None:
        raise InputError("for a mean of runs, give --output DIR, without --last and --best")
    check_new_run(output)
    from mt_cli.run.averages import average_runs

    say("\n".join(average_runs(paths, output)))
    return show(str(output))
