"""Loss and accuracy of the tokens of given translations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from mt_cli.data.batch import Indices, batches_in_order, collate
from mt_cli.data.encode import EncodedPairs, starts_of
from mt_cli.decoding.transformer_engine import log_probs_of
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.group import ALONE, Group


@dataclass(frozen=True)
class TokenScores:
    """Teacher-forced scores of given translations."""

    loss: float  # Cross-entropy without label smoothing, in nats per target token, [EOS] counted.
    token_accuracy: float  # Share of tokens, 0 to 1, that had the highest score.

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


@torch.inference_mode()
def score_tokens(
    objective: Objective,
    pairs: EncodedPairs,
    batch_tokens: int,
    indices: Sequence[int] | None = None,
    group: Group = ALONE,
) -> TokenScores:
    """Score all pairs, or the pairs with the given indices; the processes of a group share the work."""
    objective.eval()
    device = next(objective.parameters()).device
    rows = range(len(pairs)) if indices is None else indices
    lengths = pairs.lengths(np.asarray(rows)).max(axis=0).tolist()

    def scores(batches: Sequence[list[int]]) -> list[tuple[float, float, int]]:
        collated = (collate(pairs, [rows[place] for place in places]) for places in batches)
        # Start all batches before the first sum is read: reading waits for a GPU.
        results = [(objective(batch.to(device)), batch.num_target_tokens) for batch in collated]
        return [(float(sums.cross_entropy), float(sums.num_correct), number) for sums, number in results]

    batch_scores = group.map_shares(scores, batches_in_order(lengths, batch_tokens))
    cross_entropy, num_correct, num_tokens = (sum(values) for values in zip(*batch_scores, strict=True))
    return TokenScores(cross_entropy / num_tokens, num_correct / num_tokens)


@torch.inference_mode()
def pair_losses(
    model: Transformer,
    pairs: EncodedPairs,
    batch_tokens: int,
    advance: Callable[[int], object],
    group: Group = ALONE,
    sources: Indices | None = None,
) -> NDArray[np.float32]:
    """Cross-entropy of every pair, in nats per target token, [EOS] counted; the processes of a group share the work.

    With `sources`, each target is scored with the source of the pair that has this index.
    """
    model.eval()
    device = next(model.parameters()).device

    def losses(batches: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        results = []
        for indices in batches:
            batch = collate(pairs, indices)
            source = batch.source if sources is None else collate(pairs, sources[indices]).source
            batch = replace(batch, source=source).to(device)
            expected = batch.tgt_output_ids[: batch.num_target_tokens].long()
            log_probs = log_probs_of(model, model.hidden_states(batch)[: len(expected)], expected).cpu().numpy()
            lengths = pairs.lengths(np.array(indices))[1] + 1
            results.append(-np.add.reduceat(log_probs, starts_of(lengths)) / lengths)
            advance(len(indices) * group.size)
        return results

    batches = batches_in_order(pairs.lengths().max(axis=0).tolist(), batch_tokens)
    column = np.empty(len(pairs), np.float32)
    column[np.concatenate(batches)] = np.concatenate(group.map_shares(losses, batches))
    return column
