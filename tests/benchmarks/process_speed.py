"""Training with two processes of one thread each, compared with one process of two threads, in turn.

    python tests/benchmarks/process_speed.py --config captions.yaml --work FOLDER --steps 40

Runs `mt train` on a config whose corpora are files, and prints target tokens per second.
"""

import json
import shutil
import statistics
from functools import partial
from pathlib import Path

import common
from figures import record

WAYS = {
    "one process, two threads": ["--set", "training.micro_batches_per_step=2", "--set", "training.num_threads=2"],
    "two processes, one thread each": ["--devices", "2", "--set", "training.num_threads=1"],
}


def tokens_per_second(config: Path, folder: Path, arguments: list[str], steps: int) -> float:
    """Median of the target tokens per second in the rows of a run, without the first row."""
    run = folder / "runs" / "processes"
    shutil.rmtree(run, ignore_errors=True)
    training = {"max_steps": steps, "max_minutes": None, "log_every_steps": max(1, steps // 10)}
    training["validate_every_steps"] = 10 * steps
    options = {"name": run.name} | {f"training.{key}": value for key, value in training.items()}
    common.run_mt(folder, "train", "--config", config, *common.settings(options), *arguments)
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return statistics.median([row["train/tokens_per_second"] for row in rows if "train/tokens_per_second" in row][1:])


def main() -> None:
    """Print a row for each way."""
    options = common.read_options(__doc__, record=True, config=Path, work=common.WORK, rounds=3, steps=60)
    options.work.mkdir(parents=True, exist_ok=True)
    measured = partial(tokens_per_second, options.config.resolve(), options.work, steps=options.steps)
    speeds = common.measure_in_turn(
        {way: partial(measured, arguments) for way, arguments in WAYS.items()}, options.rounds
    )
    common.print_titles("way", "target tokens per second: median", "lowest", "highest")
    for way, rates in speeds.items():
        common.print_row(way, *(f"{rate:,.0f}" for rate in (statistics.median(rates), min(rates), max(rates))))
    if options.record:
        one, two = (statistics.median(rates) for rates in speeds.values())
        record("two_processes_loss", round(100 * (1 - two / one)))


if __name__ == "__main__":
    main()
