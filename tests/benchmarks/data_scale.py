"""Memory, time to the first step and training speed of `mt train`, for corpora of very different sizes.

Each size is started once without a cache and then several times from the cache. Linux only (reads /proc).

    python tests/benchmarks/data_scale.py --pairs 100000 10000000
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from figures import add_option, record
from numbered_pairs import write_files, write_validation_files


def config_of(paths: tuple[Path, Path], name: str, steps: int) -> dict[str, Any]:
    return {
        "name": name,
        "corpus": {
            "source": "en",
            "target": "de",
            "train": {"files": [str(path) for path in paths]},
            "valid": {"files": [str(path) for path in write_validation_files(paths[0].parent)]},
        },
        "tokenizer": {"algorithm": "bpe", "vocab_size": 8_000, "shared": True},
        "model": {
            "d_model": 256,
            "d_ff": 1024,
            "num_encoder_layers": 3,
            "num_decoder_layers": 3,
            "tie_embeddings": "all",
        },
        "training": {"max_steps": steps, "batch_tokens": 2560, "log_every_steps": 1, "validate_every_steps": 1_000_000},
    }


def resident_bytes(pid: int) -> tuple[int, int]:
    """The memory of a process: its own, and pages of mapped files. Zeros if it has ended."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    own, files = (int(status.get(key, "0 kB").split()[0]) * 1024 for key in ("RssAnon", "RssFile"))
    return own, files


def measure(folder: Path, config: dict[str, Any], steps: int) -> dict[str, Any]:
    """Start `mt train`, watch it until `steps` steps are done, and stop it."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    metrics = folder / "runs" / config["name"] / "metrics.jsonl"
    log_path = folder / f"{config['name']}.log"
    command = [sys.executable, "-m", "mt_cli", "train", "--config", "config.yaml"]
    started_at = time.monotonic()
    with open(log_path, "w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    before: list[tuple[int, int]] = []
    during: list[tuple[int, int]] = []
    first_step_at = None
    while process.poll() is None:
        rows = metrics.read_text().count("\n") if metrics.exists() else 0
        if rows and first_step_at is None:
            first_step_at = time.monotonic() - started_at
        (during if rows >= 5 else before).append(resident_bytes(process.pid))
        if rows >= steps:
            process.terminate()
            process.wait()
        time.sleep(0.1)
    if first_step_at is None:
        raise SystemExit(log_path.read_text())
    rates = [json.loads(line)["train/tokens_per_second"] for line in metrics.read_text().splitlines()][5:]
    return {
        "seconds_to_first_step": round(first_step_at, 1),
        "peak_mb_to_first_step": round(max(map(sum, before)) / 1e6),
        "median_mb_while_training": round(statistics.median(map(sum, during)) / 1e6),
        "of_that_mapped_files": round(statistics.median(files for _, files in during) / 1e6),
        "target_tokens_per_second": round(statistics.median(rates)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep-cache", action="store_true", help="Measure starts from the cache alone.")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-benchmarks")
    add_option(parser)
    options = parser.parse_args()
    if not options.keep_cache:
        shutil.rmtree(options.work / "runs", ignore_errors=True)
    rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
    # The first starts, which prepare everything, and then the second ones in turn, several rounds.
    starts = [] if options.keep_cache else [(number, "first") for number in options.pairs]
    starts += [(number, "from the cache") for _ in range(options.rounds) for number in options.pairs]
    for number, start in starts:
        name = f"scale-{number}"
        shutil.rmtree(options.work / "runs" / name, ignore_errors=True)
        config = config_of(write_files(options.work, number), name, 10 * options.steps)
        rows.setdefault((number, start), []).append(measure(options.work, config, options.steps))
    for (number, start), several in rows.items():
        medians = {key: statistics.median(row[key] for row in several) for key in several[0]}
        print(json.dumps({"pairs": number, "start": start, **medians}), flush=True)
        if options.record and (number, start) == (max(options.pairs), "first"):
            record("prepare_pairs_per_second", round(number / medians["seconds_to_first_step"], -2))


if __name__ == "__main__":
    main()
