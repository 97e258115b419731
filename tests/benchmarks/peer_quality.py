"""BLEU and chrF of `mt`, Marian and JoeyNMT after the same minutes of training on one core, as a table.

    python tests/benchmarks/peer_quality.py --marian marian/bin/python --minutes 7 --output lafand \
        --data ../shared/data/lafand/en-yor ../shared/data/lafand/en-hau
    python tests/benchmarks/peer_quality.py --joeynmt joey/bin/python --minutes 15 30 60 --output captions \
        --data ../shared/data/multi30k --languages en de --test test_2016_flickr

A folder of data has train.jsonl and dev.jsonl, with lines such as `{"translation": {"en": ..., "yor": ...}}`, for both
directions, or train.* and val.* in both `--languages`, for that direction; `--test NAME` translates NAME.* too.

`mt` trains as `mt init` says, for at most these minutes. Marian (`pip install pymarian`) has the recipe of the
Masakhane project for African languages (Nekoto et al. 2020, "Participatory Research for Low-resourced Machine
Translation"): 6+6 layers, d_model 256, d_ff 1,024, 4 heads, 4,000 joint subwords, dropout 0.3, learning rate 0.0003
after 1,000 updates. JoeyNMT has the recipe of the best published small Transformer for captions ("Transformer-Tiny" in
Wu et al. 2021, "Good for Misconceived Reasons"): 4+4 layers, d_model 128, d_ff 256, 4 heads, 10,000 joint subwords,
dropout 0.3, and the mean of the checkpoints of the last fifth of the time. Both have batches of 1,024 tokens, because
they do few updates in this time on a CPU. `--mt-set` and `--marian-set` change values, such as `enc-depth=4`.

Time is counted from the first update and includes validations; the translation of the sets, with beam 5 by the peers,
is not counted. `train_speed.py` says what JoeyNMT needs.
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

MARIAN = "import sys, pymarian; pymarian._pymarian.main(sys.argv[1:])"
MARIAN_DECODER = """
import sys, pymarian
print(pymarian.Translator(sys.argv[1]).translate(sys.stdin.read().rstrip("\\n")))
"""
MARIAN_RECIPE = """
{type: transformer, enc-depth: 6, dec-depth: 6, dim-emb: 256, transformer-dim-ffn: 1024, transformer-heads: 4,
 transformer-dropout: 0.3, tied-embeddings-all: true, dim-vocabs: [4000, 4000], max-length: 200, seed: 1,
 label-smoothing: 0.1, learn-rate: 0.0003, lr-warmup: 1000, optimizer-params: [0.9, 0.98, 1.0e-9], clip-norm: 1,
 exponential-smoothing: 0.0001, mini-batch-words: 1024, valid-metrics: [ce-mean-words], valid-freq: 200u,
 valid-mini-batch: 32, save-freq: 1000u, disp-freq: 20u, early-stopping: 0, keep-best: true, overwrite: true,
 cpu-threads: 1, workspace: 2000}
"""
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


def copy_sides(data: Path, folder: Path, languages: tuple[str, str], splits: dict[str, str]) -> None:
    """Write the line-aligned files of a direction, named by set and language; `splits` are names in the data."""
    folder.mkdir(parents=True)
    for split, name in splits.items():
        for language in languages:
            path = folder / f"{split}.{language}"
            if (data / f"{name}.{language}").exists():
                shutil.copy(data / f"{name}.{language}", path)
                continue
            rows = [json.loads(line)["translation"] for line in common.read_lines(data / f"{name}.jsonl")]
            path.write_text("".join(" ".join(row[language].split()) + "\n" for row in rows), encoding="utf-8")


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


def train_marian(options: Namespace, folder: Path, source: str, target: str, splits: list[str]) -> Scored:
    """Train with Marian, a run for each number of minutes; its best checkpoint by cross-entropy translates."""
    for minutes in options.minutes:
        model = folder / f"marian-{minutes:g}" / "model.npz"
        model.parent.mkdir()
        vocabulary, config = str(model.with_name("joint.spm")), model.with_name("config.yaml")
        values = yaml.safe_load(MARIAN_RECIPE) | {"model": str(model), "vocabs": [vocabulary, vocabulary]}
        for key, split in (("train", "train"), ("valid", "val")):
            values[f"{key}-sets"] = [f"{split}.{source}", f"{split}.{target}"]
        values |= {key: yaml.safe_load(value) for key, _, value in (text.partition("=") for text in options.marian_set)}
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        command = [options.marian, "-c", MARIAN, "train", "--config", config]
        log, _ = train_for(minutes, "Training started", command, folder)
        best = Path(f"{model}.best-ce-mean-words.npz")
        files = f"--models {best if best.exists() else model} --vocabs {vocabulary} {vocabulary}"
        decoder = [options.marian, "-c", MARIAN_DECODER, f"{files} --beam-size 5 --normalize 1 --cpu-threads 1"]
        hypotheses = {}
        for split in splits:
            text = (folder / f"{split}.{source}").read_bytes()
            output = subprocess.run(decoder, input=text, capture_output=True, check=True).stdout
            hypotheses[split] = output.decode().split("\n")[:-1]
        yield minutes, log.rpartition("Up. ")[2].split(" ")[0], hypotheses


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


TOOLS = {"mt": train_mt, "marian": train_marian, "joeynmt": train_joeynmt}


def main() -> None:
    """Print a row for each direction, tool, time and set."""
    texts = {"data": [], "languages": [], "test": None, "output": Path}
    values = {"minutes": [20.0], "core": 0, "mt_set": [], "marian_set": []}
    tools = {"tools": list(TOOLS), "marian": None, "joeynmt": None}
    options = common.read_options(__doc__, record=True, **texts, **tools, **values)
    common.resolve_peers(options, "marian", "joeynmt")
    options.tools = [tool for tool in options.tools if tool == "mt" or getattr(options, tool)]
    os.sched_setaffinity(0, {options.core})
    common.print_titles(
        "direction", "tool", "minutes", "updates", "set", "BLEU lc", "BLEU", "chrF", "length, of references"
    )
    for data in map(Path, options.data):
        is_jsonl = (data / "train.jsonl").exists()
        splits = {"train": "train", "val": "dev" if is_jsonl else "val"}
        splits |= {"test": options.test} if options.test else {}
        languages = options.languages or list(json.loads(common.read_lines(data / "train.jsonl")[0])["translation"])
        for source, target in (languages, languages[::-1]) if is_jsonl else (languages,):
            for tool in options.tools:
                folder = (options.output / f"{source}-{target}" / tool).resolve()
                copy_sides(data, folder, (source, target), splits)
                for minutes, updates, translations in TOOLS[tool](options, folder, source, target, list(splits)[1:]):
                    for split, hypotheses in translations.items():
                        references = common.read_lines(folder / f"{split}.{target}")
                        metrics = (BLEU(lowercase=True), BLEU(), CHRF())
                        scores = [metric.corpus_score(hypotheses, [references]).score for metric in metrics]
                        length = len("".join(hypotheses)) / len("".join(references))
                        cells = (f"{source} to {target}", tool, f"{minutes:g}", updates, splits[split])
                        common.print_row(*cells, *(f"{number:.2f}" for number in (*scores, length)))
                        if options.record and (tool, minutes, split) == ("joeynmt", 60, "test"):
                            record("joeynmt_hour_bleu_lc", scores[0])


if __name__ == "__main__":
    main()
