"""Speed of training or translating while other programs use the same CPUs, by number of threads and spinning time.

The threads of a parallel operation wait for each other at its end. libgomp, which PyTorch's CPU builds use, lets them
spin (GOMP_SPINCOUNT) before they sleep, and a spinning thread takes time from one that computes.

    python tests/benchmarks/busy_machine.py --hogs 0 1 2
    python tests/benchmarks/busy_machine.py --hogs 0 1 2 --translate runs/quickstart

`--hogs` are numbers of programs that compute all the time. The first form prints steps a second, the second seconds of
whole commands, `mt translate --input FILE` with `--sentences` sentences.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import common
import torch

from mt_cli.config.sections import ModelConfig
from mt_cli.config.sources import BuiltinSource
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.sources import read_rows
from mt_cli.machine.devices import keep_memory, pick_precision
from mt_cli.model.transformer import Transformer

ALL = {"OMP_NUM_THREADS": str(os.cpu_count())}
SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "1 thread": {"OMP_NUM_THREADS": "1"},
    "all threads, long spin": ALL | {"GOMP_SPINCOUNT": "300000"},
    "all threads, spin 1000": ALL | {"GOMP_SPINCOUNT": "1000"},
    "all threads, spin 100": ALL | {"GOMP_SPINCOUNT": "100"},
}
"""Environment variables."""


def steps_per_second(seconds: float) -> float:
    """Speed of training a model of 3+3 layers for some seconds on random pairs."""
    keep_memory()
    model = Transformer(ModelConfig(d_model=256, d_ff=1_024, num_encoder_layers=3, num_decoder_layers=3), 8_000, 8_000)
    config, dtype = TrainingConfig(batch_tokens=2_560), pick_precision("auto", torch.device("cpu"))
    steps = common.training_steps(model, common.random_pairs(2_000, 5, 24, 8_000), config, dtype)
    list(islice(steps, 3))
    number, started_at = 0, time.perf_counter()
    while time.perf_counter() - started_at < seconds:
        next(steps)
        number += 1
    return number / (time.perf_counter() - started_at)


def seconds_to_translate(run: Path, text: Path, **variables: str) -> float:
    """Seconds of a whole command."""
    with patch.dict(os.environ, variables):
        return common.seconds_of(lambda: common.run_mt(text.parent, "translate", "--run", run, "--input", text))


@contextmanager
def hogs(number: int) -> Iterator[None]:
    """Context manager beside which a number of other programs compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> None:
    """Print a row for each setting and a column for each number of other programs."""
    options = common.read_options(
        __doc__, hogs=[0, 1, 2], rounds=3, seconds=8.0, translate=None, sentences=100, work=common.WORK
    )
    measure = partial(common.in_new_process, steps_per_second, options.seconds)
    if options.translate:
        text = options.work / "sentences"
        text.parent.mkdir(parents=True, exist_ok=True)
        rows = read_rows(BuiltinSource(builtin="phrasebook-en-it", split="test"), ("en", "it"))
        text.write_text("".join(f"{source}\n" for _, source, _ in islice(rows, options.sentences)), encoding="utf-8")
        measure = partial(seconds_to_translate, Path(options.translate).absolute(), text)
    measurements = {name: partial(measure, **variables) for name, variables in SETTINGS.items()}
    results: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for number in options.hogs:
            with hogs(number):
                for name, values in common.measure_in_turn(measurements, 1).items():
                    results.setdefault((name, number), []).extend(values)
    unit = "seconds" if options.translate else "steps a second"
    common.print_titles(unit, *(f"beside {number}" for number in options.hogs))
    for name in SETTINGS:
        common.print_row(name, *(f"{statistics.median(results[name, number]):.2f}" for number in options.hogs))


if __name__ == "__main__":
    main()
