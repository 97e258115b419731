"""Measurements of gpu_speed.py, each of which runs in a process of its own: functions that yield rows.

A row has the speed in tokens a second, and whatever the table or a comparison of runs needs.
"""

import gc
import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import peer_loops
import torch
import yaml

from mt_cli.batching.batches import MixedPairs, epoch_batches, pad
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.presets import PRESETS
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding.batch_size import fitting_batch_tokens
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.machine.devices import describe_hardware, keep_memory, pick_device, pick_precision, seed_everything
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID, SPECIAL_TOKENS
from mt_cli.training.averaging import MovingAverage, in_format

BEAMS = (1, 4)
SHORTEST, LONGEST, TRANSLATED = 8, 40, 25
BATCHES_PER_EPOCH = 40
CTRANSLATE2_BATCHES = 4096, 32768, 65536, 131_072
"""`batch_tokens`."""
_SEARCHES_BEFORE_GRAPHS = 3
"""Searches after which each shape has occurred often enough to be recorded."""
LIMIT_PEAK = 989e12
"""FLOP/s of which the prototype prints its share."""

Row = dict[str, Any]


class Skipped(Exception):
    """A measurement that cannot be made here, with the reason."""


def prepare(options: Namespace) -> torch.device:
    """Device, with seeds set and memory kept as `mt train` does."""
    torch.set_num_threads(options.threads or torch.get_num_threads())
    seed_everything(1)
    keep_memory()
    return pick_device(options.device)


def build_model(size: str, **changes: Any) -> Transformer:
    """Model of a preset, with other values of some options and random weights."""
    vocab_size = PRESETS[size]["tokenizer"]["vocab_size"]
    return Transformer(ModelConfig(**{**PRESETS[size]["model"], **changes}), vocab_size, vocab_size)


def read_settings(text: str) -> dict[str, dict[str, Any]]:
    """Values of options by section, from `KEY=VALUE,KEY=VALUE`; a key without a section is of `training`."""
    settings: dict[str, dict[str, Any]] = {"model": {}, "training": {}}
    for key, _, value in (part.partition("=") for part in text.split(",") if part):
        section, _, name = key.rpartition(".")
        settings[section or "training"][name] = yaml.safe_load(value)
    return settings


def training_pairs(size: str, batch_tokens: int) -> EncodedPairs:
    """Pairs of random tokens for an epoch of about 40 batches."""
    number = BATCHES_PER_EPOCH * batch_tokens // ((SHORTEST + LONGEST) // 2 + 5)
    return common.random_pairs(number, SHORTEST, LONGEST, PRESETS[size]["tokenizer"]["vocab_size"])


def flop_per_target_token(size: str, pairs: EncodedPairs) -> float:
    """Operations of the products with weights, forward and backward, for a target token and its share of the source."""
    with torch.device("meta"):
        model = build_model(size)
    encoder, decoder = (
        sum(weight.numel() for weight in stack.parameters()) for stack in (model.encoder, model.decoder)
    )
    num_source_tokens, num_target_tokens = (pairs.lengths(np.arange(len(pairs))) + 1).sum(axis=1)
    return float(6 * (decoder + model.projection.weight.numel() + encoder * num_source_tokens / num_target_tokens))


