"""Translation speed of a trained run, compared with CTranslate2 and JoeyNMT with the same weights.

    python tests/benchmarks/decode_speed.py --run runs/multi30k [--rounds 3] [--joeynmt JOEY/bin/python] [--record]

Engines take turns on the same sentences, each in its own process; medians of several rounds. Each process loads its
model, translates some sentences to warm up, and then translates all sentences. Only the last is timed. `tokens` are
target tokens of the run's tokenizer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import add_option, record
from numbered_pairs import CAPTIONS

BEAMS = (1, 5)


def sentences(number):
    """Sources and references."""
    return [
        (CAPTIONS / f"test_2016_flickr.{side}").read_text(encoding="utf-8").splitlines()[:number]
        for side in ("en", "de")
    ]


def timed(translate, sources):
    """Seconds for all sentences, their translations, and the seconds of some sentences one by one."""
    translate(sources[:64])
    started_at = time.perf_counter()
    texts = translate(sources)
    elapsed = time.perf_counter() - started_at
    singles = []
    for source in sources[:60]:
        started_at = time.perf_counter()
        translate([source])
        singles.append(time.perf_counter() - started_at)
    return elapsed, texts, singles


def run_ours(arguments, precision, beam_size, sources):
    """Translate with `mt`."""
    from mt_cli.machine.devices import keep_memory
    from mt_cli.translation.translator import Translator

    translator = Translator.load(arguments.run, "cpu", precision)
    keep_memory()
    return timed(lambda lines: translator.translate(lines, beam_size=beam_size), sources)


def run_ctranslate2(arguments, quantization, beam_size, sources):
    """Translate with CTranslate2 and the tokenizers of the run."""
    import ctranslate2

    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.ctranslate2 import export_ctranslate2

    run = TrainedRun.load(Path(arguments.run))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        export_ctranslate2(run, path, quantization, sources[:5])
        engine = ctranslate2.Translator(str(path), device="cpu", intra_threads=arguments.threads)
        source_tokenizer, target_tokenizer = run.tokenizers
        ids_of = {
            token: index for index, token in enumerate(target_tokenizer.tokens(range(target_tokenizer.vocab_size)))
        }

        def translate(lines):
            tokens = [source_tokenizer.tokens(ids) for ids in source_tokenizer.encode(lines)]
            options = {"beam_size": beam_size, "max_batch_size": 2048, "batch_type": "tokens", "disable_unk": True}
            results = engine.translate_batch(tokens, **options)
            return target_tokenizer.decode([[ids_of[token] for token in result.hypotheses[0]] for result in results])

        return timed(translate, sources)


def run_joeynmt(arguments, python, beam_size, sources):
    """Translate with JoeyNMT, in its own environment, on the tokens of the run's tokenizer."""
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.bundle import export_bundle

    run = TrainedRun.load(Path(arguments.run))
    tokenizer = run.tokenizers[0]
    ids_of = {token: index for index, token in enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_bundle(run, folder / "bundle")
        lines = [" ".join(tokenizer.tokens(ids)) for ids in tokenizer.encode(sources)]
        (folder / "pieces").write_text("\n".join(lines) + "\n", encoding="utf-8")
        script = Path(__file__).parent / "joeynmt_decode.py"
        command = [python, script, folder / "bundle", folder / "pieces", beam_size, arguments.threads]
        output = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True).stdout
    result = json.loads(output.splitlines()[-1])
    texts = tokenizer.decode([[ids_of[token] for token in tokens] for tokens in result["tokens"]])
    return result["seconds"], texts, result["singles"]


ENGINES = {
    "mt bf16": (run_ours, "bf16"),
    "mt fp32": (run_ours, "fp32"),
    "CTranslate2 float32": (run_ctranslate2, "float32"),
    "CTranslate2 int8": (run_ctranslate2, "int8"),
}


def run_one(arguments):
    """Run one engine once in its own process; return its line of JSON."""
    import torch

    from mt_cli.evaluation.texts import Scorer
    from mt_cli.translation.translator import Translator

    torch.set_num_threads(arguments.threads)
    sources, references = sentences(arguments.number)
    run, option = ENGINES.get(arguments.engine, (run_joeynmt, arguments.joeynmt))
    elapsed, texts, singles = run(arguments, option, arguments.beam, sources)
    tokenizer = Translator.load(arguments.run, "cpu", "fp32").target_tokenizer
    result = {
        "seconds": elapsed,
        "tokens_per_second": sum(len(ids) + 1 for ids in tokenizer.encode(texts)) / elapsed,
        "bleu": Scorer.of("de").score(texts, references, ("bleu",))["bleu"].score,
        "median_latency": statistics.median(singles),
        "latency_95": statistics.quantiles(singles, n=20)[18],
    }
    print(json.dumps(result))


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--number", type=int, default=1000, help="Number of sentences.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--joeynmt", help="The Python of an environment with JoeyNMT.")
    parser.add_argument("--engine", choices=[*ENGINES, "JoeyNMT"])
    parser.add_argument("--beam", type=int)
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.engine:
        return run_one(arguments)
    results = {}
    for number in range(arguments.rounds):
        for beam in BEAMS:
            for engine in [*ENGINES, *(["JoeyNMT"] if arguments.joeynmt else [])]:
                command = [sys.executable, __file__, "--run", arguments.run, "--engine", engine, "--beam", str(beam)]
                command += ["--number", str(arguments.number), "--threads", str(arguments.threads)]
                command += ["--joeynmt", arguments.joeynmt] if arguments.joeynmt else []
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                results.setdefault((beam, engine), []).append(json.loads(output.splitlines()[-1]))
                print(number, beam, engine, output.splitlines()[-1], file=sys.stderr)
    print(
        "| beam | engine | seconds | tokens/s | BLEU | latency, median and 95th percentile |\n|---|---|---|---|---|---|"
    )
    medians = {}
    for (beam, engine), rows in results.items():
        medians[beam, engine] = median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        print(
            f"| {beam} | {engine} | {median['seconds']:.2f} | {median['tokens_per_second']:,.0f} "
            f"| {median['bleu']:.2f} | {1e3 * median['median_latency']:.0f}, {1e3 * median['latency_95']:.0f} ms |"
        )
    for peer, name in (("JoeyNMT", "joeynmt"), ("CTranslate2 float32", "ctranslate2")):
        for precision in ("bf16", "fp32"):
            if arguments.record and (5, peer) in medians:
                ratio = medians[5, peer]["seconds"] / medians[5, f"mt {precision}"]["seconds"]
                record(f"decode_vs_{name}_{precision}", ratio)
    return None


if __name__ == "__main__":
    main()
