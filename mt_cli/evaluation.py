"""How good a model is: loss and accuracy on pairs, and BLEU, chrF and TER of translations.

Scores are sacreBLEU's, on text as a person would read it, and carry its signature (Post 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt_cli.batching.batches import batches_in_order, collate, pad
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding import Hypothesis, SearchSettings, search
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective
from mt_cli.tokenizer import EOS_ID


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
def score_tokens(objective: Objective, pairs: EncodedPairs, batch_tokens: int) -> TokenScores:
    """Teacher-forced scores over all pairs."""
    objective.eval()
    device = next(objective.parameters()).device
    lengths = pairs.lengths().max(axis=0).tolist()
    cross_entropy = torch.zeros((), dtype=torch.float64)
    num_correct = torch.zeros((), dtype=torch.float64)
    num_tokens = 0
    for indices in batches_in_order(lengths, batch_tokens):
        batch = collate(pairs, indices).to(device)
        sums = objective(batch)
        cross_entropy += sums.cross_entropy.cpu()
        num_correct += sums.num_correct.cpu()
        num_tokens += batch.num_target_tokens
    return TokenScores(float(cross_entropy) / num_tokens, float(num_correct) / num_tokens)


def translate_ids(
    model: Transformer, sources: Sequence[Tensor | Sequence[int]], decoding: DecodingConfig, num_best: int = 1
) -> list[list[Hypothesis]]:
    """The best hypotheses for each sequence of source ids, in the order given; long ones are searched first."""
    model.eval()
    device = next(model.parameters()).device
    settings = SearchSettings(
        beam_size=max(decoding.beam_size, num_best),
        num_best=num_best,
        length_penalty=decoding.length_penalty,
        max_length_ratio=decoding.max_length_ratio,
        may_be_unknown=decoding.unk != "avoid",
    )
    found: dict[int, list[Hypothesis]] = {}
    for indices in batches_in_order([len(ids) for ids in sources], decoding.batch_tokens // settings.beam_size):
        src_ids = pad([torch.as_tensor(sources[index]) for index in indices], end=EOS_ID).to(device)
        found.update(zip(indices, search(model, src_ids, settings), strict=True))
    return [found[index] for index in range(len(sources))]


def score_texts(hypotheses: Sequence[str], references: Sequence[str], with_ter: bool = True) -> dict[str, Any]:
    """`{"bleu": {"score": 0-100, "signature": ...}, "chrf": ..., "ter": ...}` of aligned lines."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    metrics: dict[str, Any] = {"bleu": BLEU(), "chrf": CHRF()} | ({"ter": TER()} if with_ter else {})
    return {
        name: {
            "score": round(metric.corpus_score(list(hypotheses), [list(references)]).score, 4),
            "signature": str(metric.get_signature()),
        }
        for name, metric in metrics.items()
    }
