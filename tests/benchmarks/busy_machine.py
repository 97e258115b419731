"""Speed of training or translating while other programs use the same CPUs, by number of threads and spinning time.

The threads of a parallel operation wait for each other at its end. libgomp, which PyTorch's CPU builds use, lets them
spin (GOMP_SPINCOUNT) before they sleep, and a thread that spins takes time from one that computes.

    python tests/benchmarks/busy_machine.py --hogs 0 1 2
    python tests/benchmarks/busy_machine.py --hogs 0 1 2 --translate runs/quickstart

The second form measures whole commands, `mt translate --input FILE` and the same sentences from Python, in seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "2 threads": (2, {}),
    "2 threads, spin 1000": (2, {"GOMP_SPINCOUNT": "1000"}),
    "2 threads, spin 100": (2, {"GOMP_SPINCOUNT": "100"}),
}


def steps_per_second(num_threads: int, seconds: float) -> float:
    """Train on random pairs for some seconds, with the model of `configs/quickstart.yaml` and larger batches."""
    import numpy as np
    import torch

    from mt_cli.batching.batches import MixedPairs
    from mt_cli.batching.encoded import EncodedPairs
    from mt_cli.config.sections import ModelConfig
    from mt_cli.config.training import TrainingConfig
    from mt_cli.machine.devices import keep_memory, pick_precision
    from mt_cli.model.transformer import Transformer
    from mt_cli.training.gradients import GradientAccumulator
    from mt_cli.training.objective import Objective
    from mt_cli.training.optimizer import build_optimizer
    from mt_cli.training.steps import Position, optimization_steps

    keep_memory()
    torch.set_num_threads(num_threads)
    generator = np.random.default_rng(1)
    sides = [[generator.integers(4, 8_000, generator.integers(5, 25)).tolist() for _ in range(2_000)] for _ in (0, 1)]
    config = TrainingConfig(batch_tokens=2_560)
    model = Transformer(ModelConfig(d_model=256, d_ff=1_024, num_encoder_layers=3, num_decoder_layers=3), 8_000, 8_000)
    pairs = MixedPairs(EncodedPairs.from_ids(*sides), [1.0], config.tokens_per_batch, 1)
    dtype = pick_precision("auto", torch.device("cpu"))
    optimizer = build_optimizer(model, config)
    gradients = GradientAccumulator(Objective(model, config), dtype)
    steps = optimization_steps(gradients, optimizer, pairs, config, lambda step: 1e-4, Position())
    for _ in range(3):
        next(steps)
    number, started_at = 0, time.perf_counter()
    while time.perf_counter() - started_at < seconds:
        next(steps)
        number += 1
    return number / (time.perf_counter() - started_at)


@contextmanager
def programs(number: int) -> Iterator[None]:
    """Context manager beside which a number of other programs compute all the time."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def train_for(options: argparse.Namespace, num_threads: int, variables: dict[str, str]) -> float:
    """Steps a second of a new process."""
    command = [sys.executable, __file__, "--only", str(num_threads), "--seconds", str(options.seconds)]
    result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
    return float(result.stdout)


PYTHON_USE = """
import sys
from mt_cli.translation.translator import Translator
translator = Translator.load(sys.argv[1])
translator.translate(open(sys.argv[2], encoding="utf-8").read().splitlines())
"""
TRANSLATION_SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "all threads, as before": {"GOMP_SPINCOUNT": "300000", "OMP_NUM_THREADS": str(os.cpu_count())},
    "all threads, spin 1000": {"GOMP_SPINCOUNT": "1000", "OMP_NUM_THREADS": str(os.cpu_count())},
    "1 thread": {"OMP_NUM_THREADS": "1"},
}


def seconds_to_translate(run: Path, text: Path, is_command: bool, variables: dict[str, str]) -> float:
    """The time from the start of a command, or of a program that uses the Python API, to its end."""
    use = ["-m", "mt_cli", "translate", "--run", run, "--input", text] if is_command else ["-c", PYTHON_USE, run, text]
    started_at = time.perf_counter()
    subprocess.run([sys.executable, *map(str, use)], env=os.environ | variables, capture_output=True, check=True)
    return time.perf_counter() - started_at


def print_table(found: dict[tuple[str, int], list[float]], unit: str) -> None:
    """Print the median of each setting beside each number of programs."""
    for name in dict.fromkeys(name for name, _ in found):
        medians = {hogs: round(statistics.median(each), 2) for (own, hogs), each in found.items() if own == name}
        print(json.dumps({"setting": name, f"{unit}_beside_so_many_programs": medians}))


def main() -> None:
    """Print a table with a row per setting and a column per number of other programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hogs", type=int, nargs="+", default=[0, 1, 2], help="numbers of other programs that compute all the time"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--translate", type=Path, metavar="RUN", help="translate with this run instead of training")
    parser.add_argument("--sentences", type=int, default=100, help="their number, with --translate")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        print(steps_per_second(options.only, options.seconds))
    elif options.translate is not None:
        measure_translation(options)
    else:
        found: dict[tuple[str, int], list[float]] = {}
        for _ in range(options.rounds):
            for num_hogs in options.hogs:
                with programs(num_hogs):
                    for name, setting in SETTINGS.items():
                        found.setdefault((name, num_hogs), []).append(train_for(options, *setting))
        print_table(found, "steps_per_second")


def measure_translation(options: argparse.Namespace) -> None:
    """Translate the first test sentences of the generated corpus by the command and from Python."""
    from mt_cli.config.sources import BuiltinSource
    from mt_cli.corpus.sources import read_rows

    rows = read_rows(BuiltinSource(builtin="phrasebook-en-it", split="test"), ("en", "it"))
    sentences = [source for _, source, _ in islice(rows, options.sentences)]
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("\n".join(sentences), encoding="utf-8")
        for _ in range(options.rounds):
            for num_hogs in options.hogs:
                with programs(num_hogs):
                    for name, variables in TRANSLATION_SETTINGS.items():
                        for is_command in (True, False):
                            key = f"{'mt translate' if is_command else 'Python'}, {name}", num_hogs
                            seconds = seconds_to_translate(options.translate, text, is_command, variables)
                            found.setdefault(key, []).append(seconds)
    print_table(found, "seconds")


if __name__ == "__main__":
    main()
