"""The command `train`."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import RUNS, load_config, together
from mt_cli.machine.cpus import spin_less_if_busy


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        train,
        "Train",
        "mt train --config configs/quickstart.yaml",
        "mt train --config my.yaml --set training.max_epochs=5 --fresh",
        page="docs/runs.md",
    )


def train(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    fresh: Annotated[
        bool,
        Option("--fresh", help="Rename an existing run of this name and begin anew.", rich_help_panel="Resuming"),
    ] = False,
    devices: options.DevicesOption = 1,
    progress: options.ProgressOption = "auto",
    others: options.NoArguments = None,
) -> None:
    """Train the model of a config in runs/NAME, or resume it.

    NAME is `name` in the config. If that run exists and is not finished, the same command resumes it.
    """
    if_lost = "what was saved last is kept, the same command resumes there"
    with together(devices, if_lost, check=lambda: load_config(config, overrides)) as group:
        loaded = load_config(config, overrides)
        spin_less_if_busy()
        from mt_cli.run import train as run

        run.train(loaded, RUNS, fresh, group)
