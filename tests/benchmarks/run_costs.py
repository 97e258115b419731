"""Share of a run's time that saving and logging take: states and best checkpoints; rows, norms, samples and pictures.

    python tests/benchmarks/run_costs.py --config configs/quickstart.yaml [--set training.max_epochs=2]

Trains the config in a temporary folder and times every call that only saving or logging needs.
"""

import tempfile
import time
from itertools import chain
from pathlib import Path

import common

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import load_config
from mt_cli.features.inspection import trace as training_pictures
from mt_cli.reporting.records import Records
from mt_cli.run import finish, training_log
from mt_cli.run.train import train
from mt_cli.run.validation import Validator

TIMED = {
    "saving": [(RunDirectory, "save_state"), (RunDirectory, "save_best")],
    "logging": [
        (Records, "write_metrics"),
        (Records, "write_samples"),
        (Records, "write_pictures"),
        (training_log, "weight_norm"),
        (training_log, "memory_used"),
        (training_pictures, "attention_pictures"),
        (Validator, "_part_losses"),
        (finish, "write_hparams"),
    ],
}
"""Functions by what they are for, with the module or class that they are looked up in."""


def add_up_time(owner: object, name: str, seconds: list[float]) -> None:
    """Replace a function by one that appends the seconds of each call."""
    function = getattr(owner, name)

    def timed(*arguments: object, **options: object) -> object:
        started_at = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            seconds.append(time.perf_counter() - started_at)

    setattr(owner, name, timed)


def main() -> None:
    """Print calls, seconds and shares."""
    options = common.read_options(__doc__, config=Path, set=[])
    calls: dict[str, dict[str, list[float]]] = {part: {name: [] for _, name in rows} for part, rows in TIMED.items()}
    for part, rows in TIMED.items():
        for owner, name in rows:
            add_up_time(owner, name, calls[part][name])
    with tempfile.TemporaryDirectory() as folder:
        whole = train(load_config(options.config, options.set), Path(folder)).elapsed_seconds
    common.print_titles(f"of {whole:.0f} seconds", "calls", "seconds", "share")
    for part, by_name in calls.items():
        for name, seconds in (by_name | {f"{part}, all": list(chain(*by_name.values()))}).items():
            common.print_row(name, len(seconds), f"{sum(seconds):.2f}", f"{sum(seconds) / whole:.2%}")


if __name__ == "__main__":
    main()
