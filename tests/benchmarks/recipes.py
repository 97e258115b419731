"""What each element of a recipe gives: one run for each variant and seed, scored on the validation set as a table.

    python tests/benchmarks/recipes.py --config configs/multi30k_en_de.yaml --data ../shared/data/multi30k \
        --output recipes --minutes 10 --seeds 1 2 --variant "recipe" --variant "no R-Drop: training.r_drop=null"

A variant is a title and, after a colon, values as for `mt train --set`. Every run trains for the same time, or with
`--steps` for the same number of updates, so nothing else should run on the machine. Test sets are not read. Runs that
are complete are not repeated. The first BLEU is lower-cased (`case:lc|tok:13a`), the second one cased.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU

from mt_cli.config.loading import load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.*, val.* in both languages")
    parser.add_argument("--output", type=Path, required=True, help="folder for the runs")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--minutes", type=float)
    limit.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--variant", action="append", required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    print("| variant | BLEU lc on `val`, beam 5 | cased | seeds | steps | target tokens | tokens a second |")
    print("|---|---|---|---|---|---|---|")
    for variant in arguments.variant:
        title, _, values = variant.partition(":")
        reports = [trained(arguments, title.strip(), shlex.split(values), seed) for seed in arguments.seeds]
        print(row(title.strip(), reports), flush=True)


def trained(arguments: argparse.Namespace, title: str, values: list[str], seed: int) -> dict[str, Any]:
    """The report of a run, with `lowercased`, its BLEU without case."""
    config, name = load_config(arguments.config), f"{title.replace(' ', '_')}-{seed}"
    languages, folder = (config.corpus.source, config.corpus.target), arguments.data.resolve()
    files = {split: [str(folder / f"{split}.{language}") for language in languages] for split in ("train", "val")}
    limits = {"max_epochs": None, "max_minutes": arguments.minutes, "max_steps": arguments.steps}
    settings = {
        **{"name": name, "training.seed": seed},
        **{"corpus.train": {"files": files["train"]}, "corpus.valid": {"files": files["val"]}, "corpus.test": None},
        **{f"training.{limit}": value for limit, value in limits.items()},
    }
    options = [f"{key}={json.dumps(value)}" for key, value in settings.items()] + values
    command = [sys.executable, "-m", "mt_cli", "train", "--config", str(arguments.config.resolve())]
    command += [part for option in options for part in ("--set", option)]
    with open(arguments.output / f"{name}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=arguments.output, stderr=log, stdout=log, check=True)
    run = arguments.output / "runs" / name
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    hypotheses, references = (
        path.read_text(encoding="utf-8").split("\n")[:-1]
        for path in (run / "hypotheses" / "valid.txt", folder / f"val.{languages[1]}")
    )
    return report | {"lowercased": BLEU(lowercase=True).corpus_score(hypotheses, [references]).score}


def row(title: str, reports: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds."""
    scores = [report["lowercased"] for report in reports], [report["bleu"]["score"] for report in reports]
    cells = [
        f"{statistics.mean(each):.2f}" + (f" ± {statistics.stdev(each):.2f}" if len(each) > 1 else "")
        for each in scores
    ]
    steps, tokens, seconds = (
        statistics.mean(report[key] for report in reports)
        for key in ("num_steps", "num_target_tokens", "elapsed_seconds")
    )
    return (
        f"| {title} | {' | '.join(cells)} | {len(reports)} | {steps:,.0f} | {tokens / 1e6:.1f} M "
        f"| {tokens / seconds:,.0f} |"
    )


if __name__ == "__main__":
    main()
