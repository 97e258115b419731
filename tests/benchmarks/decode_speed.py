"""Translation speed of a trained run, compared with CTranslate2 and JoeyNMT with the same weights.

    python tests/benchmarks/decode_speed.py --run runs/multi30k [--rounds 3] [--joeynmt JOEY/bin/python]

Engines take turns on the same captions, each in its own process; medians of several rounds. Each process loads its
model, translates some sentences to warm up, and then translates all sentences. Only the last is timed. `tokens` are
target tokens of the run's tokenizer. Without `--joeynmt` or an installed CTranslate2, these are left out.
"""

import json
import statistics
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import common
import torch

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.evaluation.scores import Scorer
from mt_cli.runtime.devices import keep_memory
from mt_cli.translation.translator import Translator

Result = tuple[float, list[str], list[float]]
"""Seconds for all sentences, their translations, and seconds of the first sixty one by one."""


def timed(translate: Callable[[list[str]], list[str]], sources: list[str]) -> Result:
    translate(sources[:64])
    texts: list[str] = []
    elapsed = common.seconds_of(lambda: texts.extend(translate(sources)))
    return elapsed, texts, [common.seconds_of(partial(translate, [source])) for source in sources[:60]]


def translate_with_mt(options: Namespace, precision: str, beam_size: int, sources: list[str]) -> Result:
    translator = Translator.load(options.run, "cpu", precision)
    keep_memory()
    return timed(lambda lines: translator.translate(lines, beam_size=beam_size), sources)


def translate_with_ctranslate2(options: Namespace, quantization: str, beam_size: int, sources: list[str]) -> Result:
    """Translate with CTranslate2 and the tokenizers of the run."""
    import ctranslate2

    from mt_cli.exchange.ctranslate2 import export_ctranslate2

    run = TrainedRun.load(Path(options.run))
    source_tokenizer, target_tokenizer = run.tokenizers
    ids_of = {token: number for number, token in enumerate(target_tokenizer.tokens(range(target_tokenizer.vocab_size)))}
    search = {"beam_size": beam_size, "max_batch_size": 2048, "batch_type": "tokens", "disable_unk": True}
    with tempfile.TemporaryDirectory() as folder:
        export_ctranslate2(run, Path(folder) / "model", quantization, sources[:5])
        engine = ctranslate2.Translator(str(Path(folder) / "model"), device="cpu", intra_threads=options.threads)

        def translate(lines: list[str]) -> list[str]:
            tokens = [source_tokenizer.tokens(ids) for ids in source_tokenizer.encode(lines)]
            results = engine.translate_batch(tokens, **search)
            return target_tokenizer.decode([[ids_of[token] for token in result.hypotheses[0]] for result in results])

        return timed(translate, sources)


def translate_with_joeynmt(options: Namespace, python: str, beam_size: int, sources: list[str]) -> Result:
    """Translate with JoeyNMT, in its own environment, on the tokens of the run's tokenizer."""
    from mt_cli.exchange.bundle import export_bundle

    run = TrainedRun.load(Path(options.run))
    tokenizer = run.tokenizers[0]
    ids_of = {token: number for number, token in enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_bundle(run, folder / "bundle")
        lines = [" ".join(tokenizer.tokens(ids)) for ids in tokenizer.encode(sources)]
        (folder / "pieces").write_text("\n".join(lines) + "\n", encoding="utf-8")
        script = Path(__file__).with_name("joeynmt_decode.py")
        command = [python, script, folder / "bundle", folder / "pieces", beam_size, options.threads]
        output = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True).stdout
    result = json.loads(output.splitlines()[-1])
    texts = tokenizer.decode([[ids_of[token] for token in tokens] for tokens in result["tokens"]])
    return result["seconds"], texts, result["singles"]


def measure(options: Namespace, translate: Callable[..., Result], variant: str, beam_size: int) -> dict[str, float]:
    """Speed and BLEU of an engine; runs in a process of its own."""
    torch.set_num_threads(options.threads)
    paths = common.caption_files("test_2016_flickr")["files"]
    sources, references = (common.read_lines(Path(path))[: options.sentences] for path in paths)
    elapsed, texts, singles = translate(options, variant, beam_size, sources)
    tokenizer = TrainedRun.load(Path(options.run)).tokenizers[1]
    return {
        "seconds": elapsed,
        "tokens_per_second": sum(len(ids) + 1 for ids in tokenizer.encode(texts)) / elapsed,
        "bleu": Scorer.of("de").score(texts, references, ("bleu",))["bleu"].score,
        "median_latency": statistics.median(singles),
        "latency_95": statistics.quantiles(singles, n=20)[18],
    }


def main() -> None:
    options = common.read_options(__doc__, run=str, joeynmt=None, rounds=3, sentences=1000, threads=2)
    engines = {f"mt {precision}": (translate_with_mt, precision) for precision in ("bf16", "fp32")}
    if find_spec("ctranslate2"):
        engines |= {f"CTranslate2 {name}": (translate_with_ctranslate2, name) for name in ("float32", "int8")}
    if options.joeynmt:
        engines["JoeyNMT"] = translate_with_joeynmt, options.joeynmt
    results = common.measure_in_turn(
        {
            (beam_size, name): partial(common.in_new_process, measure, options, *engine, beam_size)
            for beam_size in (1, 5)
            for name, engine in engines.items()
        },
        options.rounds,
    )
    common.print_titles("beam", "engine", "seconds", "tokens/s", "BLEU", "latency, median and 95th percentile")
    for (beam_size, name), rows in results.items():
        row = common.medians(rows)
        latency = f"{1e3 * row['median_latency']:.0f}, {1e3 * row['latency_95']:.0f} ms"
        cells = f"{row['seconds']:.2f}", f"{row['tokens_per_second']:,.0f}", f"{row['bleu']:.2f}", latency
        common.print_row(beam_size, name, *cells)


if __name__ == "__main__":
    main()
