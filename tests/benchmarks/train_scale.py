"""Training speed by model size and by sentence length.

Random ids, batches of 4,096 tokens (`--batch-tokens`), a vocabulary of 10,000 and one shared table. Prints a line of
JSON per point with the median of several steps after a warm-up. Uses a GPU if one is available. `--model` measures one
size alone, with the peak memory of the process, with or without `--recompute-layers`.

    python tests/benchmarks/train_scale.py
    python tests/benchmarks/train_scale.py --model base --recompute-layers
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from figures import add_option, record

from mt_cli.batching.batches import Batch, collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.machine.devices import keep_memory, pick_device, pick_precision
from mt_cli.model.transformer import Transformer
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer

VOCAB_SIZE = 10_000
SHAPES = {"tiny": (128, 2), "small": (256, 3), "medium": (512, 3), "base": (512, 6)}
"""Width, and number of layers of the encoder and of the decoder."""


def batch_of(length: int, batch_tokens: int) -> Batch:
    """Pairs of about this length on both sides."""
    generator = np.random.default_rng(length)
    num_pairs = max(1, batch_tokens // (length + 1))

    def side() -> list[list[int]]:
        lengths = np.maximum(1, length - generator.integers(0, max(1, length // 8), num_pairs))
        return [generator.integers(4, VOCAB_SIZE, each).tolist() for each in lengths]

    return collate(EncodedPairs.from_ids(side(), side()), range(num_pairs))


def measure(
    d_model: int, num_layers: int, length: int, batch_tokens: int, steps: int, recompute_layers: bool = False
) -> dict[str, float]:
    training = TrainingConfig(recompute_layers=recompute_layers)
    torch.manual_seed(1)
    device = pick_device("auto")
    config = ModelConfig(
        d_model=d_model,
        d_ff=4 * d_model,
        num_heads=d_model // 64,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        tie_embeddings="all",
    )
    objective = Objective(Transformer(config, VOCAB_SIZE, VOCAB_SIZE).to(device), training).train()
    optimizer = build_optimizer(objective, training)
    gradients = GradientAccumulator(objective, pick_precision("auto", device))
    batch = batch_of(length, batch_tokens).to(device)
    rates = []
    for _ in range(steps + 3):
        started_at = time.perf_counter()
        gradients.accumulate([batch], batch.num_target_tokens)
        grad_norm = torch.nn.utils.clip_grad_norm_(gradients.parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        float(grad_norm)
        rates.append(batch.num_target_tokens / (time.perf_counter() - started_at))
    rate = statistics.median(rates[3:])
    parts = (objective.model.encoder, objective.model.decoder)
    encoder, decoder = (sum(weight.numel() for weight in part.parameters()) for part in parts)
    flop = 6 * (encoder * batch.num_source_tokens / batch.num_target_tokens + decoder + d_model * VOCAB_SIZE)
    return {
        "num_parameters": sum(weight.numel() for weight in objective.parameters()),
        "target_tokens_per_second": round(rate),
        "useful_gflops": round(rate * flop / 1e9),
        **({"peak_gpu_mb": torch.cuda.max_memory_allocated() // 10**6} if device.type == "cuda" else {}),
    }


def record_recomputing(steps: int) -> None:
    """Record how much longer a step of the base model takes with `--recompute-layers`; each runs in its own process."""
    command = [sys.executable, __file__, "--model", "base", "--steps", str(steps)]
    kept, recomputed = (
        json.loads(subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout)
        for more in ([], ["--recompute-layers"])
    )
    record("recompute_step_time", kept["target_tokens_per_second"] / recomputed["target_tokens_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--model", choices=SHAPES)
    parser.add_argument("--recompute-layers", action="store_true")
    add_option(parser)
    options = parser.parse_args()
    if options.record:
        record_recomputing(options.steps)
        return
    keep_memory()
    if options.model:
        shape = SHAPES[options.model]
        point = measure(*shape, 15, options.batch_tokens, options.steps, options.recompute_layers)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
        print(
            json.dumps({"model": options.model, "recompute_layers": options.recompute_layers, "peak_mb": peak} | point)
        )
        return
    for name, (d_model, num_layers) in SHAPES.items():
        point = measure(d_model, num_layers, 15, options.batch_tokens, options.steps)
        print(json.dumps({"model": name, "d_model": d_model, "layers": num_layers, "length": 15} | point), flush=True)
    for length in (8, 32, 64, 128, 256):
        point = measure(256, 3, length, options.batch_tokens, options.steps)
        print(json.dumps({"model": "small", "d_model": 256, "layers": 3, "length": length} | point), flush=True)


if __name__ == "__main__":
    main()