def memory_taken(device: torch.device) -> int:
    """Largest number of bytes that this process has reserved on a GPU, or used on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    return common.memory_of_process("self").get("VmHWM", 0)


def measure_machine(options: Namespace) -> Iterator[Row]:
    """Speed of large bf16 products, and what they run on."""
    device = prepare(options)
    side = 8192 if device.type == "cuda" else 2048
    a, b = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))

    def multiply() -> int:
        for _ in range(10):
            a @ b
        return 10 * 2 * side**3

    name = describe_hardware(device)["device"] if device.type == "cuda" else common.this_machine()
    versions = f"{torch.__version__}, CUDA {torch.version.cuda}" if device.type == "cuda" else torch.__version__
    flops = common.median_speed(multiply, device, 5)
    yield {"flops": flops, "device": name, "torch": versions, "date": date.today().isoformat()}


def train_mt(size: str, batch_tokens: int, variant: str, options: Namespace) -> Iterator[Row]:
    """Train with `mt`: whole updates of the preset, its moving average of weights included."""
    device, settings = prepare(options), read_settings(variant)
    changes = {"batch_tokens": batch_tokens, "micro_batches_per_step": 1} | settings["training"]
    config = TrainingConfig(**{**PRESETS[size]["training"], **changes})
    model, pairs = build_model(size, **settings["model"]).to(device), training_pairs(size, batch_tokens)
    steps = common.training_steps(model, pairs, config, pick_precision("auto", device))
    average = MovingAverage(model, config.ema_decay) if config.ema_decay else None

    def train(number: int) -> int:
        num_tokens = 0
        for report in islice(steps, number):
            if average is not None:
                average.update(report.step)
            num_tokens += report.num_target_tokens
        return num_tokens

    yield trained(train, size, pairs, device, options, options.warmup)


def train_transformers(size: str, batch_tokens: int, is_compiled: bool, options: Namespace) -> Iterator[Row]:
    """Train `MarianMTModel` of the same size in a plain loop, which may be compiled, on the same batches, padded."""
    if not find_spec("transformers"):
        raise Skipped("transformers is not installed")
    device = prepare(options)
    torch.backends.cuda.enable_cudnn_sdp(True)  # PyTorch's default, which `pick_device` changes.
    preset, pairs = PRESETS[size]["model"], training_pairs(size, batch_tokens)
    sizes = {key: preset.get(key, 0.0) for key in ("d_model", "d_ff", "num_heads", "dropout", "attention_dropout")}
    vocab_size = PRESETS[size]["tokenizer"]["vocab_size"]
    model = peer_loops.Marian(vocab_size, num_layers=preset["num_encoder_layers"], **sizes).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    loss_of = peer_loops.smoothed_loss
    if is_compiled:
        loss_of = torch.compile(loss_of, dynamic=True)
    bf16_on = device.type if pick_precision("auto", device) == torch.bfloat16 else None
    batches = cycle(padded_batches(pairs, batch_tokens, device))

    def train(number: int) -> int:
        num_tokens = 0
        for batch, num_target_tokens in islice(batches, number):
            moved = {side: ids.to(device, non_blocking=True) for side, ids in batch.items()}
            peer_loops.update(optimizer, partial(loss_of, model, moved), bf16_on)
            num_tokens += num_target_tokens
        return num_tokens

    yield trained(train, size, pairs, device, options, options.warmup // 4)


def padded_batches(
    pairs: EncodedPairs, batch_tokens: int, device: torch.device
) -> list[tuple[dict[str, torch.Tensor], int]]:
    """Batches of an epoch of `mt`, padded, in pinned memory for a GPU; and their target tokens."""
    result = []
    seed = TrainingConfig().seed
    for placed in epoch_batches(MixedPairs(pairs, [1.0], batch_tokens, seed), batch_tokens, seed, 0):
        sources, targets = zip(*(pairs[int(index)] for index in placed.indices), strict=True)
        batch = {"src": pad(sources, end=EOS_ID), "tgt": pad(targets, SOS_ID), "label": pad(targets, end=EOS_ID)}
        if device.type == "cuda":
            batch = {side: ids.pin_memory() for side, ids in batch.items()}
        result.append((batch, placed.num_target_tokens))
    return result


def trained(
    train: Callable[[int], int],
    size: str,
    pairs: EncodedPairs,
    device: torch.device,
    options: Namespace,
    num_warmup_steps: int,
) -> Row:
    """Measured row of a function that makes a number of updates and returns their target tokens."""
    seconds = common.seconds_of(partial(train, num_warmup_steps))
    speed = common.median_speed(partial(train, options.steps), device, options.rounds)
    flop = flop_per_target_token(size, pairs)
    return {"speed": speed, "flop_per_token": flop, "memory": memory_taken(device), "warmup_seconds": round(seconds, 1)}


def translate_mt(size: str, beam: int, options: Namespace) -> Iterator[Row]:
    """Translate with `mt` in batches of the default size, which is larger on a GPU."""
    device = prepare(options)
    dtype = pick_precision("auto", device)
    engine = TransformerEngine(in_format(build_model(size).to(device), dtype))
    sources = sentences(size, options)
    limits = {"beam_size": beam, "min_length": TRANSLATED, "max_length": TRANSLATED, "max_length_ratio": 100.0}
    decoding, fitting = DecodingConfig(**limits), engine.means.fitting_tokens
    batch_tokens = decoding.batch_tokens if fitting is None else fitting_batch_tokens(decoding.batch_tokens, fitting)

    def translate() -> int:
        return sum(len(best.ids) for best, *_ in engine.search([*map(Sentence, sources)], decoding))

    for _ in range(_SEARCHES_BEFORE_GRAPHS):
        translate()
    gc.freeze()  # As `mt translate` does.
    speed = common.median_speed(translate, device, options.rounds)
    yield {"speed": speed, "batch_tokens": batch_tokens, "memory": memory_taken(device)}


def translate_ctranslate2(size: str, quantization: str, options: Namespace) -> Iterator[Row]:
    """Translate with CTranslate2 and random weights, with a row for each beam and batch size."""
    if not find_spec("ctranslate2"):
        raise Skipped("ctranslate2 is not installed")
    import ctranslate2

    from mt_cli.features.exchange.ctranslate2 import _specification

    device, model = prepare(options), build_model(size)
    if device.type == "cuda" and not ctranslate2.get_cuda_device_count():
        raise Skipped("CTranslate2 finds no CUDA device")
    tokens = [*SPECIAL_TOKENS, *map(str, range(len(SPECIAL_TOKENS), model.projection.out_features))]
    tokenizer = SimpleNamespace(vocab_size=len(tokens), tokens=lambda ids: [tokens[index] for index in ids])
    config = SimpleNamespace(model=model.config, corpus=SimpleNamespace(max_tokens=LONGEST), decoding=DecodingConfig())
    spec = _specification(
        ctranslate2.specs, SimpleNamespace(config=config, model=model, tokenizers=(tokenizer, tokenizer))
    )
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    sources = [tokenizer.tokens(ids) for ids in sentences(size, options)]
    limits = {"min_decoding_length": TRANSLATED, "max_decoding_length": TRANSLATED, "disable_unk": True}
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        engine = ctranslate2.Translator(folder, device=device.type, compute_type=quantization)
        for beam in BEAMS:
            for batch_tokens in CTRANSLATE2_BATCHES:

                def translate(beam: int = beam, batch_tokens: int = batch_tokens) -> int:
                    batch = {"max_batch_size": batch_tokens // beam, "batch_type": "tokens", "beam_size": beam}
                    results = engine.translate_batch(sources, **batch, **limits)
                    return sum(len(result.hypotheses[0]) for result in results)

                translate()
                speed = common.median_speed(translate, device, options.rounds)
                yield {"speed": speed, "beam": beam, "batch_tokens": batch_tokens}


def sentences(size: str, options: Namespace) -> list[list[int]]:
    """Sources of random tokens."""
    vocab_size = PRESETS[size]["tokenizer"]["vocab_size"]
    return [source.tolist() for source, _ in common.random_pairs(options.sentences, TRANSLATED, TRANSLATED, vocab_size)]


def measure_limit(size: str, num_rows: int, options: Namespace) -> Iterator[Row]:
    """Run the prototype of `--limit`: one shape, variable-length attention, one compiled CUDA graph of an update."""
    if not options.limit or not Path(options.limit).is_file():
        raise Skipped(f"--limit {options.limit}: no such file" if options.limit else "--limit was not given")
    command = [sys.executable, options.limit, size, str(num_rows), "--graph", "--compile"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        raise Skipped(f"{Path(options.limit).name} ended with status {ran.returncode}")
    result = json.loads(ran.stdout.splitlines()[-1])
    speed = result["tgt_tok_s"]
    yield {"speed": speed, "flop_per_token": result["MFU"] * LIMIT_PEAK / speed, "memory": result["peak_GiB"] * 2**30}
