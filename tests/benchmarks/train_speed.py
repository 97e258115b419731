"""Training speed and memory compared with other toolkits, with the same model and text, in turn, in several rounds.

The model has 3+3 layers, d_model 256, d_ff 1024, 4 heads and 10,000 shared subwords (8.09 M parameters), with batches
of about 4,096 tokens. Peers run in their own environments, given by their Python. Those not given are skipped:

    python tests/benchmarks/train_speed.py --joeynmt joey/bin/python --eole eole/bin/python --marian hf/bin/python

JoeyNMT 2.3 also needs `importlib_metadata` and `sentencepiece==0.2.0`, Eole 0.6.4 needs `aiohttp` and cuts words up as
JoeyNMT does, and Marian needs `transformers`. The configs of the peers are in `../shared/benchmarks`.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import common
import torch
import yaml

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.data.training_pairs import training_pairs

FLOP_PER_TARGET_TOKEN = 48e6
"""Of the matrix products alone, forward and backward, for a target token and its share of source tokens."""
PIECES = """
import sys, sentencepiece
captions = sys.argv[1]
sentencepiece.SentencePieceTrainer.train(input=[f"{captions}/train.en", f"{captions}/train.de"], model_prefix="m30k",
    vocab_size=10000, model_type="unigram", unk_id=0, pad_id=1, bos_id=2, eos_id=3, minloglevel=2)
model = sentencepiece.SentencePieceProcessor(model_file="m30k.model")
for name in ("train.en", "train.de", "val.en", "val.de"):
    with open(f"{captions}/{name}", encoding="utf-8", newline="\\n") as lines, open(name, "w") as file:
        file.writelines(" ".join(model.encode(line.strip(), out_type=str)) + "\\n" for line in lines)
