"""Definition of the loss, as sums over tokens. Knows hidden states and references; does not know steps or averages.

Callers divide once, by the number of target tokens, so that batches of any size add up to the same gradient. Terms of
the loss that need logits are defined here. On a GPU the definition is compiled; otherwise `model/fused_loss.py`
computes the same sums from the logits of a few tokens at a time.

Legend of the shapes: N target tokens, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt_cli.batching.batches import Batch
from mt_cli.config.training import TrainingConfig
from mt_cli.model.fused_loss import Workspace, fused_loss
from mt_cli.model.kernels import mark_rows
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import PAD_ID


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
    section 7). Rows whose reference is [PAD] do not count.
    """
    logits_NV = F.linear(hidden_ND, weight_VD, bias_V).float()
    return _sums(logits_NV, targets_N, _cross_entropy(logits_NV, targets_N, smoothing))


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
    The other sums belong to the first pass.
    """
    logits_2NV = F.linear(hidden_2ND, weight_VD, bias_V).float()
    first, second = (_cross_entropy(logits_NV, targets_N, smoothing) for logits_NV in logits_2NV)
    log_p_NV, log_q_NV = logits_2NV.log_softmax(dim=-1)
    divergence_N = ((log_p_NV.exp() - log_q_NV.exp()) * (log_p_NV - log_q_NV)).sum(dim=-1)
    divergence = (divergence_N * (targets_N != PAD_ID)).sum()
    return _sums(logits_2NV[0], targets_N, (first + second) / 2 + consistency / 4 * divergence)


def _cross_entropy(logits_NV: Tensor, targets_N: Tensor, smoothing: float = 0.0) -> Tensor:
    return F.cross_entropy(logits_NV, targets_N, ignore_index=PAD_ID, reduction="sum", label_smoothing=smoothing)


def _sums(logits_NV: Tensor, targets_N: Tensor, objective: Tensor) -> LossSums:
    """Sums of an objective, of the cross-entropy, and of the correct tokens."""
    logits_NV = logits_NV.detach()
    is_right_N = logits_NV.gather(1, targets_N[:, None])[:, 0] >= logits_NV.amax(dim=-1)
    num_correct = (is_right_N & (targets_N != PAD_ID)).sum()
    return LossSums(objective, _cross_entropy(logits_NV, targets_N), num_correct)


@cache
def _compiled(definition: Callable[..., LossSums]) -> Callable[..., LossSums]:
    return torch.compile(definition)


class Objective(nn.Module):
    """Model and its loss, as one module. Terms of the loss take their options from the config."""

    def __init__(self, model: Transformer, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = config.label_smoothing
        self.r_drop, self.r_drop_start_step = config.r_drop, config.r_drop_start_step
        self.step = 1  # The current optimizer update.
        self.compiles_loss = False  # Whether training compiles the loss, which needs more memory.
        self._workspace = Workspace()

    @property
    def is_twice(self) -> bool:
        """Whether the current step computes every batch twice, for R-Drop."""
        return self.training and self.r_drop is not None and self.step >= self.r_drop_start_step

    def forward(self, batch: Batch) -> LossSums:
        """Sums over the target tokens of a batch, padding excluded."""
        hidden_ND = self.model.hidden_states(batch.twice() if self.is_twice else batch)
        # Add further terms to the objective here, as sums over the same tokens, only if `self.training`.
        if self.compiles_loss and self.training:
            return self._compiled_loss(hidden_ND, batch.tgt_output_ids)
        sums = fused_loss(
            hidden_ND,
            self.model.projection.weight,
            batch.tgt_output_ids,
            batch.num_target_tokens,
            self.label_smoothing,
            self._workspace,
            self.r_drop if self.is_twice else None,
            self.model.projection.bias,
        )
        return LossSums(*sums)

    def _compiled_loss(self, hidden_ND: Tensor, targets_N: Tensor) -> LossSums:
        """Definition of the loss, compiled for any number of rows."""
        weight_VD, bias_V = self.model.projection.weight, self.model.projection.bias
        mark_rows(targets_N)
        if not self.is_twice:
            mark_rows(hidden_ND)
            definition = _compiled(smoothed_cross_entropy)
            return definition(hidden_ND, weight_VD, targets_N, self.label_smoothing, bias_V)
        hidden_2ND = hidden_ND.view(2, -1, hidden_ND.shape[1])
        mark_rows(hidden_2ND, dim=1)
        definition = _compiled(consistent_cross_entropy)
        return definition(hidden_2ND, weight_VD, targets_N, self.label_smoothing, self.r_drop, bias_V)
