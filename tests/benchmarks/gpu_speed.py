"""Speed of training and translating on a GPU, of `mt` and its peers, in one run.

    python tests/benchmarks/gpu_speed.py --json rows.jsonl
    python tests/benchmarks/gpu_speed.py --device cpu --sizes tiny --quick

Training: target tokens a second, without padding, of whole updates with the options of each preset. Pairs have 8 to 40
random tokens on each side. `transformers` trains a `MarianMTModel` of the same size on the same batches, padded: bf16
autocast, fused AdamW, clipping and label smoothing, as it is and compiled. Translating: `base`, 4,000 sentences of 25
tokens into 25 tokens, and CTranslate2 with the same weights. `batch_tokens` counts beams there.

`--only` chooses among train, translate, ctranslate2 and transformers. `--variants compile=true` trains with `mt` once
for each of the values, which may set several options, as in `compile=true,model.attention_dropout=0.1`. `--quick` has
fewer rounds and one compiled loop. Speeds are medians of rounds, after `--warmup` steps and a round. Each measurement
has a process of its own. Its rows are printed, and appended to the file of `--json`, when it ends.
"""

import gc
import json
import os
import sys
import tempfile
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import date
from functools import partial
from itertools import cycle, islice, product
from multiprocessing import set_forkserver_preload
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import common
import numpy as np
import peer_loops
import torch
import yaml

from mt_cli.config.presets import PRESETS
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.data.batches import MixedPairs
from mt_cli.data.encode import EncodedPairs
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.transformer_engine import TransformerEngine, fitting_batch_tokens
from mt_cli.model.transformer import Transformer, with_dtype
from mt_cli.runtime.devices import describe_hardware, keep_memory, pick_device, pick_precision
from mt_cli.tokenizer.special_tokens import SPECIAL_TOKENS
from mt_cli.training.averaging import MovingAverage

CASES = {"small": (8192, 32768), "base": (8192, 25000), "big": (8192,), "tiny": (4096,)}
"""Sizes, and the batches that each is trained with."""
QUICKLY_COMPILED = "base", 25000
"""Case of `--quick`."""
BEAMS = (1, 4)
SHORTEST, LONGEST, TRANSLATED = 8, 40, 25
BATCHES_PER_EPOCH = 40
CTRANSLATE2_BATCHES = 4096, 32768, 65536, 131_072
"""`batch_tokens`."""
_SEARCHES_BEFORE_GRAPHS = 3
"""Searches after which each shape has occurred often enough to be recorded."""

Row = dict[str, Any]
Measurement = tuple[Row, Callable[..., Iterator[Row]], tuple[Any, ...]]
"""Values of the rows of a measurement, and its function with arguments."""


def prepare(options: Namespace) -> torch.device:
    """Device, with seeds set and memory kept as `mt train` does."""
    torch.set_num_threads(options.threads or torch.get_num_threads())
    torch.manual_seed(1)
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

    versions = f"{torch.__version__}, CUDA {torch.version.cuda}" if device.type == "cuda" else torch.__version__
    flops = common.median_speed(multiply, device, 5)
    name = describe_hardware(device)["device"]
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
    seed = TrainingConfig().seed
    mixed = MixedPairs(pairs, [1.0], batch_tokens, seed)
    can_pin = device.type == "cuda"
    batches = cycle(
        [
            ({side: ids.pin_memory() if can_pin else ids for side, ids in batch.items()}, num_tokens)
            for batch, num_tokens in common.padded_batches(mixed, batch_tokens, seed)
        ]
    )

    def train(number: int) -> int:
        num_tokens = 0
        for batch, num_target_tokens in islice(batches, number):
            moved = {side: ids.to(device, non_blocking=True) for side, ids in batch.items()}
            peer_loops.update(optimizer, partial(loss_of, model, moved), bf16_on)
            num_tokens += num_target_tokens
        return num_tokens

    yield trained(train, size, pairs, device, options, options.warmup // 4)


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
    engine = TransformerEngine(with_dtype(build_model(size).to(device), dtype))
    sources = sentences(size, options)
    exec(common.FIXED_LENGTH.format(length=TRANSLATED), {})
    decoding, fitting = DecodingConfig(beam_size=beam), engine.predictor.fitting_tokens
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
    import ctranslate2

    from mt_cli.exchange.ctranslate2 import _specification

    device, model = prepare(options), build_model(size)
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
    vocab_size = PRESETS[size]["tokenizer"]["vocab_size"]
    return [source.tolist() for source, _ in common.random_pairs(options.sentences, TRANSLATED, TRANSLATED, vocab_size)]


def measurements(options: Namespace) -> Iterator[Measurement]:
    """All measurements, the ones of `mt` first."""
    yield {"kind": "machine"}, measure_machine, ()
    cases = [(size, batch_tokens) for size in options.sizes for batch_tokens in CASES[size]]
    translated = "base" if "base" in options.sizes else options.sizes[0]
    for case, variant in product(cases, options.variants) if "train" in options.only else []:
        yield training_row(case, "mt") | {"settings": variant}, train_mt, (*case, variant)
    translating = {"kind": "translate", "size": translated}
    for beam in BEAMS if "translate" in options.only else []:
        yield translating | {"system": "mt bf16", "beam": beam}, translate_mt, (translated, beam)
    quantizations = ("float32", "int8") if options.device == "cpu" else ("float16", "int8_float16")
    for quantization in quantizations if "ctranslate2" in options.only else []:
        row = translating | {"system": f"CTranslate2 {quantization}"}
        yield row, translate_ctranslate2, (translated, quantization)
    for is_compiled, case in product((False, True), cases) if "transformers" in options.only else []:
        if not (options.quick and is_compiled) or case == QUICKLY_COMPILED:
            row = training_row(case, "compiled loop" if is_compiled else "plain loop")
            yield row, train_transformers, (*case, is_compiled)


def training_row(case: tuple[str, int], system: str) -> Row:
    return {"kind": "train", "size": case[0], "batch_tokens": case[1], "system": system}


def rows_of(measure: Callable[..., Iterator[Row]], arguments: tuple[Any, ...], options: Namespace) -> list[Row]:
    """Rows of a function, and the reason if it cannot go on, for example without the library of a peer."""
    rows = []
    try:
        for row in measure(*arguments, options):
            rows.append(row)
    except Exception as error:
        traceback.print_exc()
        rows.append({"skipped": f"{type(error).__name__}: {error}".split("\n")[0]})
    return rows


def measure_all(options: Namespace) -> None:
    for values, *measurement in measurements(options):
        try:
            rows = common.in_new_process(rows_of, *measurement, options)
        except BrokenProcessPool as error:
            rows = [{"skipped": str(error)}]
        for row in [values | row for row in rows]:
            print(json.dumps(row), flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            if row["kind"] == "machine" and "skipped" in row:
                sys.exit("the machine cannot be measured")


def main() -> None:
    options = common.read_options(
        __doc__,
        device="cuda",
        sizes=list(CASES),
        only=["train", "translate", "ctranslate2", "transformers"],
        variants=[""],
        rounds=5,
        steps=20,
        warmup=160,
        sentences=4000,
        threads=0,
        json=None,
        quick=False,
    )
    if options.quick:
        options.rounds, options.steps, options.warmup = 3, 15, 160
        if options.device == "cpu":
            options.warmup, options.steps, options.sentences = 4, 2, 100
    path = [str(Path(__file__).parent), str(common.ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    set_forkserver_preload(["common", "peer_loops", "transformers.models.marian.modeling_marian"])
    measure_all(options)


if __name__ == "__main__":
    main()