"""
LOOPS = Path(__file__).with_name("peer_loops.py")
Measurement = tuple[float, float]
"""Target tokens per second, and peak resident megabytes of the process."""


def mt_config(precision: str) -> Config:
    """Config of the model; the run is stopped before its end."""
    model = {"d_model": 256, "d_ff": 1024, "num_heads": 4, "dropout": 0.1}
    training = {"max_steps": 100_000, "batch_tokens": 4096, "precision": precision, "log_every_steps": 1}
    training |= {"validate_every_steps": 1_000_000, "learning_rate": 5e-4}
    return parse_config(common.config_tree("speed", model=model, training=training), "train_speed")


def measure(command: list[object], folder: Path, rates: Callable[[str], list[float]], needed: int) -> Measurement:
    """Run a command until its log gives enough rates."""
    peaks = [0]

    def is_done(log: str, pid: int) -> bool:
        peaks.append(common.memory_of_process(pid).get("VmHWM", 0))
        return len(rates(log)) >= needed

    log = common.run_until(is_done, command, folder)
    if not rates(log):
        sys.exit(log)
    return statistics.median(rates(log)), max(peaks) / 1e6


def measure_mt(folder: Path, steps: int, precision: str) -> Measurement:
    run = folder / "runs" / "speed"
    shutil.rmtree(run, ignore_errors=True)
    (folder / "mt.yaml").write_text(mt_config(precision).to_yaml(), encoding="utf-8")

    def rates(log: str) -> list[float]:
        rows = (run / "metrics.jsonl").read_text(encoding="utf-8") if (run / "metrics.jsonl").exists() else ""
        return [float(rate) for rate in re.findall(r'"train/tokens_per_second": ([\d.]+)', rows)][3:]

    return measure([*common.MT, "train", "--config", "mt.yaml"], folder, rates, max(1, steps - 3))


def measure_by_log(command: list[object], folder: Path, steps: int, pattern: str) -> Measurement:
    """Train with a peer that logs its speed every ten steps."""
    return measure(command, folder, lambda log: [float(r) for r in re.findall(pattern, log)][1:], max(2, steps // 10))


def measure_loop(folder: Path, python: str, *arguments: str) -> Measurement:
    pattern = r'"target_tokens_per_second": ([\d.]+)'
    command = [python, LOOPS, folder / "batches.pt", *arguments]
    return measure(command, folder, lambda log: [float(rate) for rate in re.findall(pattern, log)], 1)


def joeynmt_command(folder: Path, python: str) -> list[object]:
    """Command of JoeyNMT, whose config is written."""
    tree = yaml.safe_load((common.SHARED / "benchmarks/joeynmt_multi30k_en_de.yaml").read_text(encoding="utf-8"))
    for key, name in (("train", "train"), ("dev", "val"), ("test", "test_2016_flickr")):
        tree["data"][key] = str(common.CAPTIONS / name)
    tree["model_dir"] = str(folder / "joey-model")
    (folder / "joey.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return [python, "-m", "joeynmt", "train", "joey.yaml", "--skip-test"]


def eole_command(folder: Path, python: str, precision: str) -> list[object]:
    """Command of Eole, whose config and vocabulary are written."""
    program, config = str(Path(python).with_name("eole")), f"eole-{precision}.yaml"
    tree = yaml.safe_load((common.SHARED / "benchmarks/eole_multi30k_en_de.yaml").read_text(encoding="utf-8"))
    tree["training"] |= {"compute_dtype": precision, "train_steps": 100_000}
    (folder / config).write_text(yaml.safe_dump(tree), encoding="utf-8")
    if not (folder / "run" / "v.src").exists():
        subprocess.run([program, "build_vocab", "-c", config, "-n_sample", "-1"], cwd=folder, check=True)
    return [program, "train", "-c", config]


def write_batches(folder: Path, number: int) -> None:
    """Write batches of padded ids for the loops."""
    config = mt_config("fp32")
    data = prepare(config, Cache(folder / "runs" / ".cache"))
    batches = islice(common.padded_batches(training_pairs(data, config), 4096, 1), number)
    torch.save([batch for batch, _ in batches], folder / "batches.pt")


def systems(folder: Path, options: Namespace) -> dict[str, Callable[[], Measurement]]:
    """Measurements of `mt` and of the peers that are given."""
    steps = options.steps
    by_name = {f"mt {precision}": partial(measure_mt, folder, steps, precision) for precision in ("bf16", "fp32")}
    by_name["tutorial loop fp32"] = partial(measure_loop, folder, sys.executable, "tutorial")
    if options.marian:
        for precision in ("fp32", "bf16"):
            by_name[f"Marian {precision}"] = partial(measure_loop, folder, options.marian, "marian", precision)
    if options.joeynmt:
        if not (folder / "m30k.model").exists():
            subprocess.run([options.joeynmt, "-c", PIECES, common.CAPTIONS], cwd=folder, check=True)
        command, pattern = joeynmt_command(folder, options.joeynmt), r"Tokens per Sec:\s+([\d.]+)"
        by_name["JoeyNMT fp32"] = partial(measure_by_log, command, folder, steps, pattern)
    if options.joeynmt and options.eole:
        for precision in ("fp32", "bf16"):
            command, pattern = eole_command(folder, options.eole, precision), r"\d+/\s*(\d+) tok/s"
            by_name[f"Eole {precision}"] = partial(measure_by_log, command, folder, steps, pattern)
    return by_name


def matrix_peak() -> float:
    """FLOP/s of large products in bf16; the share of it that training reaches is the model FLOP utilisation."""
    a, b = (torch.randn(2048, 2048).to(torch.bfloat16) for _ in range(2))
    return 2 * 2048**3 / min(common.seconds_of(lambda: a @ b) for _ in range(6))


def main() -> None:
    peers = dict.fromkeys(("joeynmt", "eole", "marian"))
    options = common.read_options(__doc__, **peers, rounds=3, steps=40, work=common.WORK)
    for name in filter(partial(getattr, options), peers):
        setattr(options, name, str(Path(getattr(options, name)).absolute()))
    folder = options.work.resolve() / "train"
    folder.mkdir(parents=True, exist_ok=True)
    write_batches(folder, options.steps)
    results = common.measure_in_turn({"products": matrix_peak} | systems(folder, options), options.rounds)
    peak = statistics.median(results.pop("products"))
    speeds = {name: statistics.median(rate for rate, _ in measured) for name, measured in results.items()}
    share = speeds["mt bf16"] * FLOP_PER_TARGET_TOKEN / peak
    print(json.dumps({"bf16_peak_gflops": round(peak / 1e9), "share_of_peak": round(share, 3)}))
    common.print_titles("system", "target tokens per second", "mt bf16 against it", "memory")
    for name, rate in speeds.items():
        megabytes = statistics.median(megabytes for _, megabytes in results[name])
        common.print_row(name, f"{rate:,.0f}", f"{speeds['mt bf16'] / rate:.2f} times", f"{megabytes:,.0f} MB")


if __name__ == "__main__":
    main()
