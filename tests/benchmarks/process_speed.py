"""Training with two processes of one thread each, and with one process of two threads; bytes that they exchange.

Runs `mt train` on a config with files, several rounds in turn, and reports the median of the target tokens per second
of the last rows of `metrics.jsonl`, the bytes per step that all-reduce gets, for the size of the model, and how long
an exchange of so many takes alone: the most that overlapping it with the backward pass could save.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from figures import add_option, record

WAYS = {
    "one process, two threads": ["--set", "training.micro_batches_per_step=2", "--set", "training.num_threads=2"],
    "two processes, one thread each": ["--devices", "2", "--set", "training.num_threads=1"],
}


def tokens_per_second(config: Path, folder: Path, name: str, arguments: list[str], steps: int) -> tuple[float, int]:
    """The median speed of a run after its first row, and the number of its parameters."""
    every = max(1, steps // 10)
    options = {"name": name, "training.max_steps": steps, "training.log_every_steps": every}
    options |= {"training.max_minutes": "null", "training.validate_every_steps": 10 * steps}
    settings = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    command = [sys.executable, "-m", "mt_cli", "train", "--config", str(config.resolve()), *settings, *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "2"})
    rows = map(json.loads, (folder / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    speeds = [row["train/tokens_per_second"] for row in rows if "train/tokens_per_second" in row]
    report = json.loads((folder / "runs" / name / "report.json").read_text(encoding="utf-8"))
    return statistics.median(speeds[1:]), report["num_parameters"]


def exchange(num_parameters: int) -> None:
    """Print the median time of adding up so many values in two processes; run by `torchrun`."""
    from mt_cli.machine.launcher import launched_group

    with launched_group() as group:
        torch.set_num_threads(1)
        parts = list(torch.ones(num_parameters).split(65_536))  # Of the size of a matrix.
        seconds = []
        for _ in range(30):
            started_at = time.perf_counter()
            group.all_reduce(parts)
            seconds.append(time.perf_counter() - started_at)
        median = 1000 * statistics.median(seconds)
        group.on_main(lambda: print(f"an exchange takes {median:.1f} ms"))


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, help="a config whose corpora are files")
    parser.add_argument("--work", type=Path, help="a folder for the runs")
    parser.add_argument("--exchange", type=int, help="only time the exchange of this number of gradients")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    add_option(parser)
    options = parser.parse_args()
    if options.exchange:
        exchange(options.exchange)
        return
    options.work.mkdir(parents=True, exist_ok=True)
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        for index, (way, arguments) in enumerate(WAYS.items()):
            speed, num_parameters = tokens_per_second(
                options.config, options.work, f"way-{index}", arguments, options.steps
            )
            speeds[way].append(speed)
            print(f"round {number + 1}, {way}: {speed:,.0f} target tokens a second", flush=True)
    for way, found in speeds.items():
        print(f"{way}: median {statistics.median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})")
    if options.record:
        one, two = (statistics.median(speeds[way]) for way in WAYS)
        record("two_processes_loss", round(100 * (1 - two / one)))
    print(f"{num_parameters:,} parameters, {4 * num_parameters:,} bytes of gradients a step and process", flush=True)
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", __file__, "--exchange", str(num_parameters)]
    subprocess.run([sys.executable, *command], check=True)


if __name__ == "__main__":
    main()
