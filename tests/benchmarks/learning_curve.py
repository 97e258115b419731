"""Draw BLEU on the validation set against minutes of training, of runs and of JoeyNMT.

    python tests/benchmarks/learning_curve.py --run "mt, 60 minutes=runs/multi30k_en_de" \
        --joeynmt "JoeyNMT=joeynmt/train.log" --output docs/learning_curve.svg

Both are cased BLEU (13a) of greedy translations at each validation. Minutes begin with the first update and include
validations. `joeynmt_quality.py` writes the log.
"""

from __future__ import annotations

import argparse
import json
import re
from datetime import datetime
from pathlib import Path

from matplotlib import pyplot

Curve = list[tuple[float, float]]
"""Minutes and BLEU."""
_TIME = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ - INFO - .*"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], metavar="LABEL=DIR")
    parser.add_argument("--joeynmt", action="append", default=[], metavar="LABEL=LOG")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for given, read in ((arguments.run, curve_of_run), (arguments.joeynmt, curve_of_log)):
        for each in given:
            label, _, path = each.partition("=")
            axes.plot(*zip(*read(Path(path)), strict=True), marker=".", label=label)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("BLEU on val, greedy, cased")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(arguments.output, metadata={"Date": None})


def curve_of_run(run: Path) -> Curve:
    """The validations in `metrics.jsonl`."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["elapsed_seconds"] / 60, row["valid/bleu"]) for row in rows if "valid/bleu" in row]


def curve_of_log(log: Path) -> Curve:
    """The validations in a log of JoeyNMT."""
    text = log.read_text(encoding="utf-8")
    started_at = datetime.fromisoformat(re.findall(_TIME + r"EPOCH 1$", text, re.MULTILINE)[0])
    found = re.findall(_TIME + r"Evaluation result \(greedy\): bleu: +([\d.]+)", text, re.MULTILINE)
    return [((datetime.fromisoformat(at) - started_at).total_seconds() / 60, float(bleu)) for at, bleu in found]


if __name__ == "__main__":
    main()
