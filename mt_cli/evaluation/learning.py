"""How much a run has learned, in one sentence: its score, the expected one, and whether translations follow sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, FiniteFloat, computed_field

from mt_cli.corpus.rows import Languages
from mt_cli.evaluation.scores import METRICS, Scorer, rows_by_direction
from mt_cli.translation.stream import repeats_itself

LONGEST = 1.1
"""Length of translations, by that of their references, above which they are too long.

Two translators of a text differ by less. chrF weighs recall four times as much as precision, so it rises with length
even if translations become worse: with the length penalties 1, 1.5 and 2, translations from English to Yoruba of a weak
model are 0.72, 1.01 and 1.24 times as long, with chrF 21.8, 24.8, 26.0, BLEU 3.7, 3.7, 3.2 and TER 93, 113, 134.
"""
_FEWEST_SENTENCES = 30
_UNRELATED, _HARDLY_RELATED = 0.03, 0.08
"""Gain over references of other sentences, as a share of the gain of perfect translations."""
_MANY_REPEATED = 0.2
_ENOUGH_STEPS = 0.7
_SHORTEST = 0.8
"""Total length of translations, by that of the references, below which it is named; above `LONGEST`, it is, too."""


class Learning(BaseModel):
    """Signs of learning in the translations of a test set."""

    chrf: FiniteFloat
    shuffled_chrf: FiniteFloat
    """chrF against the references of other sentences, which translations reach that ignore their sources."""
    repeated_share: FiniteFloat
    """Share of translations that repeat themselves, 0 to 1."""
    length_ratio: FiniteFloat = 1.0
    """Characters of the translations divided by characters of the references, spaces excluded."""
    metric: str = "chrf"
    score: FiniteFloat = 0.0
    expected: tuple[FiniteFloat, FiniteFloat] | None = None
    """Range of `metric` that was expected of this text and number of updates; None if unknown."""
    expected_of_all: tuple[FiniteFloat, FiniteFloat] | None = None
    """Range that `mt init` expects after all updates."""
    num_steps: int = 0
    num_planned: int | None = None
    """Number of updates that the text deserves."""
    minutes_for_all: int = 0
    continue_with: str = ""
    """Option with which the same command makes all updates."""
    is_cut: bool = True
    """True if a limit ended the run, and not patience."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_little(self) -> bool:
        """True if most translations are not related to their sources, or repeat themselves."""
        return self._gain < _HARDLY_RELATED or self.repeated_share > 0.5

    @property
    def _gain(self) -> float:
        return (self.chrf - self.shuffled_chrf) / max(1e-9, 100 - self.shuffled_chrf)

    def describe(self) -> str:
        """Score, plan and signs in one sentence, with what helps most."""
        parts = [f"{METRICS[self.metric]} {self.score:.1f}"]
        is_part = not self.num_planned or self.num_steps < self.num_planned
        if self.expected_of_all:
            parts[0] += ", where mt init expects {:.0f} to {:.0f} after all updates".format(*self.expected_of_all)
            if self.expected and is_part and self.expected != self.expected_of_all:
                parts[0] += ", and {:.0f} to {:.0f} after {:,}".format(*self.expected, self.num_steps)
        if self.num_planned:
            share = f"{self.num_steps:,} of {self.num_planned:,} updates ({self.num_steps / self.num_planned:.0%})"
            parts.append(f"{share if is_part else f'all {self.num_steps:,} updates'} were made")
        if self.is_little:
            how = "unrelated" if self._gain < _UNRELATED else "hardly related"
            parts.append(
                f"most translations are {how} to their sources (chrF {self.chrf:.1f} with the right references and "
                f"{self.shuffled_chrf:.1f} with those of other sentences)"
            )
        if self.repeated_share >= _MANY_REPEATED:
            parts.append(f"{self.repeated_share:.0%} of the translations repeat themselves")
        if not _SHORTEST <= self.length_ratio <= LONGEST:
            parts.append(f"translations are {self.length_ratio:.1f} times as long as their references")
        is_low = self.is_little or (self.expected is not None and self.score < self.expected[0])
        is_high = self.expected_of_all is not None and self.score > self.expected_of_all[1]
        is_short = self.num_planned is not None and self.num_steps < _ENOUGH_STEPS * self.num_planned
        if self.is_cut and is_short and not is_high:
            time = f"more time, about {self.minutes_for_all:,} minutes for all updates"
            way = f" (go on with --set training.{self.continue_with})" if self.continue_with else ""
            parts.append(f"what helps most: {time}{way}")
        elif is_low:
            parts.append(
                "what helps most: more text, or to begin with the model of another language (docs/few_pairs.md)"
            )
        return "; ".join(parts)


def length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Characters of translations divided by characters of their references; as in chrF, spaces do not count."""
    lengths = [sum(len(word) for text in texts for word in text.split()) for texts in (hypotheses, references)]
    return round(lengths[0] / max(1, lengths[1]), 2)


def learning_of(
    scorer: Scorer,
    texts: tuple[Sequence[str], Sequence[str], Sequence[str]],
    languages: Sequence[Languages] = (),
    **run: Any,
) -> Learning | None:
    """Signs of learning in sources, translations and references; `run` has the other fields of `Learning`.

    None if a direction has too few sentences.
    """
    sources, hypotheses, references = texts
    groups = [*rows_by_direction(languages).values()] or [list(range(len(references)))]
    if min(map(len, groups)) < _FEWEST_SENTENCES:
        return None
    shuffled = [*references]
    for rows in groups:  # Neighbours may be of one document.
        for place, row in enumerate(rows):
            shuffled[row] = references[rows[(place + len(rows) // 2) % len(rows)]]
    right, wrong = (scorer.score(hypotheses, texts, ["chrf"])["chrf"].score for texts in (references, shuffled))
    repeated = sum(map(repeats_itself, sources, hypotheses)) / len(hypotheses)
    return Learning(
        chrf=round(right, 2),
        shuffled_chrf=round(wrong, 2),
        repeated_share=round(repeated, 3),
        length_ratio=length_ratio(hypotheses, references),
        **({"score": right} | run),
    )
