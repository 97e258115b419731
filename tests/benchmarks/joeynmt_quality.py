"""BLEU of JoeyNMT after some minutes of training on the captions, with its own recipe and a model as small as ours.

    python tests/benchmarks/joeynmt_quality.py --joeynmt joey/bin/python --output joeynmt --minutes 15 30 60

The recipe is that of the best published small Transformer for these captions ("Transformer-Tiny" in Wu et al. 2021,
"Good for Misconceived Reasons"): 4+4 layers, d_model 128, d_ff 256, 4 heads, 10,000 joint subwords, dropout 0.3, label
smoothing 0.1, and the mean of checkpoints. Its batches are small by default, since JoeyNMT does few updates
in this time on a CPU. One run trains to the last limit with an inverse square root schedule. At each limit, the mean of
the checkpoints of the last fifth of the time, one every `--every` updates, translates both sets with beam 5. Time
is counted from the first update and includes validations, which translate 100 sentences. See `train_speed.py` for the
environment.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import yaml
from figures import add_option, record
from numbered_pairs import CAPTIONS
from recipes import both_scores

SHARED = CAPTIONS.parents[1] / "benchmarks"
SHARE_AVERAGED = 0.2
SENTENCEPIECE = """
import sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(input=sys.argv[2:], model_prefix=sys.argv[1], vocab_size=10000,
    model_type="bpe", character_coverage=1.0, unk_id=0, pad_id=1, bos_id=2, eos_id=3)
pieces = [line.split("\\t")[0] for line in open(sys.argv[1] + ".vocab", encoding="utf-8")]
open(sys.argv[1] + ".pieces", "w", encoding="utf-8").write("\\n".join(pieces) + "\\n")
"""
AVERAGE = """
import sys, torch
states = [torch.load(path, map_location="cpu", weights_only=False) for path in sys.argv[2:]]
for name, weight in states[0]["model_state"].items():
    if weight.is_floating_point():
        states[0]["model_state"][name] = sum(state["model_state"][name] for state in states) / len(states)
torch.save(states[0], sys.argv[1])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--joeynmt", required=True, help="the Python of an environment with JoeyNMT")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, nargs="+", default=[15, 30, 60])
    parser.add_argument("--target", default="de")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--warmup-steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=200, help="updates between checkpoints")
    parser.add_argument("--test", default="test_2016_flickr")
    add_option(parser)
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True)
    python = [str(Path(arguments.joeynmt).absolute())]
    train = [str(CAPTIONS / f"train.{language}") for language in ("en", arguments.target)]
    subprocess.run([*python, "-c", SENTENCEPIECE, str(folder / "m30k"), *train], check=True, capture_output=True)
    config, settings = folder / "config.yaml", recipe(arguments, folder)
    subset = settings["data"] | {"sample_dev_subset": 100}  # Its greedy search is slow, above all in the beginning.
    config.write_text(yaml.safe_dump({**settings, "data": subset}), encoding="utf-8")
    checkpoints = trained(
        [*python, "-m", "joeynmt", "train", str(config), "--skip-test"], folder, max(arguments.minutes)
    )
    scores = " | ".join(f"BLEU lc `{name}` | cased" for name in ("val", arguments.test))
    print(f"| minutes | updates | checkpoints averaged | {scores} |")
    print("|---|---|---|---|---|---|---|")
    for minutes in arguments.minutes:
        known = [path for path, seconds in checkpoints if seconds <= 60 * minutes]
        if not known:
            print(f"| {minutes:g} | no checkpoint yet | | | | | |", flush=True)
            continue
        averaged = folder / f"{minutes:g}.ckpt"
        beginning = 60 * minutes * (1 - SHARE_AVERAGED)
        late = [path for path, seconds in checkpoints if beginning < seconds <= 60 * minutes] or known[-1:]
        subprocess.run([*python, "-c", AVERAGE, str(averaged), *map(str, late)], check=True)
        tested = {**settings, "testing": settings["testing"] | {"load_model": str(averaged)}}
        config.write_text(yaml.safe_dump(tested), encoding="utf-8")
        hypotheses = folder / f"{minutes:g}.{arguments.target}"
        options = [str(config), "-o", str(hypotheses)]
        subprocess.run([*python, "-m", "joeynmt", "test", *options], check=True, capture_output=True)
        pairs = [
            both_scores(Path(f"{hypotheses}.{suffix}"), CAPTIONS / f"{name}.{arguments.target}")
            for name, suffix in (("val", "dev"), (arguments.test, "test"))
        ]
        shown = " | ".join(f"{score:.2f}" for pair in pairs for score in pair)
        if arguments.record and minutes == 60:
            record("joeynmt_hour_bleu_lc", pairs[1][0])
        print(f"| {minutes:g} | {known[-1].stem} | {len(late)} | {shown} |", flush=True)


def recipe(arguments: argparse.Namespace, folder: Path) -> dict:
    """The config of JoeyNMT."""
    config = yaml.safe_load((SHARED / "joeynmt_multi30k_en_de.yaml").read_text(encoding="utf-8"))
    data, training = config["data"], config["training"]
    config["model_dir"] = str(folder / "model")
    data.update(
        {key: str(CAPTIONS / name) for key, name in (("train", "train"), ("dev", "val"), ("test", arguments.test))}
    )
    for side, language in (("src", "en"), ("trg", arguments.target)):
        data[side] |= {"lang": language, "voc_file": str(folder / "m30k.pieces")}
        data[side]["tokenizer_cfg"] |= {"model_file": str(folder / "m30k.model"), "model_type": "bpe"}
    training |= {"epochs": 1000, "learning_rate": arguments.learning_rate, "keep_best_ckpts": -1, "logging_freq": 10}
    training |= {"validation_freq": arguments.every, "early_stopping_metric": "loss"}
    training |= {"batch_size": arguments.batch_tokens, "learning_rate_warmup": arguments.warmup_steps}
    config["testing"] |= {"beam_size": 5, "beam_alpha": 1.0, "batch_size": 4096}
    for side in ("encoder", "decoder"):
        sizes = {"num_layers": 4, "num_heads": 4, "hidden_size": 128, "ff_size": 256, "dropout": 0.3}
        embeddings = {"embedding_dim": 128, "scale": True, "dropout": 0.0}
        config["model"][side] |= {**sizes, "embeddings": embeddings}
    return config


def trained(command: list[str], folder: Path, minutes: float) -> list[tuple[Path, float]]:
    """Train for some minutes; return each checkpoint with the seconds from the first update to it."""
    log = folder / "train.log"
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "PYTHONWARNINGS": "ignore"}
        )
        started_at = None
        while process.poll() is None:
            if started_at is None and "EPOCH 1" in log.read_text(errors="replace"):
                started_at = time.time()
            if started_at is not None and time.time() > started_at + 60 * minutes:
                process.kill()
            time.sleep(0.2)
    if started_at is None:
        sys.exit(f"JoeyNMT did not start; see {log}")
    paths = sorted((folder / "model").glob("[0-9]*.ckpt"), key=lambda path: int(path.stem))
    return [(path, path.stat().st_mtime - started_at) for path in paths]


if __name__ == "__main__":
    main()
