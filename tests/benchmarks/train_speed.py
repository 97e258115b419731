"""Training speed and memory compared with other toolkits, with the same model and text, in turn, in several rounds.

The model has 3+3 layers, d_model 256, d_ff 1024, 4 heads and 10,000 shared subwords (8.09 M parameters), with batches
of about 4,096 tokens. Peers run in their own environments, given by their Python. Those not given are skipped:

    python tests/benchmarks/train_speed.py --joeynmt joey/bin/python --eole eole/bin/python --marian hf/bin/python

JoeyNMT 2.3 also needs `importlib_metadata` and `sentencepiece==0.2.0`, Eole 0.6.4 needs `aiohttp`, and Marian needs
`transformers`. The configs of the peers are in `../shared/benchmarks`, next to the project.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from figures import add_option, record
from numbered_pairs import CAPTIONS, caption_files

from mt_cli.batching.batches import collate, epoch_batches
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.features.training_pairs import training_pairs

HERE = Path(__file__).parent
SHARED = CAPTIONS.parents[1] / "benchmarks"
FLOP_PER_TARGET_TOKEN = 48e6
"""Of the matrix products alone, forward and backward, for a target token and its share of source tokens."""


def our_config(steps: int, precision: str) -> Config:
    tree = {
        "name": f"speed-{precision}",
        "corpus": {"source": "en", "target": "de", "train": caption_files("train"), "valid": caption_files("val")},
        "tokenizer": {"algorithm": "bpe", "vocab_size": 10_000, "shared": True},
        "model": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "tie_embeddings": "all", "dropout": 0.1},
        "training": {
            **{"max_steps": steps, "batch_tokens": 4096, "precision": precision, "log_every_steps": 1},
            **{"validate_every_steps": 1_000_000, "learning_rate": 5e-4},
        },
    }
    return parse_config(tree, "train_speed")


def watched(command: list[str], folder: Path, enough: Callable[[str], bool]) -> tuple[str, float]:
    """Run a command until `enough`; return its output and peak resident megabytes (largest process of its tree)."""
    log = folder / "log.txt"
    environment = (
        {**os.environ, "PYTHONPATH": str(HERE.parents[1])} if command[0] == sys.executable else dict(os.environ)
    )
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
    peak = 0.0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1000)
        except (FileNotFoundError, ProcessLookupError, IndexError):
            pass
        if enough(log.read_text(errors="replace")):
            process.kill()
        time.sleep(0.5)
    return log.read_text(errors="replace"), peak


def ours(folder: Path, precision: str, steps: int) -> tuple[float, float]:
    run = folder / "runs" / f"speed-{precision}"
    subprocess.run(["rm", "-rf", str(run)], check=True)
    (folder / "ours.yaml").write_text(our_config(10 * steps, precision).to_yaml(), encoding="utf-8")

    def enough(_: str) -> bool:
        metrics = run / "metrics.jsonl"
        return metrics.exists() and metrics.read_text().count("\n") >= steps

    text, peak = watched([sys.executable, "-m", "mt_cli", "train", "--config", "ours.yaml"], folder, enough)
    if not (run / "metrics.jsonl").exists():
        raise SystemExit(text)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(row["train/tokens_per_second"] for row in rows[3:]), peak


def by_log(pattern: str, skip: int, needed: int) -> tuple[Callable[[str], bool], Callable[[str], float]]:
    """Two functions of a log: whether it has enough figures, and their median without the first."""

    def figures(text: str) -> list[float]:
        return [float(figure) for figure in re.findall(pattern, text)][skip:]

    return lambda text: len(figures(text)) >= needed, lambda text: statistics.median(figures(text))


def joeynmt(folder: Path, python: str, steps: int) -> tuple[float, float]:
    tree = yaml.safe_load((SHARED / "joeynmt_multi30k_en_de.yaml").read_text())
    for key, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        tree["data"][key] = str(CAPTIONS / name)
    tree["model_dir"] = str(folder / "joey-model")
    (folder / "joey.yaml").write_text(yaml.safe_dump(tree))
    enough, rate = by_log(r"Tokens per Sec:\s+([\d.]+)", 1, max(2, steps // 10))
    text, peak = watched([python, "-m", "joeynmt", "train", "joey.yaml", "--skip-test"], folder, enough)
    return rate(text), peak


def eole(folder: Path, python: str, steps: int, precision: str) -> tuple[float, float]:
    tree = yaml.safe_load((SHARED / "eole_multi30k_en_de.yaml").read_text())
    tree["training"] |= {"compute_dtype": precision, "train_steps": 10 * steps}
    (folder / "eole.yaml").write_text(yaml.safe_dump(tree))
    program = str(Path(python).with_name("eole"))
    if not (folder / "run" / "v.src").exists():
        subprocess.run([program, "build_vocab", "-c", "eole.yaml", "-n_sample", "-1"], cwd=folder, check=True)
    enough, rate = by_log(r"\d+/\s*(\d+) tok/s", 1, max(2, steps // 10))
    text, peak = watched([program, "train", "-c", "eole.yaml"], folder, enough)
    return rate(text), peak


def pieces_for_peers(folder: Path, python: str) -> None:
    """Write a SentencePiece model and the captions encoded with it, for JoeyNMT and Eole."""
    script = f"""
