"""BLEU and chrF of `mt` and JoeyNMT after the same minutes of training on one core, as a table.

    python tests/benchmarks/peer_quality.py --joeynmt joey/bin/python --minutes 15 30 60 --output captions \\
        --data ../shared/data/multi30k --languages en de --test test_2016_flickr

The folder of data has train.* and val.* in both `--languages`; `--test NAME` translates NAME.* too.

`mt` trains as `mt init` says, for at most these minutes; `--mt-set` changes values. JoeyNMT has the recipe of the best
published small Transformer for captions ("Transformer-Tiny" in Wu et al. 2021, "Good for Misconceived Reasons"): 4+4
layers, d_model 128, d_ff 256, 4 heads, 10,000 joint subwords, dropout 0.3, and the mean of the checkpoints of the last
fifth of the time. Its batches have 1,024 tokens, because it does few updates in this time on a CPU.

Time is counted from the first update and includes validations; the translation of the sets, with beam 5 by JoeyNMT, is
not counted. `train_speed.py` says what JoeyNMT needs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import common
import yaml
from figures import record
from sacrebleu.metrics import BLEU, CHRF

SENTENCEPIECE = """
import sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(input=sys.argv[1:], model_prefix="pieces", vocab_size=10000,
    model_type="bpe", character_coverage=1.0, unk_id=0, pad_id=1, bos_id=2, eos_id=3)
pieces = [line.split("\\t")[0] for line in open("pieces.vocab", encoding="utf-8")]
open("pieces.txt", "w", encoding="utf-8").write("\\n".join(pieces) + "\\n")
"""
AVERAGE = """
import sys, torch
states = [torch.load(path, map_location="cpu", weights_only=False) for path in sys.argv[2:]]
for name, weight in states[0]["model_state"].items():
    if weight.is_floating_point():
        states[0]["model_state"][name] = sum(state["model_state"][name] for state in states) / len(states)
