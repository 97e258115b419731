"""How many protected spans of a test set come out whole, and BLEU of sentences with and without spans.

    python tests/benchmarks/protected_spans.py runs/with runs/without

The first run has `corpus.protect`; all runs have the test set of the first and have finished, so `hypotheses/test.txt`
is there. Spans are those of the first run's config.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.protected_text import Protection
from mt_cli.data.evaluation_set import read_split
from mt_cli.evaluation.scores import scorer_of
from mt_cli.machine.console import say


def main(runs: list[Path]) -> None:
    """Print a row for each run."""
    config = RunDirectory(runs[0]).config()
    pairs = read_split(config, "test", Cache(runs[0].parent / ".cache", say)).pairs
    protection, scorer = Protection.of(config.corpus), scorer_of(config, "test")

    def spans(text: str) -> Counter[str]:
        return Counter(text[start:end] for start, end in protection.spans(text))

    print("run  spans  whole  sentences with spans  all spans right  BLEU with spans  BLEU without spans")
    for run in runs:
        hypotheses = (run / "hypotheses" / "test.txt").read_text(encoding="utf-8").split("\n")[: len(pairs)]
        num_spans = num_whole = num_right = 0
        texts: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        for (source, reference), hypothesis in zip(pairs, hypotheses, strict=True):
            expected, produced = spans(source), spans(hypothesis)
            num_spans += expected.total()
            num_whole += (expected & produced).total()
            num_right += bool(expected) and expected == produced
            texts[bool(expected)].append((hypothesis, reference))
        scores = [
            scorer.score(*map(list, zip(*texts[has_spans], strict=True)))["bleu"].score for has_spans in (True, False)
        ]
        print(
            f"{run.name}  {num_spans:,}  {num_whole / num_spans:.2%}  {len(texts[True]):,}  "
            f"{num_right / len(texts[True]):.2%}  {scores[0]:.2f}  {scores[1]:.2f}"
        )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
