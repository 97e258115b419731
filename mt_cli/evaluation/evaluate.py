"""Scores of a translator on test sets, as values and as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mt_cli.corpus.rows import Pair
from mt_cli.errors import MtError
from mt_cli.evaluation.texts import METRICS, Scorer
from mt_cli.machine.console import Progress, say
from mt_cli.machine.storage import make_folder, write_text
from mt_cli.translation.translator import Translator

_SENTENCES_AT_ONCE = 2048


def evaluate(
    translator: Translator, pairs: Sequence[Pair], split: str, scorer: Scorer, **decoding: Any
) -> tuple[dict[str, Any], list[str]]:
    """Scores of a translator on pairs, as `mt evaluate --json` prints them, and its translations.

    Each metric that suits the language has a score, a signature and half the width of its 95 % confidence interval.
    `exact_match` is the share of translations, 0-100, that equal their reference.
    """
    references = [target for _, target in pairs]
    started_at = time.perf_counter()
    with Progress(f"translate {split}", len(pairs), "sentence", is_quiet=True) as progress:
        hypotheses = translations_of(translator, pairs, progress.advance, **decoding)
    seconds = time.perf_counter() - started_at
    num_tokens = sum(len(ids) + 1 for ids in translator.target_tokenizer.encode(hypotheses))
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    scores = scorer.score(hypotheses, references)
    for name, half_width in scorer.confidence(hypotheses, references).items():
        scores[name]["confidence_95"] = half_width
    return {
        "split": split,
        "num_sentences": len(pairs),
        "beam_size": decoding.get("beam_size", translator.decoding.beam_size),
        **scores,
        "exact_match": round(100 * num_equal / len(pairs), 4),
        "speed": {
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(pairs) / seconds, 2),
            "tokens_per_second": round(num_tokens / seconds, 1),
        },
    }, hypotheses


def translations_of(
    translator: Translator, pairs: Sequence[Pair], on_done: Callable[[int], object], **decoding: Any
) -> list[str]:
    """The translations of the sources; `on_done` is called with the number of sentences after each block."""
    hypotheses: list[str] = []
    for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
        sources = [source for source, _ in pairs[start : start + _SENTENCES_AT_ONCE]]
        hypotheses.extend(translator.translate(sources, **decoding))
        on_done(len(sources))
    return hypotheses


def write_hypotheses(run: Path, split: str, hypotheses: Sequence[str]) -> None:
    """Write translations into the run directory, one a line; if that fails, only print why."""
    path = run / "hypotheses" / f"{split}.txt"
    try:
        make_folder(path.parent)
        write_text(path, "".join(f"{hypothesis}\n" for hypothesis in hypotheses))
    except (OSError, ValueError, MtError) as error:  # A test set may have a name that no file can have.
        say(f"The translations were not written to {path}: {error}")


def format_scores(scores: Mapping[str, Any]) -> str:
    """The scores of one test set for people, several lines."""
    lines = [f"{scores['split']} ({scores['num_sentences']:,} sentences, beam {scores['beam_size']})"]
    for name, label in METRICS.items():
        if name in scores:
            width = scores[name].get("confidence_95")
            interval = f" ± {width:.2f}" if width is not None else ""
            lines.append(f"  {label:<7}{scores[name]['score']:6.2f}{interval}  {scores[name]['signature']}")
    if "comet" in scores:
        lines.append(f"  COMET  {scores['comet']['score']:6.4f}")
    lines.append(f"  exact  {scores['exact_match']:6.2f}  % of sentences equal to their reference")
    if speed := scores.get("speed"):
        rates = f"{speed['sentences_per_second']:,.1f} sentences and {speed['tokens_per_second']:,.0f} tokens a second"
        lines.append(f"  speed  {rates}")
    if rival := scores.get("against"):
        lines.append(f"against {rival['system']} (paired bootstrap, {rival['num_resamples']:,} samples)")
        for name, label in METRICS.items():
            if name in rival:
                score, p_value = rival[name]["score"], rival[name]["p_value"]
                verdict = "significant" if p_value < 0.05 else "not significant"
                difference = f"difference {scores[name]['score'] - score:+.2f}, p = {p_value:.3f}: {verdict}"
                lines.append(f"  {label:<7}{score:6.2f}  {difference}")
        lines.extend(f"  note: {note}" for note in rival.get("notes", ()))
    return "\n".join(lines)
