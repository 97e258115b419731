"""Gain of each element of a recipe: one run for each variant and seed, scored on the validation set as a table.

    python tests/benchmarks/recipes.py --config configs/multi30k_en_de.yaml --data ../shared/data/multi30k \
        --output recipes --minutes 10 --seeds 1 2 --variant "recipe" --variant "no R-Drop: training.r_drop=null"

`--data` has train.* and val.* in both languages. A variant is a title and, after a colon, values as for `mt train
--set`. Every run trains for the same minutes, so nothing else should run on the machine, or for the same `--steps`;
without both, as the config says. `--pairs` trains on a sample of that size. `--test NAME` scores NAME.* too; otherwise
no test set is read. Runs that are complete are not repeated. The first BLEU is lower-cased (`case:lc|tok:13a`), the
second one cased.
"""

import json
import random
import shlex
import statistics
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import common
from sacrebleu.metrics import BLEU

from mt_cli.config.loading import load_config


def main() -> None:
    limits = {"minutes": 0.0, "steps": 0, "pairs": 0}
    paths = dict.fromkeys(("config", "data", "output"), Path)
    options = common.read_options(__doc__, **paths, **limits, seeds=[1], variant=[], test=None)
    options.output.mkdir(parents=True, exist_ok=True)
    corpus = load_config(options.config).corpus
    languages = corpus.source, corpus.target
    train = [options.data.resolve() / f"train.{language}" for language in languages]
    if options.pairs:
        train = sample(train, options.pairs, options.output)
    splits = ["val"] + ([options.test] if options.test else [])
    scores = [title for split in splits for title in (f"BLEU lc on `{split}`", "cased")]
    common.print_titles("variant", *scores, "seeds", "steps", "target tokens", "tokens a second")
    for variant in options.variant:
        title, _, values = variant.partition(":")
        reports = [
            train_and_score(options, languages, train, title.strip(), shlex.split(values), seed)
            for seed in options.seeds
        ]
        print_scores(title.strip(), reports)


def train_and_score(
    options: Namespace, languages: Sequence[str], train: list[Path], title: str, values: list[str], seed: int
) -> dict[str, Any]:
    """Report of a run on pairs of files, with `scores`: BLEU without and with case, of each set."""
    name, folder = f"{title.replace(' ', '_')}-{seed}", options.data.resolve()
    changes: dict[str, Any] = {"name": name, "training.seed": seed, "corpus.test": None}
    for key, paths in (("train", train), ("valid", [folder / f"val.{language}" for language in languages])):
        changes[f"corpus.{key}"] = {"files": list(map(str, paths))}
    if options.minutes or options.steps:
        limits = {"max_epochs": None, "max_minutes": options.minutes or None, "max_steps": options.steps or None}
        changes |= {f"training.{limit}": value for limit, value in limits.items()}
    more = [part for value in values for part in ("--set", value)]
    common.run_mt(options.output, "train", "--config", options.config.resolve(), *common.settings(changes), *more)
    run = options.output.resolve() / "runs" / name
    hypotheses = {"val": run / "hypotheses" / "valid.txt"}
    if options.test:
        path = hypotheses[options.test] = run / "hypotheses" / f"{options.test}.txt"
        source = folder / f"{options.test}.{languages[0]}"
        common.run_mt(options.output, "translate", "--run", run, "--input", source, "--output", path)
    scores = [
        BLEU(lowercase=is_lowercased)
        .corpus_score(common.read_lines(path), [common.read_lines(folder / f"{split}.{languages[1]}")])
        .score
        for split, path in hypotheses.items()
        for is_lowercased in (True, False)
    ]
    report: dict[str, Any] = json.loads((run / "report.json").read_text(encoding="utf-8"))
    return report | {"scores": scores}


def sample(paths: list[Path], number: int, folder: Path) -> list[Path]:
    """New files with a sample of the pairs of two files; it depends only on its size."""
    pairs = list(zip(*map(common.read_lines, paths), strict=True))
    chosen = random.Random(number).sample(pairs, number)
    samples = [(folder / f"{number}_{path.name}").absolute() for path in paths]
    for path, side in zip(samples, zip(*chosen, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return samples


def print_scores(title: str, reports: list[dict[str, Any]]) -> None:
    scores = [
        f"{statistics.mean(seeds):.2f}" + (f" ± {statistics.stdev(seeds):.2f}" if len(seeds) > 1 else "")
        for seeds in zip(*(report["scores"] for report in reports), strict=True)
    ]
    keys = ("num_steps", "num_target_tokens", "elapsed_seconds")
    steps, tokens, seconds = (statistics.mean(report[key] for report in reports) for key in keys)
    common.print_row(title, *scores, len(reports), f"{steps:,.0f}", f"{tokens / 1e6:.1f} M", f"{tokens / seconds:,.0f}")


if __name__ == "__main__":
    main()
