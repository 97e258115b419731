"""Speed and memory of training and translating by model and precision, on a GPU or CPU, as a table.

    python tests/benchmarks/model_speed.py
    python tests/benchmarks/model_speed.py --device cpu --models 128x2 256x3 512x3 512x6 --lengths 14 15
    python tests/benchmarks/model_speed.py --device cpu --models 512x6 --lengths 14 15 --recompute-layers

A model is a preset, or a width and number of layers, with 10,000 tokens. Pairs are random tokens; `--lengths`
are the smallest and the largest number on each side. A training step is a whole update with the optimizer and options
of the preset and micro-batches of `--batch-tokens`; translating has random weights and translations of exactly 32
tokens. Speeds are medians of rounds, after one that is not counted; each row is measured in a process of its own.
`--recompute-layers` measures each model without and with that option. gpu_speed.py compares GPU training with peers.
"""

from argparse import Namespace
from itertools import islice

import common
import torch
from figures import record

from mt_cli.config.presets import PRESETS
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.machine.devices import describe_hardware, keep_memory, pick_device, pick_precision, seed_everything
from mt_cli.model.transformer import Transformer
from mt_cli.training.averaging import in_format

TRANSLATED, BEAMS = 32, (1, 4)


def build_model(name: str) -> tuple[Transformer, dict[str, object]]:
    """Model of a preset, or of a width and number of layers such as 256x3, and its options of training."""
    if name in PRESETS:
        vocab_size, options = PRESETS[name]["tokenizer"]["vocab_size"], dict(PRESETS[name]["training"])
        return Transformer(ModelConfig(**PRESETS[name]["model"]), vocab_size, vocab_size), options
    width, layers = map(int, name.split("x"))
    sizes = {"d_model": width, "d_ff": 4 * width, "num_heads": width // 64, "tie_embeddings": "all"}
    stacks = {"num_encoder_layers": layers, "num_decoder_layers": layers}
    return Transformer(ModelConfig(**sizes, **stacks), 10_000, 10_000), {}


def translating_speed(model: Transformer, dtype: torch.dtype, beam_size: int, options: Namespace) -> float:
    """Target tokens per second of translating `--sentences` sentences at once."""
    engine, device = TransformerEngine(in_format(model, dtype)), next(model.parameters()).device
    pairs = common.random_pairs(options.sentences, TRANSLATED, TRANSLATED, model.projection.out_features)
    sources = [Sentence(source.tolist()) for source, _ in pairs]
    limits = {"min_length": TRANSLATED, "max_length": TRANSLATED, "max_length_ratio": 100.0, "batch_tokens": 2**30}
    decoding = DecodingConfig(beam_size=beam_size, **limits)
    return common.median_speed(
        lambda: sum(len(best.ids) for best, *_ in engine.search(sources, decoding)),
        device,
        options.rounds,
    )


def measure(name: str, precision: str, is_recomputed: bool, options: Namespace) -> tuple[float, list[str]]:
    """Training speed, and cells of a row of the table."""
    device = pick_device(options.device)
    seed_everything(1)
    keep_memory()
    dtype = pick_precision(precision, device)
    model, changes = build_model(name)
    model.to(device)
    changes |= {"batch_tokens": options.batch_tokens} | ({"recompute_layers": True} if is_recomputed else {})
    config = TrainingConfig(**changes)
    num_pairs = max(200, 20 * options.batch_tokens // options.lengths[1])
    pairs = common.random_pairs(num_pairs, *options.lengths, model.projection.out_features)
    steps = common.training_steps(model, pairs, config, dtype)
    trained = common.median_speed(
        lambda: sum(report.num_target_tokens for report in islice(steps, options.steps)), device, options.rounds
    )
    is_cuda = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if is_cuda else common.memory_of_process("self").get("VmHWM", 0)
    translated = [translating_speed(model, dtype, beam_size, options) for beam_size in BEAMS]
    size = f"{sum(weight.numel() for weight in model.parameters()) / 1e6:.1f} M"
    title = f"`{name}`" + (", `recompute_layers`" if is_recomputed else "")
    speeds = [f"{speed:,.0f}" for speed in translated]
    return trained, [title, size, precision, f"{trained:,.0f}", f"{peak / 2**30:.1f} GiB", *speeds]


def make_table(options: Namespace) -> str:
    """Table of all models and precisions, with a sentence about how it was measured."""
    titles = ["model", "parameters", "precision", "training: target tokens/s", "peak memory"]
    titles += ["greedy: tokens/s" if beams == 1 else f"beam {beams}: tokens/s" for beams in BEAMS]
    rows = [titles, ["---"] * len(titles)]
    for name in options.models:
        for precision in options.precisions:
            speeds = []
            for is_recomputed in [False, True] if options.recompute_layers else [False]:
                speed, row = common.in_new_process(measure, name, precision, is_recomputed, options)
                speeds.append(speed)
                rows.append(row)
            if options.record and options.recompute_layers:
                record("recompute_step_time", speeds[0] / speeds[1])
    sentence = (
        f"Measured on {describe_hardware(pick_device(options.device))['device']} with PyTorch {torch.__version__} by "
        f"`tests/benchmarks/model_speed.py`: micro-batches of {options.batch_tokens:,} tokens, {options.sentences} "
        f"sentences translated at once, medians of {options.rounds} rounds, random tokens."
    )
    return "\n".join([sentence, "", *(f"| {' | '.join(row)} |" for row in rows)])


def main() -> None:
    """Print the table."""
    options = common.read_options(
        __doc__,
        record=True,
        device="cuda",
        models=["small", "base", "big"],
        precisions=["fp32", "bf16"],
        rounds=5,
        steps=20,
        lengths=[8, 40],
        batch_tokens=8192,
        sentences=128,
        recompute_layers=False,
    )
    print(make_table(options))


if __name__ == "__main__":
    main()
