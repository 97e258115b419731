"""Speed and memory of training and translating on a GPU, by preset and precision, as a table of docs/benchmarks.md.

    python tests/benchmarks/gpu_speed.py [--write] [--presets small base big] [--precisions fp32 bf16] [--rounds 5]

Pairs are generated: random tokens, 8 to 40 on each side. A training step is a whole update of the preset's model with
its optimizer, dropout and R-Drop, with batches of `--batch-tokens`; translating has random weights and translations of
exactly 32 tokens. Numbers are medians of rounds, after one round that is not counted. `--write` puts the table between
the marks of that page. `--device cpu --presets tiny --rounds 1` checks the script on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import torch

from mt_cli.batching.batches import MixedPairs
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.presets import PRESETS
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.machine.devices import describe_hardware, pick_device, pick_precision, seed_everything
from mt_cli.model.transformer import Transformer
from mt_cli.training.averaging import in_format
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, StepReport, optimization_steps

PAGE = Path(__file__).parent.parent.parent / "docs/benchmarks.md"
BEGIN, END = "<!-- gpu:begin -->", "<!-- gpu:end -->"
SHORTEST, LONGEST, TRANSLATED = 8, 40, 32
BEAMS = (1, 4)


def some_pairs(number: int, vocab_size: int) -> EncodedPairs:
    """Pairs of random tokens."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (2, number), generator=generator).tolist()
    sides = [[torch.randint(4, vocab_size, (n,), generator=generator).tolist() for n in side] for side in lengths]
    return EncodedPairs.from_ids(*sides)


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def median_speed(work: Callable[[], int], device: torch.device, rounds: int) -> float:
    """The median of the tokens per second of some rounds, after one that warms up; `work` returns its tokens."""
    speeds = []
    for _ in range(rounds + 1):
        wait_for(device)
        started_at = time.perf_counter()
        num_tokens = work()
        wait_for(device)
        speeds.append(num_tokens / (time.perf_counter() - started_at))
    return statistics.median(speeds[1:])


def training_speed(model: Transformer, preset: str, dtype: torch.dtype, options: argparse.Namespace) -> float:
    """Target tokens per second of training a model with the options of its preset."""
    config = TrainingConfig(**{**PRESETS[preset]["training"], "batch_tokens": options.batch_tokens})
    device, objective = next(model.parameters()).device, Objective(model, config)
    optimizer, gradients = build_optimizer(model, config), GradientAccumulator(objective, dtype)
    pairs = some_pairs(max(200, 20 * options.batch_tokens // LONGEST), PRESETS[preset]["tokenizer"]["vocab_size"])
    mixed = MixedPairs(pairs, [1.0], options.batch_tokens, config.seed)
    steps: Iterator[StepReport] = optimization_steps(gradients, optimizer, mixed, config, lambda step: 1e-5, Position())
    return median_speed(
        lambda: sum(report.num_target_tokens for report in islice(steps, options.steps)), device, options.rounds
    )


def translating_speed(model: Transformer, dtype: torch.dtype, beam_size: int, options: argparse.Namespace) -> float:
    """Target tokens per second of a search with a model, in batches of `options.sentences`."""
    engine, device = TransformerEngine(in_format(model, dtype)), next(model.parameters()).device
    generator = torch.Generator().manual_seed(2)
    shape = (options.sentences, TRANSLATED)
    sources = torch.randint(4, model.projection.out_features, shape, generator=generator).tolist()
    decoding = DecodingConfig(
        beam_size=beam_size, min_length=TRANSLATED, max_length=TRANSLATED, max_length_ratio=100, batch_tokens=2**30
    )

    def translate() -> int:
        return sum(len(best.ids) for best, *_ in engine.search(sources, decoding))

    return median_speed(translate, device, options.rounds)


def row_of(preset: str, precision: str, device: torch.device, options: argparse.Namespace) -> str:
    """A row of the table."""
    seed_everything(1)
    vocab_size, dtype = PRESETS[preset]["tokenizer"]["vocab_size"], pick_precision(precision, device)
    model = Transformer(ModelConfig(**PRESETS[preset]["model"]), vocab_size, vocab_size).to(device)
    is_cuda, peak = device.type == "cuda", "unknown"
    if is_cuda:
        gc.collect()  # The model of the row before may wait for it in a cycle of references.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    trained = training_speed(model, preset, dtype, options)
    if is_cuda:
        peak = f"{torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB"
    translated = [translating_speed(model, dtype, beam_size, options) for beam_size in BEAMS]
    size = f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.0f} M"
    cells = (f"`{preset}`", size, precision, f"{trained:,.0f}", peak, *(f"{each:,.0f}" for each in translated))
    return f"| {' | '.join(cells)} |"


def table_of(options: argparse.Namespace) -> str:
    """The table, with a sentence about how it was measured."""
    device = pick_device(options.device)
    name, heads = (
        describe_hardware(device)["device"],
        ["preset", "parameters", "precision", "training: target tokens/s"],
    )
    heads += ["peak memory", *("greedy: tokens/s" if beams == 1 else f"beam {beams}: tokens/s" for beams in BEAMS)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for preset in options.presets:
        for precision in options.precisions:
            lines.append(row_of(preset, precision, device, options))
            print(lines[-1], file=sys.stderr, flush=True)
    sentence = (
        f"Measured on {name} with PyTorch {torch.__version__} by `tests/benchmarks/gpu_speed.py`: micro-batches of "
        f"{options.batch_tokens:,} tokens, {options.sentences} sentences translated at once, medians of "
        f"{options.rounds} rounds, generated pairs."
    )
    return "\n".join([sentence, "", *lines])


def with_section(text: str, section: str) -> str:
    """A page with another text between the marks, each of which must be there once."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE}: the marks {BEGIN} and {END} are not there")
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> None:
    """Print the table; write it into the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--presets", nargs="+", choices=list(PRESETS), default=["small", "base", "big"])
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16", "fp16"], default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="updates of a round")
    parser.add_argument("--batch-tokens", type=int, default=8192, help="of a micro-batch")
    parser.add_argument("--sentences", type=int, default=128, help="translated at once")
    parser.add_argument("--write", action="store_true", help="replace the table of docs/benchmarks.md")
    options = parser.parse_args()
    table = table_of(options)
    print(table)
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
