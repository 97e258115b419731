"""BLEU and chrF of `mt` and of Marian after the same minutes of training on a few thousand pairs, as a table.

    python tests/benchmarks/marian_quality.py --marian marian/bin/python --output marian --minutes 20 \
        --data train.jsonl dev.jsonl --data other/train.jsonl other/dev.jsonl

The files have lines such as `{"translation": {"en": ..., "yor": ...}}`; each pair of languages is trained in both
directions, on one core each. `mt` trains as `mt init` says, for at most these minutes. Marian (`pip install pymarian`
in an environment of its own) has the recipe of the Masakhane project for African languages (Nekoto et al. 2020,
"Participatory Research for Low-resourced Machine Translation", its JoeyNMT config): 6+6 layers, d_model 256, d_ff
1,024, 4 heads, 4,000 joint subwords, dropout 0.3, label smoothing 0.1, learning rate 0.0003 after 1,000 updates; but
batches of 1,024 tokens, not 4,096, since it does few updates in this time on a CPU. `--marian-set enc-depth=4` and the
like change it. Both choose the checkpoint by the second file of a pair, Marian by its cross-entropy, which is faster,
and translate it, Marian with beam 5. The time does not include that last translation.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sacrebleu.metrics import BLEU, CHRF

MARIAN = "import sys, pymarian; pymarian._pymarian.main(sys.argv[1:])"
DECODER = """
import sys, pymarian
translator = pymarian.Translator(sys.argv[1])
print(translator.translate(sys.stdin.read().rstrip("\\n")))
"""
RECIPE = {
    "type": "transformer",
    "enc-depth": 6,
    "dec-depth": 6,
    "dim-emb": 256,
    "transformer-dim-ffn": 1024,
    "transformer-heads": 4,
    "transformer-dropout": 0.3,
    "label-smoothing": 0.1,
    "learn-rate": 0.0003,
    "lr-warmup": 1000,
    "optimizer-params": "0.9 0.98 1e-09",
    "clip-norm": 1,
    "exponential-smoothing": 0.0001,
    "mini-batch-words": 1024,
    "max-length": 200,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marian", required=True, help="the Python of an environment with pymarian")
    parser.add_argument("--output", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--data", type=Path, nargs=2, action="append", required=True, metavar=("TRAIN", "VALID"))
    parser.add_argument("--core", type=int, default=0, help="the core that all of it runs on")
    parser.add_argument("--tools", nargs="+", choices=("mt", "marian"), default=["mt", "marian"])
    parser.add_argument("--marian-set", action="append", default=[], metavar="KEY=VALUE", help="another value")
    parser.add_argument("--mt-set", action="append", default=[], metavar="KEY=VALUE", help="as --set of mt train")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    print("| direction | tool | updates | BLEU | chrF | characters, of the references |\n|---|---|---|---|---|---|")
    for train, valid in arguments.data:
        languages = list(json.loads(train.open(encoding="utf-8").readline())["translation"])
        for source, target in (languages, languages[::-1]):
            folder = (arguments.output / f"{source}-{target}").resolve()
            folder.mkdir(parents=True, exist_ok=True)
            for path in (train, valid):
                write_sides(path, folder, "train" if path == train else "dev", (source, target))
            references = lines(folder / f"dev.{target}")
            for tool in arguments.tools:
                trained = mt if tool == "mt" else marian
                num_updates, hypotheses = trained(arguments, folder, source, target)
                cells = f"{source} to {target} | {tool} | {num_updates:,} | {scores(hypotheses, references)}"
                print(f"| {cells} |", flush=True)


def write_sides(path: Path, folder: Path, name: str, languages: tuple[str, str]) -> None:
    """Write a file of a line a sentence for each language."""
    rows = [json.loads(line)["translation"] for line in path.read_text(encoding="utf-8").split("\n") if line]
    for language in languages:
        sentences = [" ".join(row[language].split()) for row in rows]
        (folder / f"{name}.{language}").write_text("".join(f"{each}\n" for each in sentences), encoding="utf-8")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]


def scores(hypotheses: list[str], references: list[str]) -> str:
    """The cells of a row."""
    bleu, chrf = (metric.corpus_score(hypotheses, [references]).score for metric in (BLEU(), CHRF()))
    return f"{bleu:.2f} | {chrf:.2f} | {len(''.join(hypotheses)) / len(''.join(references)):.2f}"


def mt(arguments: argparse.Namespace, folder: Path, source: str, target: str) -> tuple[int, list[str]]:
    """Train with `mt`; return the number of updates and the translations of the validation set."""
    command = [sys.executable, "-m", "mt_cli"]
    config = folder / "mt.yaml"
    files = [f"train.{source}", f"train.{target}"]
    options = ["--source-language", source, "--target-language", target, "--output", str(config)]
    subprocess.run([*command, "init", "--files", *files, *options], cwd=folder, check=True, capture_output=True)
    values = {"name": "mt", "training.max_minutes": arguments.minutes, "training.num_threads": 1}
    given = [f"{key}={value}" for key, value in values.items()] + arguments.mt_set
    with open(folder / "mt.log", "w", encoding="utf-8") as log:
        settings = [part for each in given for part in ("--set", each)]
        training = [*command, "train", "--config", str(config), *settings]
        subprocess.run(training, cwd=folder, stdout=log, stderr=log, check=True)
    report = json.loads((folder / "runs" / "mt" / "report.json").read_text(encoding="utf-8"))
    return report["num_steps"], lines(folder / "runs" / "mt" / "hypotheses" / "valid.txt")


def marian(arguments: argparse.Namespace, folder: Path, source: str, target: str) -> tuple[int, list[str]]:
    """Train with Marian; return the number of updates and the translations of the validation set."""
    vocabulary = str(folder / "marian" / "joint.spm")
    num_updates, model = train_marian(arguments, folder, (source, target), vocabulary)
    options = f"--models {model} --vocabs {vocabulary} {vocabulary} --beam-size 5 --normalize 1 --cpu-threads 1"
    text = (folder / f"dev.{source}").read_bytes()
    decoding = [arguments.marian, "-c", DECODER, options]
    translated = subprocess.run(decoding, input=text, capture_output=True, check=True)
    return num_updates, translated.stdout.decode().split("\n")[:-1]


def train_marian(
    arguments: argparse.Namespace, folder: Path, sides: tuple[str, str], vocabulary: str
) -> tuple[int, Path]:
    """Train with Marian for the minutes of the command line; return the number of updates and the best model."""
    model = folder / "marian" / "model.npz"
    model.parent.mkdir()
    options = RECIPE | {
        "model": model,
        "train-sets": " ".join(f"train.{side}" for side in sides),
        "vocabs": f"{vocabulary} {vocabulary}",
        "dim-vocabs": "4000 4000",
        "valid-sets": " ".join(f"dev.{side}" for side in sides),
        "valid-metrics": "ce-mean-words",
        "valid-freq": "200u",
        "save-freq": "1000u",
        "disp-freq": "20u",
        "early-stopping": 0,
        "valid-mini-batch": 32,
        "cpu-threads": 1,
        "workspace": 2000,
        "seed": 1,
    }
    options |= dict(each.split("=", 1) for each in arguments.marian_set)
    command = [arguments.marian, "-c", MARIAN, "train", "--tied-embeddings-all", "--keep-best", "--overwrite"]
    command += [part for key, value in options.items() for part in (f"--{key}", *str(value).split(" "))]
    log = folder / "marian.log"
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        started_at = None
        while process.poll() is None:
            if started_at is None and "Training started" in log.read_text(errors="replace"):
                started_at = time.time()
            if started_at is not None and time.time() > started_at + 60 * arguments.minutes:
                process.send_signal(signal.SIGTERM)
                process.wait(300)
            time.sleep(0.5)
    shown = [line.split("Up. ")[1].split(" ")[0] for line in lines(log) if "Up. " in line]
    best = Path(f"{model}.best-ce-mean-words.npz")
    chosen = best if best.exists() else model
    if not chosen.exists():
        sys.exit(f"Marian saved no model; see {log}")
    return int(shown[-1].replace(",", "")), chosen


if __name__ == "__main__":
    main()
