"""The command `train`."""

from __future__ import annotations

from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import RUNS, flag, load_config, together
from mt_cli.runtime.signals import interrupt_training


def train(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    fresh: Annotated[bool, flag("Resuming", "--fresh", "Rename an existing run of this name and begin anew.")] = False,
    devices: options.DevicesOption = 1,
    progress: options.ProgressOption = "auto",
) -> None:
    """Train the model of a config, or resume it.

    The run is in runs/NAME, with `name` of the config. If that run exists and is not finished, the same command resumes
    it.

    Examples:
        mt train --config configs/quickstart.yaml
        mt train --config my.yaml --set training.max_epochs=5 --fresh

    More: docs/runs.md
    """
    interrupt_training()
    with together(devices, check=lambda: load_config(config, overrides)) as group:
        loaded = load_config(config, overrides)
        from mt_cli.run import train as run

        run.train(loaded, RUNS, fresh, group)
