"""What each element of a recipe gives: one run for each variant and seed, scored on the validation set as a table.

    python tests/benchmarks/recipes.py --config configs/multi30k_en_de.yaml --data ../shared/data/multi30k \
        --output recipes --minutes 10 --seeds 1 2 --variant "recipe" --variant "no R-Drop: training.r_drop=null"

A variant is a title and, after a colon, values as for `mt train --set`. Every run trains for the same time, so nothing
else should run on the machine, or with `--steps` for the same number of updates; without both, as the config says. With
`--pairs`, the runs train on a sample of the pairs. Test sets are not read without `--test`. Runs that are complete are
not repeated. The first BLEU is lower-cased (`case:lc|tok:13a`), the second one cased. `--record captions`, with one
variant, writes the figures of `docs/figures.json` whose names begin with `captions`.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import load, record
from sacrebleu.metrics import BLEU

from mt_cli.config.loading import load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.*, val.* in both languages")
    parser.add_argument("--output", type=Path, required=True, help="folder for the runs")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--minutes", type=float)
    limit.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--variant", action="append", required=True)
    parser.add_argument("--pairs", type=int, help="train on a sample of this size")
    parser.add_argument("--test", metavar="NAME", help="score NAME.* of the folder too, such as test_2016_flickr")
    parser.add_argument("--record", metavar="NAME", help="write the figures NAME_bleu_lc, ... of the last set")
    arguments = parser.parse_args()
    if arguments.record and len(arguments.variant) > 1:
        parser.error("--record needs one variant")
    arguments.output.mkdir(parents=True, exist_ok=True)
    config = load_config(arguments.config)
    languages = config.corpus.source, config.corpus.target
    pairs = [arguments.data.resolve() / f"train.{language}" for language in languages]
    if arguments.pairs:
        pairs = sampled(pairs, arguments.pairs, arguments.output)
    splits = ["val"] + ([arguments.test] if arguments.test else [])
    scores = " | ".join(f"BLEU lc on `{split}` | cased" for split in splits)
    print(f"| variant | {scores} | seeds | steps | target tokens | tokens a second |")
    print("|---|" + "---|---|" * len(splits) + "---|---|---|---|")
    for variant in arguments.variant:
        title, _, values = variant.partition(":")
        reports = [
            trained(arguments, languages, pairs, title.strip(), shlex.split(values), seed) for seed in arguments.seeds
        ]
        print(row(title.strip(), reports), flush=True)
        if arguments.record:
            record_scores(arguments.record, reports)


def record_scores(name: str, reports: list[dict[str, Any]]) -> None:
    """Record the scores on the last set that are figures of the pages."""
    lowercased, cased = ([report["scores"][place] for report in reports] for place in (-2, -1))
    found = {"bleu_lc": statistics.mean(lowercased), "bleu": statistics.mean(cased)}
    found["minutes"] = round(statistics.mean(report["elapsed_seconds"] for report in reports) / 60)
    if len(reports) > 1:
        found["bleu_lc_stdev"] = statistics.stdev(lowercased)
    for key, value in found.items():
        if f"{name}_{key}" in load():
            record(f"{name}_{key}", value)


def trained(
    arguments: argparse.Namespace, languages: Sequence[str], pairs: list[Path], title: str, values: list[str], seed: int
) -> dict[str, Any]:
    """The report of a run on pairs of files, with `scores`: BLEU without and with case, of each set."""
    name, folder = f"{title.replace(' ', '_')}-{seed}", arguments.data.resolve()
    settings: dict[str, Any] = {"name": name, "training.seed": seed, "corpus.test": None}
    for key, paths in (("train", pairs), ("valid", [folder / f"val.{language}" for language in languages])):
        settings[f"corpus.{key}"] = {"files": list(map(str, paths))}
    if arguments.minutes or arguments.steps:
        limits = {"max_epochs": None, "max_minutes": arguments.minutes, "max_steps": arguments.steps}
        settings |= {f"training.{limit}": value for limit, value in limits.items()}
    options = [f"{key}={json.dumps(value)}" for key, value in settings.items()] + values
    command = [sys.executable, "-m", "mt_cli", "train", "--config", str(arguments.config.resolve())]
    command += [part for option in options for part in ("--set", option)]
    with open(arguments.output / f"{name}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, cwd=arguments.output, stderr=log, stdout=log, check=True)
    run = arguments.output / "runs" / name
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    hypotheses = {"val": run / "hypotheses" / "valid.txt"}
    if arguments.test:
        path = hypotheses[arguments.test] = run / "hypotheses" / f"{arguments.test}.txt"
        named = ["--input", folder / f"{arguments.test}.{languages[0]}", "--output", path.absolute()]
        command = [sys.executable, "-m", "mt_cli", "translate", "--run", f"runs/{name}", *map(str, named)]
        subprocess.run(command, cwd=arguments.output, check=True, capture_output=True)
    scores = [both_scores(path, folder / f"{split}.{languages[1]}") for split, path in hypotheses.items()]
    return report | {"scores": [score for pair in scores for score in pair]}


def both_scores(hypotheses: Path, references: Path) -> tuple[float, float]:
    """BLEU without and with case of the lines of a file."""
    texts = lines(hypotheses), [lines(references)]
    lowercased, cased = (BLEU(lowercase=is_lowercased).corpus_score(*texts).score for is_lowercased in (True, False))
    return lowercased, cased


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def sampled(paths: list[Path], number: int, folder: Path) -> list[Path]:
    """New files with a sample of the pairs of two files, which is the same for each run."""
    pairs = list(zip(*map(lines, paths), strict=True))
    chosen = random.Random(number).sample(pairs, number)
    samples = [(folder / f"{number}_{path.name}").absolute() for path in paths]
    for path, side in zip(samples, zip(*chosen, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return samples


def row(title: str, reports: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds."""
    cells = [
        f"{statistics.mean(each):.2f}" + (f" ± {statistics.stdev(each):.2f}" if len(each) > 1 else "")
        for each in zip(*(report["scores"] for report in reports), strict=True)
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
