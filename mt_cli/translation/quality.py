"""Expected chrF of translations, and the choice of those that most need reading.

It is a ridge regression on what the model and the lengths of both sides say of translations. Both engines compute the
features. The agreement of the n-best list and the coverage by attention are not among them: on held-out text, they did
not improve the estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import BaseModel, FiniteFloat

from mt_cli.corpus.sentences import has_letters
from mt_cli.runtime.console import listed, say
from mt_cli.runtime.files import read_model, write_atomically
from mt_cli.translation.sentences import units

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation

QUALITY = "quality.json"
MOST_DEVIATIONS = 4.0
"""Outliers beyond count as much as this number of standard deviations."""
_GOOD = 50.0
_LOWEST_LOG_PROB, _UNSURE = -20.0, float(np.log(0.4))
_PUNCTUATION, _LONGEST_WORD, _NUM_NAMED = ".,;:!?()«»“”„\"'", 30, 3
_MOST_IN_DOUBT = 0.1
"""Share of the characters of a text whose estimates may not hold; a cell of code counts less than a paragraph."""
_REASONS = {
    "length": "unusually long or short",
    "fertility": "rare words in the source",
    "missing_length": "shorter than usual",
    "surplus_length": "longer than usual",
    "repetition": "repeats words",
}
"""Words for features that lower the estimate; all others but `unknown_words` say how sure the model is."""
_DOUBTS = {
    "length": "longer than the texts of the validation set",
    "fertility": "other words than in the validation set",
    "unknown_words": "more unknown words than in the validation set",
}


class Estimate(NamedTuple):
    """Expected quality of a translation."""

    chrf: float
    """Expected chrF of the sentence, 0-100."""
    reason: str
    """What lowers it most; empty for a line that is copied, such as a number."""
    doubt: str = ""
    """Reason why the estimate does not hold; empty if it does."""
    num_characters: int = 0
    """Characters of the source without spaces; 0 for a line that is copied."""
    is_unchanged: bool = False
    """True if the translation is the source, such as code."""

    @property
    def rank(self) -> float:
        """The lower, the sooner to read: by expected chrF, never copies.

        Changed lines whose estimate does not hold come first.
        """
        is_first = bool(self.doubt) and not self.is_unchanged
        return (self.chrf - 1000.0 * is_first) if self.reason else inf

    @property
    def shown(self) -> float | None:
        """Expected chrF; None if the estimate does not hold."""
        return None if self.doubt else round(self.chrf, 1)


class QualityModel(BaseModel):
    """Content of `quality.json`; errors are those of cross-validation on the validation set."""

    digest: str
    """Digest of the checkpoint whose translations are estimated."""
    num_sentences: int
    correlation: FiniteFloat
    """Pearson correlation of expected and true chrF."""
    sentence_error: FiniteFloat
    """Error that two of three sentences do not exceed."""
    sentence_variance: FiniteFloat
    text_variance: FiniteFloat
    """Variance of the mean error of a text, beyond what the number of its lines explains."""
    log_length_ratio: FiniteFloat
    """Logarithm of target characters per source character."""
    intercept: FiniteFloat
    regression: dict[str, tuple[FiniteFloat, FiniteFloat, FiniteFloat]]
    """Mean, standard deviation and coefficient of each feature."""
    limits: dict[str, FiniteFloat]
    """Values of features beyond which the estimate does not hold."""
    doubt: str = ""
    """Reason why no estimate holds, such as another language."""

    def describe_error(self) -> str:
        return f"expected chrF of a sentence is right within ± {self.sentence_error:.0f} points, for two of three"

    def error_of_mean(self, num_lines: int) -> float:
        """Half the width of the 95 % confidence interval of the mean chrF of the sentences of a text."""
        variance = self.text_variance + self.sentence_variance * (1 / num_lines + 1 / self.num_sentences)
        return float(1.96 * np.sqrt(variance))

    def estimate(self, item: Translation) -> Estimate | None:
        """Expected quality of a translation with details; None for an empty line."""
        if not item.searched:
            return Estimate(100.0, "") if item.text.strip() else None
        features, effects = features_of(item, self.log_length_ratio), dict[str, float]()
        for name, (mean, deviation, coefficient) in self.regression.items():
            deviations = (features[name] - mean) / deviation
            effects[name] = coefficient * max(-MOST_DEVIATIONS, min(MOST_DEVIATIONS, deviations))
        chrf = max(0.0, min(100.0, self.intercept + sum(effects.values())))
        doubts = [doubt for name, doubt in _DOUBTS.items() if features[name] > self.limits[name]]
        doubt = next(filter(None, [self.doubt, *doubts]), "")
        return Estimate(chrf, _reason(item, effects), doubt, characters_of(item.source), item.text == item.source)

    def holds(self, counts: Mapping[str, float]) -> bool:
        """True unless a text is unlike the validation set, by the sum of `counts_of` its estimates."""
        return counts.get("characters_in_doubt", 0) <= _MOST_IN_DOUBT * counts.get("characters", 0)

    def _doubts(self, counts: Mapping[str, float]) -> dict[str, int]:
        return {name: round(counts.get(name, 0)) for name in (self.doubt, *_DOUBTS.values())}

    def describe(self, counts: Mapping[str, float]) -> str:
        """Expected chrF of a text and its error, by the sum of `counts_of` its estimates."""
        number, reasons = round(counts["lines"]), self._doubts(counts)
        reason, num_in_doubt = max(reasons, key=lambda name: reasons[name]), sum(reasons.values())
        if not self.holds(counts):
            return f"expected chrF: unknown, this text is unlike the validation set of the run ({reason})"
        others = f"; no estimate for {num_in_doubt:,}: {reason}" if num_in_doubt else ""
        good = f"{round(counts['above']):,} of {number:,} lines above {_GOOD:.0f}"
        return f"expected chrF {counts['chrf'] / number:.0f} ± {self.error_of_mean(number):.0f}, {good}{others}"


def counts_of(estimate: Estimate) -> dict[str, float]:
    """Numbers of an estimate that are added up for a text."""
    size = estimate.num_characters
    in_doubt = {estimate.doubt: 1, "characters_in_doubt": size} if estimate.doubt else {}
    is_good = not estimate.doubt and estimate.chrf > _GOOD
    return {"lines": 1, "chrf": estimate.chrf, "above": is_good, "characters": size} | in_doubt


def lowest(ranks: Sequence[float], share: float) -> list[int]:
    """Sorted indices of the share of the finite ranks that is lowest; of equal ones, the first."""
    number = int(np.ceil(share * np.isfinite(ranks).sum()))
    return sorted(np.argsort(ranks, kind="stable")[:number].tolist())


def features_of(item: Translation, log_length_ratio: float) -> dict[str, float]:
    """Features of a translation with details that is not copied."""
    details = item.details
    assert details is not None
    log_probs, words = (
        np.maximum(scores or [0.0], _LOWEST_LOG_PROB) for scores in (details.token_scores, details.word_scores)
    )
    source = item.plain if item.marked is None else item.source
    num_words, num_characters = len(source.split()), characters_of(source)
    growth = float(np.log((characters_of(item.text) + 1) / (num_characters + 1))) - log_length_ratio
    pairs = [*zip(details.tokens, details.tokens[1:], strict=False)]
    return {
        "log_prob": float(log_probs.mean()),
        "probability": float(np.exp(log_probs).mean()),
        "deviation": float(log_probs.std()),
        "lowest_word": float(words.min()),
        "unsure_words": float((words < _UNSURE).mean()),
        "length": float(np.log(len(details.source_tokens) + 1)),
        "fertility": len(details.source_tokens) / max(1, num_characters),
        "missing_length": max(0.0, -growth),
        "surplus_length": max(0.0, growth),
        "unknown_words": len(item.unknown_words) / max(1, num_words),
        "repetition": 1 - len(set(pairs)) / max(1, len(pairs)),
    }


def characters_of(text: str) -> int:
    """Number of characters without spaces."""
    return sum(map(len, text.split()))


def _reason(item: Translation, effects: Mapping[str, float]) -> str:
    """What lowers an estimate most, in words."""
    assert item.details is not None
    certainty = sum(effect for name, effect in effects.items() if name not in (*_REASONS, "unknown_words"))
    grouped = {name: effects[name] for name in (*_REASONS, "unknown_words")} | {"certainty": certainty}
    name = min(grouped, key=lambda name: grouped[name])
    if name in _REASONS:
        return _REASONS[name]
    if name == "unknown_words":
        return f"not in the vocabulary: {_named(item.unknown_words)}"
    words = (item.text[start:end].strip(_PUNCTUATION) for start, end in units(item.text))
    scored = sorted(zip(item.details.word_scores, words, strict=False), key=lambda row: row[0])
    unsure = [word for score, word in scored if score < _UNSURE and has_letters(word)]
    return f"unsure of {_named(unsure)}" if unsure else "unsure of its words"


def _named(words: Sequence[str]) -> str:
    return listed([f"'{word:.{_LONGEST_WORD}}'" for word in dict.fromkeys(words)], _NUM_NAMED)


def read_quality(path: Path, engine: str = "mt", checkpoint: str | None = None) -> QualityModel | None:
    """Estimate for a checkpoint of a run, or for an export; None if it has none, or one for other weights."""
    if not (path / QUALITY).exists():
        return None
    model = read_model(path / QUALITY, QualityModel)
    if engine != "mt":
        return model
    from mt_cli.checkpoint.checkpoint import Checkpoint  # Imports PyTorch.
    from mt_cli.checkpoint.directory import RunDirectory

    return model if model.digest == Checkpoint(RunDirectory(path).path_of(checkpoint)).digest else None


def format_review(item: Translation) -> str:
    """Rank, expected chrF, reason, source and translation of a line; empty if nothing was translated."""
    estimate = item.estimate
    if estimate is None or not estimate.reason:
        return ""
    shown = "" if estimate.shown is None else f"{estimate.shown:.1f}"
    cells = repr(estimate.rank), shown, estimate.doubt or estimate.reason, item.source, item.text
    return "\t".join(" ".join(cell.split()) for cell in cells)


def write_review(path: Path, share: float) -> tuple[int, int]:
    """Replace a file of all lines, in the form of `format_review`, by a table of the share with the lowest ranks.

    Returns how many lines the table has, and of how many. Only ranks are in memory.
    """
    with path.open(encoding="utf-8", newline="\n") as lines:
        ranks = [float(rank) if (rank := line.partition("\t")[0].strip()) else inf for line in lines]
    chosen = set(lowest(ranks, share))

    def write(temporary: str) -> None:
        with path.open(encoding="utf-8", newline="\n") as lines, open(temporary, "w", encoding="utf-8") as table:
            table.write("line\texpected_chrf\treason\tsource\ttranslation\n")
            rows = ((row, line.partition("\t")[2]) for row, line in enumerate(lines, start=1) if row - 1 in chosen)
            table.writelines(f"{row}\t{cells}" for row, cells in rows)

    write_atomically(path, write)
    return len(chosen), sum(map(isfinite, ranks))


def units_to_review(
    estimates: Mapping[int, Sequence[Estimate]], quality: QualityModel, share: float, name: str
) -> tuple[set[int], set[int]]:
    """Indices of units to review, the share with the lowest estimates, and of units that need no review.

    `estimates` has those of the lines of each unit, of which the lowest counts. If they do not hold for the document,
    no unit is known to need no review. Prints what is expected of the document, whose name is given.
    """
    counts = Counter[str]()
    for estimate in (estimate for of_unit in estimates.values() for estimate in of_unit):
        counts.update(counts_of(estimate))
    if not counts:
        return set(), set()
    say(f"{name}: {quality.describe(counts)}")
    ranks = {unit: min((estimate.rank for estimate in of_unit), default=inf) for unit, of_unit in estimates.items()}
    indices = [*ranks]
    chosen = {indices[row] for row in lowest([*ranks.values()], share)}
    doubtful = {unit for unit, of_unit in estimates.items() if any(estimate.doubt for estimate in of_unit)}
    certain = ({*ranks} - doubtful) if quality.holds(counts) else set[int]()
    return chosen, certain - chosen
