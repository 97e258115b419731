"""Share of training time that saving takes at the default frequency, for the quickstart and a model of 8 M parameters.

    python tests/benchmarks/save_cost.py [--minutes 3]

Each model trains for some minutes as with `mt train`. The time for writing states and best checkpoints, with the flush
to disk, is added up.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from numbered_pairs import CAPTIONS, caption_files

from mt_cli.checkpoint import directory as checkpoint
from mt_cli.config.loading import load_config, parse_config
from mt_cli.run.train import train

ROOT = Path(__file__).resolve().parents[2]


def timed(name, spent):
    """Wrap a method of run directories to record the seconds of each call."""
    method = getattr(checkpoint.RunDirectory, name)

    def call(self, *arguments):
        started_at = time.perf_counter()
        method(self, *arguments)
        spent.append(time.perf_counter() - started_at)

    setattr(checkpoint.RunDirectory, name, call)


def captions_config(minutes):
    """The model of 8 M parameters of the speed benchmarks, with default training options."""
    tree = {
        "name": "captions",
        "corpus": {"source": "en", "target": "de", "train": caption_files("train"), "valid": caption_files("val")},
        "tokenizer": {"algorithm": "bpe", "shared": True, "vocab_size": 10_000},
        "model": {"tie_embeddings": "all"},
        "training": {"max_minutes": minutes},
    }
    return parse_config(tree, "benchmark")


def main():
    """Print one line per model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    minutes = parser.parse_args().minutes
    spent: list[float] = []
    for name in ("save_state", "save_best"):
        timed(name, spent)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        configs = [load_config(ROOT / "configs" / "quickstart.yaml", [f"training.max_minutes={minutes}"])]
        if CAPTIONS.is_dir():
            configs.append(captions_config(minutes))
        for config in configs:
            spent.clear()
            train(config, folder / "runs")
            rows = (folder / "runs" / config.name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            elapsed = json.loads(rows[-1])["elapsed_seconds"]
            size = (folder / "runs" / config.name / "checkpoints" / "last.safetensors").stat().st_size / 1e6
            print(
                f"{config.name}: {len(spent)} writes, {sum(spent):.2f} s of {elapsed:.0f} s "
                f"({sum(spent) / elapsed:.2%}), states of {size:.0f} MB"
            )


if __name__ == "__main__":
    main()
