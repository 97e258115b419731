"""How well a model predicts given translations: loss and accuracy of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
