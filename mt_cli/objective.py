"""Label-smoothed cross-entropy as sums. Knows hidden states and right answers; does not know steps or averages.

Callers divide once, by a count of tokens, so that batches of any size add up to the same gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.batching.batches import Batch
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer import PAD_ID

# Legend of the shapes: N target tokens, D d_model, V vocabulary, C tokens of a chunk.

_CHUNK_TOKENS = 1024


@dataclass(frozen=True)
class LossSums:
    """Sums over the tokens of a batch, as tensors without dimension; in nats."""

    objective: Tensor
    """What is minimised: the cross-entropy against smoothed labels."""
    cross_entropy: Tensor
    """Minus the log-probability of the right tokens; divided by their number, its exponential is the perplexity."""
    num_correct: Tensor
    """Tokens for which the right answer had the highest score."""


class Objective(nn.Module):
    """A model and what it is trained to do, as one module."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, batch: Batch) -> LossSums:
        """Sums over the tokens of a batch that are not padding."""
        memory, memory_mask = self.model.encode(batch.src_ids)
        hidden_BTD = self.model.decode(batch.tgt_input_ids, memory, memory_mask)
        is_token = batch.tgt_output_ids != PAD_ID
        return smoothed_cross_entropy(
            hidden_BTD[is_token], self.model.projection.weight, batch.tgt_output_ids[is_token], self.label_smoothing
        )


def smoothed_cross_entropy(hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float) -> LossSums:
    """Sums of the cross-entropy of `hidden_ND @ weight_VD.T` against labels that keep 1 - smoothing of their mass.

    The rest of the mass is spread evenly over all V entries (Szegedy et al. 2016, section 7). Logits exist for about
    a thousand tokens at a time, in fp32, and the gradient is computed with them.
    """
    sums = _SmoothedCrossEntropy.apply(hidden_ND, weight_VD, targets_N, smoothing, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return LossSums(*sums)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Projection and loss in one, chunk by chunk; needs one chunk of logits instead of N x V."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums = hidden_ND.new_zeros(3, dtype=torch.float32)
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_gradient else None
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32) if with_gradient else None
        for start in range(0, len(hidden_ND), _CHUNK_TOKENS):
            chunk = slice(start, start + _CHUNK_TOKENS)
            hidden_CD, targets_C1 = hidden_ND[chunk], targets_N[chunk, None]
            log_probs_CV = (hidden_CD @ weight_VD.T).float().log_softmax(dim=-1)
            right_C1 = log_probs_CV.gather(1, targets_C1)
            cross_entropy, to_all = -right_C1.sum(), -log_probs_CV.mean(dim=-1).sum()
            num_correct = (right_C1 >= log_probs_CV.amax(dim=-1, keepdim=True)).sum()
            sums += torch.stack(
                [(1 - smoothing) * cross_entropy + smoothing * to_all, cross_entropy, num_correct.float()]
            )
            if grad_hidden_ND is not None and grad_weight_VD is not None:
                # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the logits.
                grad_CV = log_probs_CV.exp_().sub_(smoothing / weight_VD.shape[0])
                grad_CV.scatter_add_(1, targets_C1, torch.full_like(right_C1, smoothing - 1))
                grad_CV = grad_CV.to(hidden_ND.dtype)
                grad_hidden_ND[chunk] = grad_CV @ weight_VD
                grad_weight_VD += grad_CV.T @ hidden_CD
        if grad_hidden_ND is not None and grad_weight_VD is not None:
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        objective, cross_entropy, num_correct = sums.unbind()
        ctx.mark_non_differentiable(cross_entropy, num_correct)
        return objective, cross_entropy, num_correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grads[0] * grad_hidden_ND, grads[0] * grad_weight_VD, None, None, None
