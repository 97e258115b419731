"""Definition of the loss, as sums over tokens. Knows hidden states and references; does not know steps or averages.

Callers divide once, by the number of target tokens, so that batches of any size add up to the same gradient. A term
that needs logits is defined here and computed in `model/fused_loss.py`, where they exist for a few tokens at a time.

Legend of the shapes: N target tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from mt_cli.batching.batches import Batch
from mt_cli.config.training import TrainingConfig
from mt_cli.model.fused_loss import Workspace, fused_loss
from mt_cli.model.transformer import Transformer


@dataclass(frozen=True)
class LossSums:
    """Sums over the target tokens of a batch, in nats, as tensors without dimension."""

    objective: Tensor  # Sum of all terms of the loss, which training minimises.
    cross_entropy: Tensor  # Minus the log-probability of the references; per token, its exponential is the perplexity.
    num_correct: Tensor  # Tokens for which the reference had the highest score.

    def __add__(self, other: LossSums) -> LossSums:
        """Sums over the tokens of two batches."""
        return LossSums(*(one + two for one, two in zip(vars(self).values(), vars(other).values(), strict=True)))


def smoothed_cross_entropy(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, bias_V: Tensor | None = None
) -> LossSums:
    """Cross-entropy of the logits `hidden_ND @ weight_VD.T + bias_V` with label smoothing.

    References keep 1 - smoothing of the probability; the rest is spread evenly over all V entries (Szegedy et al. 2016,
    section 7). This is the definition; `Objective` uses `fused_loss`, which needs less time and memory.
    """
    log_probs_NV = F.linear(hidden_ND, weight_VD, bias_V).float().log_softmax(dim=-1)
    right_N = log_probs_NV.gather(1, targets_N[:, None])[:, 0]
    cross_entropy = -right_N.sum()
    to_all = -log_probs_NV.mean(dim=-1).sum()
    num_correct = (right_N >= log_probs_NV.amax(dim=-1)).sum()
    return LossSums((1 - smoothing) * cross_entropy + smoothing * to_all, cross_entropy.detach(), num_correct)


def consistent_cross_entropy(
    hidden_2ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    smoothing: float,
    consistency: float,
    bias_V: Tensor | None = None,
) -> LossSums:
    """R-Drop: the cross-entropy of two passes with different dropout, and the divergence of their distributions.

    The objective is the mean of both smoothed cross-entropies plus consistency/4 times KL(p|q) + KL(q|p), half of the
    loss of Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks", section 2: `consistency` is their alpha.
    The other sums belong to the first pass. This is the definition; `Objective` uses `fused_loss`.
    """
    first, second = (smoothed_cross_entropy(x_ND, weight_VD, targets_N, smoothing, bias_V) for x_ND in hidden_2ND)
    log_p_NV, log_q_NV = F.linear(hidden_2ND, weight_VD, bias_V).float().log_softmax(dim=-1)
    divergence = ((log_p_NV.exp() - log_q_NV.exp()) * (log_p_NV - log_q_NV)).sum()
    return replace(first, objective=(first.objective + second.objective) / 2 + consistency / 4 * divergence)


class Objective(nn.Module):
    """Model and its loss, as one module. Terms of the loss take their options from the config."""

    def __init__(self, model: Transformer, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        model.recomputes_layers = config.recompute_layers
        self.label_smoothing = config.label_smoothing
        self.r_drop, self.r_drop_start_step = config.r_drop, config.r_drop_start_step
        self.step = 1  # The current optimizer update.
        self._workspace = Workspace()

    def forward(self, batch: Batch) -> LossSums:
        """Sums over the target tokens of a batch, padding excluded."""
        is_twice = self.training and self.r_drop is not None and self.step >= self.r_drop_start_step
        hidden_ND = self.model.hidden_states(batch.twice() if is_twice else batch)
        # Add further terms to the objective here, as sums over the same tokens, only if `self.training`.
        sums = fused_loss(
            hidden_ND,
            self.model.projection.weight,
            batch.tgt_output_ids,
            batch.num_target_tokens,
            self.label_smoothing,
            self._workspace,
            self.r_drop if is_twice else None,
            self.model.projection.bias,
        )
        return LossSums(*sums)
