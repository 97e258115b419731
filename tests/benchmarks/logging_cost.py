"""Share of a run's time that logging takes: rows, norms, samples and pictures.

    python tests/benchmarks/logging_cost.py --config configs/quickstart.yaml [--set training.max_epochs=2]

Trains the config in a temporary folder and times everything that only logging needs.
"""

import argparse
import tempfile
import time
from pathlib import Path

from mt_cli.config.loading import load_config
from mt_cli.features.inspection import training_pictures as pictures
from mt_cli.reporting import records
from mt_cli.run import finish, validation
from mt_cli.run import train as run
from mt_cli.run import training_log as log

SPENT = {}


def timed(owner, name):
    """Wrap a function to add up its time."""
    function = getattr(owner, name)

    def wrapped(*arguments, **options):
        started_at = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            SPENT[name] = SPENT.get(name, 0.0) + time.perf_counter() - started_at

    setattr(owner, name, wrapped)


def main():
    """Print seconds and shares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.set)
    for owner, name in (
        (records.Records, "write_metrics"),
        (records.Records, "write_samples"),
        (records.Records, "write_pictures"),
        (log, "weight_norm"),
        (log, "memory_used"),
        (pictures, "attention_pictures"),
        (validation.Validator, "_part_losses"),
        (finish, "write_hparams"),
    ):
        timed(owner, name)
    with tempfile.TemporaryDirectory() as folder:
        report = run.train(config, Path(folder))
    whole = report.elapsed_seconds
    for name, seconds in SPENT.items():
        print(f"| {name} | {seconds:.2f} s | {seconds / whole:.2%} |")
    print(f"| all, of {whole:.0f} s | {sum(SPENT.values()):.2f} s | {sum(SPENT.values()) / whole:.2%} |")


if __name__ == "__main__":
    main()
