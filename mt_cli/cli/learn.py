"""The command `learn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from mt_cli.cli import options
from mt_cli.cli.options import CONFIG, file_option, load_config, run_path
from mt_cli.cli.streams import show
from mt_cli.runtime.signals import interrupt_training


def learn(
    corrections: Annotated[
        list[Path], Argument(metavar="FILE...", help="Files of mt serve --corrections and mt data corrections.")
    ],
    run: options.RunOption = None,
    config: Annotated[
        Path | None, file_option(CONFIG, "Config with the text to keep in mind.", "that of the run", "--config")
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Learn from corrections: train a new run, RUN-learned, from another one.

    The new run also sees text of the other run, so that little is forgotten. If it is worse on the validation set,
    beyond the confidence interval, half or a quarter of the change is kept; if that is worse, too, the new run is not
    used, and the exit status is 1. The same command with other corrections learns all of them from the first run, and
    replaces the new run.

    Examples:
        mt learn --run runs/my_run corrections.jsonl
        mt learn --run runs/imported corrections.jsonl --config my.yaml

    More: docs/localisation.md
    """
    text = load_config(config, None) if config else None
    path = run_path(run)
    interrupt_training()
    from mt_cli.run.learn import learn as learn_from

    child = learn_from(path, corrections, text)
    show(str(child.relative_to(Path.cwd()) if child.is_relative_to(Path.cwd()) else child))