import sentencepiece as spm
spm.SentencePieceTrainer.train(input=r"{CAPTIONS}/train.en,{CAPTIONS}/train.de", model_prefix="m30k", vocab_size=10000,
    model_type="unigram", unk_id=0, pad_id=1, bos_id=2, eos_id=3, minloglevel=2)
model = spm.SentencePieceProcessor(model_file="m30k.model")
for name in ("train", "val"):
    for side in ("en", "de"):
        with open(f"{{name}}.{{side}}", "w") as out:
            for line in open(fr"{CAPTIONS}/{{name}}.{{side}}", encoding="utf-8", newline="\\n"):
                out.write(" ".join(model.encode(line.strip(), out_type=str)) + "\\n")
"""
    if not (folder / "m30k.model").exists():
        subprocess.run([python, "-c", script], cwd=folder, check=True)


def loop(command: list[str], folder: Path) -> tuple[float, float]:
    text, peak = watched(command, folder, lambda _: False)
    return float(json.loads(text.splitlines()[-1])["target_tokens_per_second"]), peak


def batches_for_peers(folder: Path, steps: int) -> Path:
    config = our_config(steps, "fp32")
    data = prepare(config, Cache(folder / "runs" / ".cache"))
    placed = epoch_batches(training_pairs(data, config), 4096, 1, 0)
    batches = [collate(each.pairs, each.indices) for each, _ in zip(placed, range(steps), strict=False)]
    saved = [
        {
            "src": each.source.layout.padded(each.source.ids),
            "tgt": each.target.layout.padded(each.target.ids),
            "label": each.target.layout.padded(each.tgt_output_ids),
        }
        for each in batches
    ]
    torch.save(saved, folder / "batches.pt")
    return folder / "batches.pt"


def matrix_peak(dtype: torch.dtype) -> float:
    """FLOP/s of large products, on a GPU if available. The share of it that training reaches is the MFU."""
    is_cuda = torch.cuda.is_available()
    size = 8192 if is_cuda else 2048
    a, b = (torch.randn(size, size, device="cuda" if is_cuda else "cpu").to(dtype) for _ in range(2))
    rates = []
    for _ in range(6):
        started_at = time.perf_counter()
        float((a @ b)[0, 0])
        rates.append(2 * size**3 / (time.perf_counter() - started_at))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for peer in ("joeynmt", "eole", "marian"):
        parser.add_argument(f"--{peer}", metavar="PYTHON", help=f"Python of an environment with {peer}.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-train-speed")
    add_option(parser)
    options = parser.parse_args()
    folder, steps = options.work.resolve(), options.steps
    folder.mkdir(parents=True, exist_ok=True)
    batches = batches_for_peers(folder, steps)
    systems: dict[str, Callable[[], tuple[float, float]]] = {
        "mt bf16": lambda: ours(folder, "bf16", steps),
        "mt fp32": lambda: ours(folder, "fp32", steps),
        "tutorial loop fp32": lambda: loop([sys.executable, str(HERE / "tutorial_loop.py"), "8"], folder),
    }
    if options.marian:
        for precision in ("fp32", "bf16"):
            command = [options.marian, str(HERE / "marian_loop.py"), str(batches), precision]
            systems[f"Marian (Hugging Face) {precision}"] = lambda command=command: loop(command, folder)
    if options.joeynmt:
        pieces_for_peers(folder, options.joeynmt)
        systems["JoeyNMT fp32"] = lambda: joeynmt(folder, options.joeynmt, steps)
        if options.eole:
            for precision in ("fp32", "bf16"):
                systems[f"Eole {precision}"] = lambda each=precision: eole(folder, options.eole, steps, each)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in systems}
    peaks = []
    for _ in range(options.rounds):
        peaks.append(matrix_peak(torch.bfloat16))
        for name, run in systems.items():
            results[name].append(run())
            print(name, [round(figure) for figure in results[name][-1]], file=sys.stderr, flush=True)
    our_rate = statistics.median(rate for rate, _ in results["mt bf16"])
    peak = statistics.median(peaks)
    rows: list[dict[str, Any]] = []
    for name, figures in results.items():
        rate = statistics.median(each for each, _ in figures)
        row = {
            "system": name,
            "target_tokens_per_second": round(rate),
            "mt_is_times_as_fast": round(our_rate / rate, 2),
        }
        rows.append(row | {"peak_mb": round(statistics.median(each for _, each in figures))})
    print(
        json.dumps(
            {"bf16_peak_gflops": round(peak / 1e9), "share_of_peak": round(our_rate * FLOP_PER_TARGET_TOKEN / peak, 3)}
        )
    )
    for row in rows:
        print(json.dumps(row))
    if options.record:
        record("train_bf16_gflops", round(peak / 1e9))
        record("train_share_of_peak", round(100 * our_rate * FLOP_PER_TARGET_TOKEN / peak))
        names = {"JoeyNMT fp32": "train_vs_joeynmt", "Eole bf16": "train_vs_eole_bf16"}
        for row in rows:
            if row["system"] in names:
                record(names[row["system"]], row["mt_is_times_as_fast"])


if __name__ == "__main__":
    main()
