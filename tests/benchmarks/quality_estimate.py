"""How well the expected chrF of translations agrees with the true one, on text that the run has not seen.

    python tests/benchmarks/quality_estimate.py --run runs/captions --source test.en --reference test.de
    python tests/benchmarks/quality_estimate.py --run runs/other --source dev.es --reference dev.aym --fit-on-half

The run needs `quality.json` (`mt tune-quality`); it is not changed. With `--fit-on-half`, the estimate is fitted on the
first half of the files and compared on the second, for a run without other held-out text. The files are cut into twenty
parts of neighbouring lines, which stand for files. All scores are of sentences, by sacreBLEU's chrF.
"""

from pathlib import Path

import common
import numpy as np

from mt_cli.config.loading import load_config
from mt_cli.evaluation.quality import fitted
from mt_cli.evaluation.scores import scorer_of
from mt_cli.translation.quality import counts_of, features_of, lowest, read_quality
from mt_cli.translation.translator import Translator

_NUM_PARTS, _CLOSE, _SHARE = 20, 3.0, 0.2


def main() -> None:
    options = common.read_options(__doc__, run=Path, source=Path, reference=Path, fit_on_half=False, limit=2000)
    sides = [common.read_lines(path)[: options.limit] for path in (options.source, options.reference)]
    rows = [row for row, lines in enumerate(zip(*sides, strict=True)) if all(map(str.strip, lines))]
    sources, references = ([side[row] for row in rows] for side in sides)
    translator = Translator.load(options.run, num_threads=1)
    items = translator.translate_fully(sources, with_details=True)
    scorer = scorer_of(load_config(options.run / "config.yaml"), "valid")
    scores = np.array(scorer.sentence_chrf([item.text for item in items], references))
    model = read_quality(options.run)
    if options.fit_on_half:
        half = len(items) // 2
        model, items, scores = fitted(items[:half], scores[:half], ""), items[half:], scores[half:]
    assert model is not None, "no estimate: mt tune-quality"
    kept = [row for row, item in enumerate(items) if item.searched]
    items, scores = [items[row] for row in kept], scores[kept]
    estimates = [estimate for item in items if (estimate := model.estimate(item))]
    report(model, items, np.array([estimate.chrf for estimate in estimates]), scores)
    chosen = lowest([estimate.rank for estimate in estimates], _SHARE)
    rest = np.delete(scores, chosen)
    print(f"marked fifth {scores[chosen].mean():.1f} chrF, the rest {rest.mean():.1f}, of {len(scores):,} sentences")
    print(f"{sum(bool(estimate.doubt) for estimate in estimates)} sentences without an estimate")
    totals = {name: sum(counts_of(row).get(name, 0) for row in estimates) for name in {*counts_of(estimates[0])}}
    print(f"{model.describe(totals)}; true mean {scores.mean():.1f}; {model.describe_error()}")


def report(model, items, expected, scores) -> None:
    """Print the agreement by sentence, of log-probability alone and of the estimate, and by part."""
    log_probs = np.array([features_of(item, model.log_length_ratio)["log_prob"] for item in items])
    for name, values in (("mean log-probability", log_probs), ("expected chrF", expected)):
        correlation = np.corrcoef(values, scores)[0, 1]
        print(f"{name:<22}Pearson {correlation:.3f}  Kendall {kendall(values, scores):.3f}")
    print(f"error of a sentence: {np.sqrt(np.mean((expected - scores) ** 2)):.1f} (root mean square)")
    parts = np.array_split(np.arange(len(scores)), _NUM_PARTS)
    errors = np.array([expected[part].mean() - scores[part].mean() for part in parts])
    promised = model.error_of_mean(len(parts[0]))
    close, kept = (np.abs(errors) <= _CLOSE).sum(), (np.abs(errors) <= promised).sum()
    print(f"parts of {len(parts[0])} lines within {_CLOSE:g} points: {close} of {_NUM_PARTS}")
    print(f"within the promised ± {promised:.1f}: {kept} of {_NUM_PARTS}; largest error {np.abs(errors).max():.1f}")


def kendall(first, second) -> float:
    """Kendall's tau: concordant less discordant pairs, by all pairs."""
    signs = [np.sign(values[:, None] - values) for values in (first, second)]
    return float((signs[0] * signs[1]).sum() / (len(first) * (len(first) - 1)))


if __name__ == "__main__":
    main()
