"""Quality of the fast path compared with plain PyTorch in fp32: the same runs over several seeds.

Plain means `F.dropout`, `F.scaled_dot_product_attention`, all logits at once with `F.cross_entropy`, rows taken by
indexing, and fp32 throughout. Trains on the captions for ten epochs and prints the training and validation loss of
every epoch, and BLEU on the test set.

    python tests/benchmarks/equivalence.py --seeds 1 2 3
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from numbered_pairs import caption_files

from mt_cli.config.loading import parse_config
from mt_cli.run.train import train


def be_plain() -> None:
    """Replace every fast operation by plain PyTorch."""
    import torch.nn.functional as F

    from mt_cli.model import attention, positions, transformer
    from mt_cli.training import objective

    def attend(query, key, value, bias, dropout=0.0, is_causal=False):
        return F.scaled_dot_product_attention(query, key, value, bias, dropout)

    def loss(hidden, weight, targets, num_tokens, smoothing, workspace, consistency, bias):
        assert consistency is None
        sums = objective.smoothed_cross_entropy(hidden[:num_tokens], weight, targets[:num_tokens], smoothing, bias)
        return sums.objective, sums.cross_entropy, sums.num_correct

    attention.attend = attend
    transformer.drop = positions.drop = lambda x, rate: F.dropout(x, rate)
    transformer.add_dropped = lambda x, y, rate: x + F.dropout(y, rate)
    attention.take_rows = lambda x, rows, slots: x[rows]
    objective.fused_loss = loss


def run(kind: str, seed: int, epochs: int, threads: int, folder: Path) -> None:
    tree = {
        "name": f"{kind}-{seed}",
        "corpus": {"source": "en", "target": "de", "train": caption_files("train"), "valid": caption_files("val")}
        | {"test": caption_files("test_2016_flickr")},
        "tokenizer": {"algorithm": "bpe", "vocab_size": 4_000, "shared": True},
        "model": {"d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
        | {"tie_embeddings": "all"},
        "training": {"max_epochs": epochs, "learning_rate": 2e-3, "seed": seed, "num_threads": threads}
        | {"precision": "fp32" if kind == "plain" else "bf16"},
        "decoding": {"beam_size": 1},
    }
    if kind == "plain":
        be_plain()
    train(parse_config(tree, "equivalence"), folder)


def curve(folder: Path, kind: str, seed: int) -> tuple[list[float], list[float], float]:
    """The training and validation loss of each epoch, and BLEU."""
    path = folder / f"{kind}-{seed}"
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    training, validation, seen = [], [], []
    for row in rows:
        if "train/loss" in row:
            seen.append(row["train/loss"])
        if "valid/loss" in row:
            validation.append(row["valid/loss"])
            training.append(statistics.mean(seen))
            seen = []
    return training, validation, json.loads((path / "report.json").read_text())["bleu"]["score"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-equivalence")
    parser.add_argument("--one", choices=["plain", "fast"], help="Run one of the two, without a comparison.")
    options = parser.parse_args()
    kinds = ("fast", "plain")
    for seed in options.seeds:
        if options.one:
            run(options.one, seed, options.epochs, options.threads, options.work)
            continue
        for kind in kinds:
            command = [sys.executable, __file__, "--one", kind, "--seeds", str(seed), "--epochs", str(options.epochs)]
            command += ["--threads", str(options.threads), "--work", str(options.work)]
            subprocess.run(command, check=True)
    if options.one:
        return
    curves = {kind: [curve(options.work, kind, seed) for seed in options.seeds] for kind in kinds}
    means = {
        kind: [
            [statistics.mean(values) for values in zip(*side, strict=True)]
            for side in list(zip(*each, strict=True))[:2]
        ]
        for kind, each in curves.items()
    }
    for name, fast, plain in zip(("train/loss", "valid/loss"), means["fast"], means["plain"], strict=True):
        ratios = [a / b - 1 for a, b in zip(fast, plain, strict=True)]
        print(json.dumps({name: {"fast": fast, "plain": plain, "relative": [round(each, 4) for each in ratios]}}))
    print(json.dumps({"bleu": {kind: [score for *_, score in each] for kind, each in curves.items()}}))


if __name__ == "__main__":
    main()
