"""Scores of a translator on test sets and the end of a run, as a report has them and as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mt_cli.corpus.reading import Pair
from mt_cli.evaluation import score_texts
from mt_cli.translator import Translator


def evaluate(translator: Translator, pairs: Sequence[Pair], split: str, beam_size: int | None = None) -> dict[str, Any]:
    """`{"split", "num_sentences", "bleu", "chrf", "ter", "exact_match"}` of a translator on pairs.

    `exact_match` is the share of translations, 0-100, that equal their reference.
    """
    hypotheses = translator.translate([source for source, _ in pairs], beam_size=beam_size)
    references = [target for _, target in pairs]
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return {
        "split": split,
        "num_sentences": len(pairs),
        **score_texts(hypotheses, references),
        "exact_match": round(100 * num_equal / len(pairs), 4),
    }


def format_scores(scores: Mapping[str, Any]) -> str:
    """The scores of one test set for people, several lines."""
    lines = [f"{scores['split']} ({scores['num_sentences']:,} sentences)"]
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER")):
        lines.append(f"  {label:<6}{scores[name]['score']:6.2f}  {scores[name]['signature']}")
    return "\n".join([*lines, f"  exact {scores['exact_match']:6.2f}  % of sentences equal to their reference"])


def format_summary(report: Mapping[str, Any], path: Path) -> str:
    """How a run ended, for people, several lines."""
    lines = [
        f"\nStopped by {report['stopped_because']} after {report['num_steps']:,} steps, "
        f"{report['num_target_tokens']:,} target tokens and {clock(report['elapsed_seconds'])}; "
        f"best step {report['best_step']:,}."
    ]
    if report["num_bad_steps"]:
        lines.append(
            f"{report['num_bad_steps']:,} steps were skipped because of a loss or gradient that was not finite."
        )
    lines.extend(map(format_scores, (report, *report["extra_tests"].values())))
    lines.append(f'\nTranslate with it:  mt translate --run {path} "..."')
    lines.append(f"See it learn:       tensorboard --logdir {path.parent}")
    return "\n".join(lines)


def clock(seconds: float) -> str:
    """A time for people: `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
