"""Scores of runs on their test set as it is, and as people type it: in capitals, with typing errors and so on.

    python tests/benchmarks/as_typed.py runs/with runs/without

Capitals and missing final marks are on both sides of the test set, typing errors in the source alone. Each variant is
the change of `corpus.augment` with share 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.corpora import AugmentConfig
from mt_cli.corpus.augmented_text import NUM_CHANCES, TextAugmentation
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.rows import Pair
from mt_cli.data.evaluation_set import read_split
from mt_cli.evaluation.scores import scorer_of
from mt_cli.machine.console import say
from mt_cli.translation.translator import Translator

KINDS = ("as it is", "upper_case", "title_case", "no_final_punctuation", "typos")


def main(runs: list[Path], capitals: str) -> None:
    """Print BLEU of each run for each kind of text, and the loss; `capitals` is the option of `decoding`."""
    print("run  " + "  ".join(KINDS))
    for run in runs:
        config = RunDirectory(run).config()
        pairs = read_split(config, "test", Cache(run.parent / ".cache", say)).pairs
        translator, scorer, scores = Translator.load(run), scorer_of(config, "test"), []
        for kind in KINDS:
            typed = pairs if kind == KINDS[0] else _typed(pairs, kind, config.corpus.languages)
            hypotheses = translator.translate([source for source, _ in typed], capitals=capitals)
            scores.append(scorer.score(hypotheses, [reference for _, reference in typed])["bleu"].score)
        print(f"{run.name}  " + "  ".join(f"{score:.2f} ({score - scores[0]:+.2f})" for score in scores))


def _typed(pairs: list[Pair], kind: str, languages: tuple[str, str]) -> list[Pair]:
    augmentation, random = TextAugmentation(AugmentConfig(**{kind: 1.0})), np.random.default_rng(1)
    return [augmentation.change(pair, [0.0] * NUM_CHANCES, languages, random) for pair in pairs]


if __name__ == "__main__":
    for option in ("keep", "lower"):
        print(f"decoding.capitals: {option}")
        main([Path(argument) for argument in sys.argv[1:]], option)
