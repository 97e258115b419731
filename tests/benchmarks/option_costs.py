"""Time of an optimizer step with each option of `docs/recipes.md` alone, relative to a plain step, as a table.

    python tests/benchmarks/option_costs.py [--threads 1] [--rounds 7] [--steps 10]

The model is that of `configs/multi30k_en_de.yaml` without its options, on the captions; all options take turns. Sampled
segmentation is prepared before the steps that are timed; its cost in a step are the tokens that it adds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from figures import add_option, record
from numbered_pairs import caption_files

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.devices import keep_memory, pick_precision
from mt_cli.model.trainable import add_adapters
from mt_cli.run.context import new_model
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, StepReport, optimization_steps

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


def config_of(sections: dict[str, dict[str, Any]], threads: int) -> dict[str, Any]:
    """The config of a model with these options."""
    plain: dict[str, Any] = {
        "name": "costs",
        "corpus": {"source": "en", "target": "de", "train": caption_files("train"), "valid": caption_files("val")},
        "tokenizer": {"algorithm": "bpe", "vocab_size": 10_000, "shared": True},
        "model": {
            **{"d_model": 128, "d_ff": 256, "num_heads": 4, "num_encoder_layers": 4, "num_decoder_layers": 4},
            **{"tie_embeddings": "all", "dropout": 0.3},
        },
        "training": {"max_steps": 1000, "batch_tokens": 4096, "num_threads": threads},
    }
    return {name: {**plain.get(name, {}), **sections.get(name, {})} for name in ("tokenizer", "model", "training")} | {
        **{name: plain[name] for name in ("name", "corpus")},
        "init": sections.get("init", {}),
    }


class Trainer:
    """Steps of a model with some options."""

    def __init__(self, sections: dict[str, dict[str, Any]], threads: int, folder: Path) -> None:
        config = parse_config(config_of(sections, threads), "option_costs")
        data = prepare(config, Cache(folder / "cache"))
        model = new_model(config, data.tokenizers)
        if config.init.adapter_rank is not None:
            add_adapters(model, config.init)
        training = config.training
        gradients = GradientAccumulator(Objective(model, training), pick_precision("auto", torch.device("cpu")))
        optimizer, pairs = build_optimizer(model, training), training_pairs(data, config)
        self._average = None if training.ema_decay is None else MovingAverage(model, training.ema_decay)
        self._reports: Iterator[StepReport] = optimization_steps(
            gradients, optimizer, pairs, training, lambda step: 1e-4, Position()
        )
        self.seconds, self.tokens = list[float](), list[int]()

    def run(self, steps: int) -> None:
        """Do some steps and note the mean time and the target tokens of one."""
        started_at, tokens = time.perf_counter(), 0
        for _ in range(steps):
            report = next(self._reports)
            tokens += report.num_target_tokens
            if self._average is not None:
                self._average.update(report.step)
        self.seconds.append((time.perf_counter() - started_at) / steps)
        self.tokens.append(tokens // steps)


def main() -> None:
    """Print a row for each option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="in a turn")
    add_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    keep_memory()
    with tempfile.TemporaryDirectory() as name:
        trainers = {title: Trainer(sections, arguments.threads, Path(name)) for title, sections in OPTIONS.items()}
        for _ in range(arguments.rounds + 1):
            for trainer in trainers.values():
                trainer.run(arguments.steps)
    print("| option | time of a step | ratio to plain: median, lowest, highest | target tokens of a step |")
    print("|---|---|---|---|")
    plain = trainers["plain"].seconds[1:]  # Without the first turn, which allocates memory.
    for title, trainer in trainers.items():
        ratios = [own / base for own, base in zip(trainer.seconds[1:], plain, strict=True)]
        median, spread = statistics.median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"
        milliseconds = 1000 * statistics.median(trainer.seconds[1:])
        tokens = statistics.mean(trainer.tokens[1:])
        print(f"| {title} | {milliseconds:.0f} ms | {median:.2f} ({spread}) | {tokens:,.0f} |")
        if arguments.record and title in RECORDED:
            record(RECORDED[title], median)


if __name__ == "__main__":
    main()
