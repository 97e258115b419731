"""Speed of training and translating on a GPU, of `mt`, its peers and a prototype that shows the limit, in one run.

    python tests/benchmarks/gpu_speed.py --json rows.jsonl --limit ../shared/benchmarks/gpu_limit.py
    python tests/benchmarks/gpu_speed.py --device cpu --sizes tiny --quick

Training: target tokens a second, without padding, of whole updates with the options of each preset. Pairs have 8 to 40
random tokens on each side. `transformers` trains a `MarianMTModel` of the same size on the same batches, padded: bf16
autocast, fused AdamW, clipping and label smoothing, as it is and compiled. Translating: `base`, 4,000 sentences of 25
tokens into 25 tokens, and CTranslate2 with the same weights. `batch_tokens` counts beams there.

`--only` chooses among train, translate, ctranslate2, transformers and limit. `--variants compile=true` trains with `mt`
once for each of the values, which may set several options, as in `compile=true,model.attention_dropout=0.1`.
`--quick` has fewer rounds, one compiled loop, and limits of `base` and `big` alone. Speeds are medians of rounds, after
`--warmup` steps and a round. Each measurement has a process of its own. A row is printed, and appended to the file of
`--json`, when it is measured.
"""

import json
import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import common
import gpu_work
from gpu_work import BEAMS, Row, Skipped

CASES = {"small": (8192, 32768), "base": (8192, 25000), "big": (8192,), "tiny": (4096,)}
"""Sizes, and the batches that each is trained with."""
LIMIT_ROWS = {"small": 32768, "base": 16384, "big": 16384, "tiny": 4096}
QUICKLY_COMPILED, QUICK_LIMITS = ("base", 25000), ("base", "big")
"""Cases of `--quick`."""

Measurement = tuple[Row, Callable[..., Iterator[Row]], tuple[Any, ...]]
"""Values of the rows of a measurement, and its function with arguments."""


def measurements(options: Namespace) -> Iterator[Measurement]:
    """All measurements, the ones of `mt` first."""
    yield {"kind": "machine"}, gpu_work.measure_machine, ()
    cases = [(size, batch_tokens) for size in options.sizes for batch_tokens in CASES[size]]
    translated = "base" if "base" in options.sizes else options.sizes[0]
    for size, batch_tokens in cases if "train" in options.only else []:
        for variant in options.variants:
            row = training_row(size, batch_tokens, "mt") | {"settings": variant}
            yield row, gpu_work.train_mt, (size, batch_tokens, variant)
    for beam in BEAMS if "translate" in options.only else []:
        row = {"kind": "translate", "size": translated, "system": "mt bf16", "beam": beam}
        yield row, gpu_work.translate_mt, (translated, beam)
    yield from peers(cases, translated, options)
    for size in options.sizes if "limit" in options.only else []:
        if options.quick and size not in QUICK_LIMITS:
            continue
        row = {"kind": "limit", "size": size, "system": "limit"}
        yield row, gpu_work.measure_limit, (size, LIMIT_ROWS[size])


def peers(cases: list[tuple[str, int]], translated: str, options: Namespace) -> Iterator[Measurement]:
    """Measurements of CTranslate2, and of `transformers` in a plain and a compiled loop."""
    quantizations = ("float32", "int8") if options.device == "cpu" else ("float16", "int8_float16")
    for quantization in quantizations if "ctranslate2" in options.only else []:
        row = {"kind": "translate", "size": translated, "system": f"CTranslate2 {quantization}"}
        yield row, gpu_work.translate_ctranslate2, (translated, quantization)
    if "transformers" not in options.only:
        return
    for size, batch_tokens in cases:
        row = training_row(size, batch_tokens, "plain loop")
        yield row, gpu_work.train_transformers, (size, batch_tokens, False)
    for size, batch_tokens in cases:
        if not options.quick or (size, batch_tokens) == QUICKLY_COMPILED:
            row = training_row(size, batch_tokens, "compiled loop")
            yield row, gpu_work.train_transformers, (size, batch_tokens, True)


def training_row(size: str, batch_tokens: int, system: str) -> Row:
    """Values of a row about training."""
    return {"kind": "train", "size": size, "batch_tokens": batch_tokens, "system": system}


def run_apart(measurement: Measurement, options: Namespace) -> Iterator[Row]:
    """Rows of a measurement in a process of its own, which is ended after `--seconds` without a row."""
    values, measure, arguments = measurement
    # Processes are forked from one that has imported these modules and has not used the GPU.
    context = get_context("forkserver")
    context.set_forkserver_preload(["gpu_work", "transformers.models.marian.modeling_marian"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=send_rows, args=(sender, measure, arguments, options))
    process.start()
    sender.close()
    try:
        while receiver.poll(options.seconds):
            row = receiver.recv()
            if row is None:
                return
            yield values | row
        yield values | {"skipped": f"no result after {options.seconds} seconds"}
    except EOFError:
        process.join()
        yield values | {"skipped": f"the process ended with status {process.exitcode}"}
    finally:
        process.join(5)
        process.kill()
        process.join()


def send_rows(sender: Connection, measure: Callable[..., Iterator[Row]], arguments: Any, options: Namespace) -> None:
    """Send the rows of a function, or the reason why there are none, and None at the end."""
    try:
        for row in measure(*arguments, options):
            sender.send(row)
    except Skipped as reason:
        sender.send({"skipped": str(reason)})
    except Exception as error:
        traceback.print_exc()
        sender.send({"skipped": f"{type(error).__name__}: {error}".split("\n")[0]})
    sender.send(None)


def measure_all(options: Namespace) -> None:
    """Print the rows of all measurements as they come, and append them to a file."""
    for measurement in measurements(options):
        for row in run_apart(measurement, options):
            print(json.dumps(row), flush=True)
            if options.json:
                with open(options.json, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            if row["kind"] == "machine" and "skipped" in row:
                sys.exit("the machine cannot be measured")


def main() -> None:
    """Measure, or read what was measured; print the tables, and write them if asked to."""
    options = common.read_options(
        __doc__,
        device="cuda",
        sizes=list(CASES),
        only=["train", "translate", "ctranslate2", "transformers", "limit"],
        variants=[""],
        rounds=5,
        steps=20,
        warmup=160,
        sentences=4000,
        seconds=240,
        threads=0,
        limit=None,
        json=None,
        quick=False,
    )
    if options.quick:
        options.rounds, options.steps, options.warmup = 3, 15, 160
        if options.device == "cpu":
            options.warmup, options.steps, options.sentences = 4, 2, 100
    path = [str(Path(__file__).parent), str(common.ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    measure_all(options)


if __name__ == "__main__":
    main()
