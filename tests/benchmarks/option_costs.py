"""Time of an optimizer step with each option of `docs/recipes.md` alone, relative to a plain step, as a table.

    python tests/benchmarks/option_costs.py [--threads 1] [--rounds 7] [--steps 10]

The model is that of `configs/multi30k_en_de.yaml` without its options, on the captions; all options take turns. Sampled
segmentation is prepared before the steps that are timed; it costs the tokens that it adds to a step.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import common
import torch
from figures import record

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.devices import keep_memory, pick_precision
from mt_cli.model.trainable_weights import add_adapters
from mt_cli.run.context import new_model
from mt_cli.training.averaging import MovingAverage

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    "dropout: 0": {"model": {"dropout": 0.0}},
    "attention_dropout: 0.1": {"model": {"attention_dropout": 0.1}},
    "feed_forward_dropout: 0.1": {"model": {"feed_forward_dropout": 0.1}},
    "word_dropout: 0.1": {"model": {"word_dropout": 0.1}},
    "positions: rotary": {"model": {"positions": "rotary"}},
    "activation: swiglu, d_ff: 168": {"model": {"activation": "swiglu", "d_ff": 168}},
    "6+2 layers": {"model": {"num_encoder_layers": 6, "num_decoder_layers": 2}},
    "optimizer: muon": {"training": {"optimizer": "muon"}},
    "weight_decay: 0.1": {"training": {"weight_decay": 0.1}},
    "ema_decay: 0.999": {"training": {"ema_decay": 0.999}},
    "r_drop: 4": {"training": {"r_drop": 4}},
    "bpe_dropout: 0.1": {"tokenizer": {"bpe_dropout": 0.1}},
    "adapter_rank: 8": {"init": {"adapter_rank": 8, "run": "parent"}},
}
RECORDED = {"r_drop: 4": "r_drop_step_time", "adapter_rank: 8": "adapter_step_time"}
"""Figures of the pages, by option."""
PLAIN = {
    "model": {"d_model": 128, "d_ff": 256, "num_heads": 4, "num_encoder_layers": 4, "num_decoder_layers": 4}
    | {"dropout": 0.3},
    "training": {"max_steps": 1000, "batch_tokens": 4096},
}


def step_timer(changes: dict[str, dict[str, Any]], num_steps: int, folder: Path) -> Callable[[], tuple[float, int]]:
    """Function that does some steps of a model and returns the mean seconds and target tokens of a step."""
    sections = {name: PLAIN.get(name, {}) | changes.get(name, {}) for name in PLAIN | changes}
    config = parse_config(common.config_tree("costs", **sections), "option_costs")
    data = prepare(config, Cache(folder / "cache"))
    model = new_model(config, data.tokenizers)
    if config.init.adapter_rank is not None:
        add_adapters(model, config.init)
    dtype = pick_precision("auto", torch.device("cpu"))
    reports = common.training_steps(model, training_pairs(data, config), config.training, dtype)
    average = None if config.training.ema_decay is None else MovingAverage(model, config.training.ema_decay)

    def measure() -> tuple[float, int]:
        started_at, num_tokens = time.perf_counter(), 0
        for report in islice(reports, num_steps):
            num_tokens += report.num_target_tokens
            if average is not None:
                average.update(report.step)
        return (time.perf_counter() - started_at) / num_steps, num_tokens // num_steps

    return measure


def main() -> None:
    """Print a row for each option."""
    options = common.read_options(__doc__, record=True, threads=torch.get_num_threads(), rounds=7, steps=10)
    torch.set_num_threads(options.threads)
    keep_memory()
    with tempfile.TemporaryDirectory() as name:
        timers = {title: step_timer(changes, options.steps, Path(name)) for title, changes in OPTIONS.items()}
        # The first turn allocates memory.
        results = common.measure_in_turn(timers, options.rounds, num_ignored=1)
    common.print_titles(
        "option", "time of a step", "ratio to plain: median, lowest, highest", "target tokens of a step"
    )
    plain = [seconds for seconds, _ in results["plain"]]
    for title, measured in results.items():
        seconds, num_tokens = zip(*measured, strict=True)
        ratios = [option / base for option, base in zip(seconds, plain, strict=True)]
        median, spread = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
        milliseconds = 1000 * statistics.median(seconds)
        common.print_row(
            title, f"{milliseconds:.0f} ms", f"{median:.2f} ({spread})", f"{statistics.mean(num_tokens):,.0f}"
        )
        if options.record and title in RECORDED:
            record(RECORDED[title], median)


if __name__ == "__main__":
    main()