torch.save(states[0], sys.argv[1])
"""
Scored = Iterator[tuple[float, object, dict[str, list[str]]]]
"""Minutes, number of updates, and translations by set."""


def copy_sides(data: Path, folder: Path, languages: list[str], splits: dict[str, str]) -> None:
    """Copy the line-aligned files, named by set and language; `splits` are names in the data."""
    folder.mkdir(parents=True)
    for split, name in splits.items():
        for language in languages:
            shutil.copy(data / f"{name}.{language}", folder / f"{split}.{language}")


def train_for(minutes: float, beginning: str, command: list[object], folder: Path) -> tuple[str, float]:
    """Run a command for some minutes after its log has `beginning`; return its log and the time of that."""
    started_at: list[float] = []

    def is_done(log: str, pid: int) -> bool:
        if not started_at and beginning in log:
            started_at.append(time.time())
        return bool(started_at) and time.time() > started_at[0] + 60 * minutes

    log = common.run_until(is_done, command, folder, seconds_between=1)
    if not started_at:
        sys.exit(log)
    return log, started_at[0]


def train_mt(options: Namespace, folder: Path, source: str, target: str, splits: list[str]) -> Scored:
    """Train with `mt`, a run for each number of minutes."""
    languages = ["--source-language", source, "--target-language", target]
    common.run_mt(folder, "init", "--files", f"train.{source}", f"train.{target}", *languages, "--output", "mt.yaml")
    changes = [part for value in options.mt_set for part in ("--set", value)]
    for minutes in options.minutes:
        run = folder / "runs" / f"mt-{minutes:g}"
        values = {"name": run.name, "training.max_minutes": minutes, "training.num_threads": 1}
        common.run_mt(folder, "train", "--config", "mt.yaml", *common.settings(values), *changes)
        for split in splits:
            common.run_mt(folder, "translate", "--run", run, "--input", f"{split}.{source}", "--output", run / split)
        report = json.loads((run / "report.json").read_text(encoding="utf-8"))
        yield minutes, report["num_steps"], {split: common.read_lines(run / split) for split in splits}


def joeynmt_config(folder: Path, source: str, target: str, test: str) -> dict:
    """Config of JoeyNMT; without a test set, it tests the validation set."""
    config = yaml.safe_load((common.SHARED / "benchmarks/joeynmt_multi30k_en_de.yaml").read_text(encoding="utf-8"))
    data, training = config["data"], config["training"]
    config["model_dir"] = str(folder / "model")
    data.update({key: str(folder / name) for key, name in (("train", "train"), ("dev", "val"), ("test", test))})
    data["sample_dev_subset"] = 100  # Greedy search is slow, above all in the beginning.
    for side, language in (("src", source), ("trg", target)):
        data[side] |= {"lang": language, "voc_file": str(folder / "pieces.txt")}
        data[side]["tokenizer_cfg"] |= {"model_file": str(folder / "pieces.model"), "model_type": "bpe"}
    training |= {"epochs": 1000, "learning_rate": 1e-3, "keep_best_ckpts": -1, "logging_freq": 10, "batch_size": 1024}
    training |= {"validation_freq": 200, "early_stopping_metric": "loss", "learning_rate_warmup": 500}
    config["testing"] |= {"beam_size": 5, "beam_alpha": 1.0, "batch_size": 4096}
    for side in ("encoder", "decoder"):
        sizes = {"num_layers": 4, "num_heads": 4, "hidden_size": 128, "ff_size": 256, "dropout": 0.3}
        config["model"][side] |= {**sizes, "embeddings": {"embedding_dim": 128, "scale": True, "dropout": 0.0}}
    return config


def train_joeynmt(options: Namespace, folder: Path, source: str, target: str, splits: list[str]) -> Scored:
    """Train one run with JoeyNMT; at each number of minutes, the mean of late checkpoints translates."""
    sides = [f"train.{language}" for language in (source, target)]
    subprocess.run([options.joeynmt, "-c", SENTENCEPIECE, *sides], cwd=folder, check=True, capture_output=True)
    config, path = joeynmt_config(folder, source, target, splits[-1]), folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    joeynmt = [options.joeynmt, "-W", "ignore", "-m", "joeynmt"]
    _, started_at = train_for(max(options.minutes), "EPOCH 1", [*joeynmt, "train", path, "--skip-test"], folder)
    checkpoints = sorted((folder / "model").glob("[0-9]*.ckpt"), key=lambda checkpoint: int(checkpoint.stem))
    del config["data"]["sample_dev_subset"]
    for minutes in options.minutes:
        ages = {checkpoint: (checkpoint.stat().st_mtime - started_at) / 60 for checkpoint in checkpoints}
        in_time = [checkpoint for checkpoint, age in ages.items() if age <= minutes]
        if not in_time:
            print(f"JoeyNMT: no checkpoint after {minutes:g} minutes", file=sys.stderr)
            continue
        late = [checkpoint for checkpoint in in_time if ages[checkpoint] > 0.8 * minutes] or in_time[-1:]
        averaged, output = folder / f"{minutes:g}.ckpt", folder / f"{minutes:g}"
        subprocess.run([options.joeynmt, "-c", AVERAGE, averaged, *late], check=True)
        config["testing"]["load_model"] = str(averaged)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        subprocess.run([*joeynmt, "test", path, "-o", output], check=True, capture_output=True)
        files = {split: Path(f"{output}.{'dev' if split == 'val' else split}") for split in splits}
        yield minutes, in_time[-1].stem, {split: common.read_lines(file) for split, file in files.items()}


TOOLS = {"mt": train_mt, "joeynmt": train_joeynmt}


def main() -> None:
    """Print a row for each tool, time and set."""
    texts = {"data": Path, "languages": [], "test": None, "output": Path}
    values = {"tools": list(TOOLS), "joeynmt": None, "minutes": [20.0], "core": 0, "mt_set": []}
    options = common.read_options(__doc__, record=True, **texts, **values)
    common.resolve_peers(options, "joeynmt")
    os.sched_setaffinity(0, {options.core})
    common.print_titles("tool", "minutes", "updates", "set", "BLEU lc", "BLEU", "chrF", "length, of references")
    splits = {name: name for name in ("train", "val")} | ({"test": options.test} if options.test else {})
    source, target = options.languages
    for tool in [tool for tool in options.tools if tool == "mt" or options.joeynmt]:
        folder = (options.output / f"{source}-{target}" / tool).resolve()
        copy_sides(options.data, folder, options.languages, splits)
        for minutes, updates, translations in TOOLS[tool](options, folder, source, target, list(splits)[1:]):
            for split, hypotheses in translations.items():
                references = common.read_lines(folder / f"{split}.{target}")
                metrics = (BLEU(lowercase=True), BLEU(), CHRF())
                scores = [metric.corpus_score(hypotheses, [references]).score for metric in metrics]
                length = len("".join(hypotheses)) / len("".join(references))
                cells = (tool, f"{minutes:g}", updates, splits[split])
                common.print_row(*cells, *(f"{number:.2f}" for number in (*scores, length)))
                if options.record and (tool, minutes, split) == ("joeynmt", 60, "test"):
                    record("joeynmt_hour_bleu_lc", scores[0])


if __name__ == "__main__":
    main()
