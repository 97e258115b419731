"""Draw BLEU on the validation set against minutes of training, of runs and of other systems.

    python tests/benchmarks/learning_curve.py --run "mt=runs/multi30k_en_de" \
        --points "JoeyNMT=15:9.9,30:15.4,60:22.0" --output docs/learning_curve.svg

Curves of runs are cased BLEU (13a) of greedy translations at each validation, and minutes begin with the first update
and include validations. Points are minutes and BLEU, as `joeynmt_quality.py` prints them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from matplotlib import pyplot

Curve = list[tuple[float, float]]
"""Minutes and BLEU."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], metavar="LABEL=DIR")
    parser.add_argument("--points", action="append", default=[], metavar="LABEL=MINUTES:BLEU,...")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for given, read in ((arguments.run, curve_of_run), (arguments.points, curve_of_points)):
        for each in given:
            label, _, text = each.partition("=")
            axes.plot(*zip(*read(text), strict=True), marker=".", label=label)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("BLEU on val, cased")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(arguments.output, metadata={"Date": None})


def curve_of_run(run: str) -> Curve:
    """The validations in `metrics.jsonl`."""
    rows = map(json.loads, (Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["elapsed_seconds"] / 60, row["valid/bleu"]) for row in rows if "valid/bleu" in row]


def curve_of_points(text: str) -> Curve:
    """The points in a text such as `15:9.9,30:15.4`."""
    pairs = (point.split(":") for point in text.split(","))
    return [(float(minutes), float(bleu)) for minutes, bleu in pairs]


if __name__ == "__main__":
    main()
