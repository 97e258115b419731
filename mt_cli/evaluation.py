"""How good a model is: loss and accuracy on pairs, and BLEU, chrF and TER of translations.

Scores are sacreBLEU's, on text as a person would read it, and carry its signature (Post 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mt_cli.batching.batches import batches_in_order, collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.objective import Objective


@dataclass(frozen=True)
class TokenScores:
    """How well a model predicts given translations, token by token."""

    loss: float
    """Cross-entropy without label smoothing, in nats per target token, [EOS] counted."""
    token_accuracy: float
    """Share of tokens, 0 to 1, that had the highest score."""

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(min(self.loss, 700.0))


@torch.inference_mode()
def score_tokens(
    objective: Objective, pairs: EncodedPairs, batch_tokens: int, indices: Sequence[int] | None = None
) -> TokenScores:
    """Teacher-forced scores over all pairs, or over those with some indices."""
    objective.eval()
    device = next(objective.parameters()).device
    chosen = range(len(pairs)) if indices is None else indices
    lengths = pairs.lengths().max(axis=0)[list(chosen)].tolist()
    cross_entropy = torch.zeros((), dtype=torch.float64)
    num_correct = torch.zeros((), dtype=torch.float64)
    num_tokens = 0
    for places in batches_in_order(lengths, batch_tokens):
        batch = collate(pairs, [chosen[place] for place in places]).to(device)
        sums = objective(batch)
        cross_entropy += sums.cross_entropy.cpu()
        num_correct += sums.num_correct.cpu()
        num_tokens += batch.num_target_tokens
    return TokenScores(float(cross_entropy) / num_tokens, float(num_correct) / num_tokens)


METRICS = ("bleu", "chrf", "chrf++", "ter")
_NUM_RESAMPLED = 1000


def score_texts(hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = METRICS) -> dict[str, Any]:
    """`{"bleu": {"score": 0-100, "signature": ...}, "chrf": ...}` of aligned lines.

    chrF++ is chrF with single words and pairs of words beside characters (Popovic 2017).
    """
    return {
        name: {
            "score": round(metric.corpus_score(list(hypotheses), [list(references)]).score, 4),
            "signature": str(metric.get_signature()),
        }
        for name, metric in _metrics(names).items()
    }


def confidence(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """For each metric half the width of the interval that holds 95 % of 1,000 resampled scores (Koehn 2004)."""
    (intervals,) = _resampled([hypotheses], references)
    return {name: round(float(result.ci), 4) for name, result in intervals.items()}


def compare_texts(
    hypotheses: Sequence[str], rivals: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, float]]:
    """`{"bleu": {"score", "p_value"}, ...}` of rivals: their score, and how likely chance makes such a difference.

    By paired bootstrap resampling (Koehn 2004), as sacreBLEU does it.
    """
    own, tested = _resampled([hypotheses, rivals], references)
    # Chance makes a difference of zero or more always; sacreBLEU would say 1/1,001 of equal systems.
    return {
        name: {
            "score": round(float(result.score), 4),
            "p_value": 1.0 if result.score == own[name].score else round(float(result.p_value), 4),
        }
        for name, result in tested.items()
    }


def _resampled(systems: Sequence[Sequence[str]], references: Sequence[str]) -> list[dict[str, Any]]:
    """SacreBLEU's results for each system by metric, the first being the one that others are compared with."""
    from sacrebleu.significance import PairedTest

    named = [(str(number), list(system)) for number, system in enumerate(systems)]
    test = PairedTest(named, _metrics(METRICS), [list(references)], test_type="bs", n_samples=_NUM_RESAMPLED)
    columns = [column for title, column in test()[1].items() if title != "System"]
    return [dict(zip(METRICS, row, strict=True)) for row in zip(*columns, strict=True)]


def _metrics(names: Sequence[str]) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF, TER

    makers = {"bleu": BLEU, "chrf": CHRF, "chrf++": lambda: CHRF(word_order=2), "ter": TER}
    return {name: makers[name]() for name in names}
