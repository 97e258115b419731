"""Training speed while other programs use the same CPUs, by number of threads and by spinning time.

The threads of a parallel operation wait for each other at its end. libgomp, which PyTorch's CPU builds use, lets them
spin (GOMP_SPINCOUNT) before they sleep, and a thread that spins takes time from one that computes.

    python tests/benchmarks/busy_machine.py --hogs 0 1 2
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "2 threads": (2, {}),
    "2 threads, spin 1000": (2, {"GOMP_SPINCOUNT": "1000"}),
    "2 threads, spin 100": (2, {"GOMP_SPINCOUNT": "100"}),
}


def steps_per_second(num_threads: int, seconds: float) -> float:
    """Train on random pairs for some seconds, with the model of `configs/quickstart.yaml` and larger batches."""
    import time

    import numpy as np
    import torch

    from mt_cli.batching.batches import MixedPairs
    from mt_cli.batching.encoded import EncodedPairs
    from mt_cli.config.sections import ModelConfig, TrainingConfig
    from mt_cli.hardware import keep_memory, pick_precision
    from mt_cli.model.transformer import Transformer
    from mt_cli.objective import Objective
    from mt_cli.optimizer import build_optimizer
    from mt_cli.training import Gradients, Position, optimization_steps

    keep_memory()
    torch.set_num_threads(num_threads)
    generator = np.random.default_rng(1)
    sides = [[generator.integers(4, 8_000, generator.integers(5, 25)).tolist() for _ in range(2_000)] for _ in (0, 1)]
    config = TrainingConfig(batch_tokens=2_560)
    model = Transformer(ModelConfig(d_model=256, d_ff=1_024, num_encoder_layers=3, num_decoder_layers=3), 8_000, 8_000)
    pairs = MixedPairs(EncodedPairs.from_ids(*sides), [1.0], config.tokens_per_batch, 1)
    dtype = pick_precision("auto", torch.device("cpu"))
    optimizer = build_optimizer(model, config)
    gradients = Gradients(Objective(model, config), dtype)
    steps = optimization_steps(gradients, optimizer, pairs, config, lambda step: 1e-4, Position())
    for _ in range(3):
        next(steps)
    number, started_at = 0, time.perf_counter()
    while time.perf_counter() - started_at < seconds:
        next(steps)
        number += 1
    return number / (time.perf_counter() - started_at)


def main() -> None:
    """Print a table with a row per setting and a column per number of other programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hogs", type=int, nargs="+", default=[0, 1, 2], help="numbers of other programs that compute all the time"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        print(steps_per_second(options.only, options.seconds))
        return
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for num_hogs in options.hogs:
            hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_hogs)]
            for name, (num_threads, variables) in SETTINGS.items():
                command = [sys.executable, __file__, "--only", str(num_threads), "--seconds", str(options.seconds)]
                result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)
                found.setdefault((name, num_hogs), []).append(float(result.stdout))
            for hog in hogs:
                hog.kill()
                hog.wait()
    for name in SETTINGS:
        rates = {num_hogs: round(statistics.median(found[name, num_hogs]), 2) for num_hogs in options.hogs}
        print(json.dumps({"setting": name, "steps_per_second_beside_so_many_programs": rates}))


if __name__ == "__main__":
    main()
