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

# Legend of the shapes: N target tokens, D d_model, V vocabulary, M tokens of a piece, C tokens of a chunk.

_PIECE_TOKENS = 4096
"""Tokens whose logit gradients exist at a time, in the number format of the activations: what a product needs to be
fast (the weight gradient of 2,500 x 8,000 in bf16 on two cores: 26 ms as one product, 35 ms in pieces of 256)."""
_ROWS_AT_A_TIME = 256
"""Tokens whose probabilities exist at a time on a CPU, in fp32: ten megabytes, which stay in its caches."""


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

    The rest of the mass is spread evenly over all V entries (Szegedy et al. 2016, section 7). The gradient is computed
    together with the loss, a piece of the tokens at a time, so that N x V values never exist at once.
    """
    sums = _SmoothedCrossEntropy.apply(hidden_ND, weight_VD, targets_N, smoothing, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return LossSums(*sums)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Projection and loss in one; needs a few rows of fp32 probabilities at a time instead of N x V."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, with_gradient: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums = hidden_ND.new_zeros(3, dtype=torch.float32)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for start in range(0, len(hidden_ND), _PIECE_TOKENS):
            piece = slice(start, start + _PIECE_TOKENS)
            hidden_MD, targets_M = hidden_ND[piece], targets_N[piece]
            grad_MV = hidden_ND.new_empty(len(hidden_MD), len(weight_VD)) if with_gradient else None
            sums += _loss_and_logit_gradients(hidden_MD, weight_VD, targets_M, smoothing, grad_MV)
            if grad_MV is not None:
                torch.mm(grad_MV, weight_VD, out=grad_hidden_ND[piece])
                grad_weight_VD += grad_MV.T @ hidden_MD
        if with_gradient:
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        objective, cross_entropy, num_correct = sums.unbind()
        ctx.mark_non_differentiable(cross_entropy, num_correct)
        return objective, cross_entropy, num_correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grads[0] * grad_hidden_ND, grads[0] * grad_weight_VD, None, None, None


def _loss_and_logit_gradients(
    hidden_MD: Tensor, weight_VD: Tensor, targets_M: Tensor, smoothing: float, grad_MV: Tensor | None
) -> Tensor:
    """The three sums of `LossSums`; fills `grad_MV`, if given, with the objective's gradient by the logits."""
    sums = hidden_MD.new_zeros(3, dtype=torch.float32)
    num_rows = min(len(hidden_MD), _ROWS_AT_A_TIME if hidden_MD.device.type == "cpu" else _PIECE_TOKENS)
    # The same memory for every chunk.
    buffers = [
        hidden_MD.new_empty(num_rows, len(weight_VD), dtype=each)
        for each in (hidden_MD.dtype, torch.float32, torch.float32)
    ]
    for start in range(0, len(hidden_MD), num_rows):
        hidden_CD, targets_C1 = hidden_MD[start : start + num_rows], targets_M[start : start + num_rows, None]
        logits_CV, scores_CV, probs_CV = (buffer[: len(hidden_CD)] for buffer in buffers)
        scores_CV.copy_(torch.mm(hidden_CD, weight_VD.T, out=logits_CV))
        torch.softmax(scores_CV, dim=-1, out=probs_CV)
        # log sum exp, from the largest probability, which is never too small for its logarithm.
        largest_C1 = scores_CV.amax(dim=-1, keepdim=True)
        log_sum_C1 = largest_C1 - probs_CV.amax(dim=-1, keepdim=True).log()
        right_C1 = scores_CV.gather(1, targets_C1)
        cross_entropy = (log_sum_C1 - right_C1).sum()
        to_all = (log_sum_C1 - scores_CV.mean(dim=-1, keepdim=True)).sum()
        num_correct = (right_C1 >= largest_C1).sum()
        sums += torch.stack([(1 - smoothing) * cross_entropy + smoothing * to_all, cross_entropy, num_correct.float()])
        if grad_MV is not None:
            # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the probabilities.
            probs_CV.sub_(smoothing / probs_CV.shape[1])
            probs_CV.scatter_add_(1, targets_C1, probs_CV.new_full(targets_C1.shape, smoothing - 1))
            grad_MV[start : start + num_rows] = probs_CV
    return sums
