"""The loss: label-smoothed cross-entropy, and R-Drop, as sums over the target tokens of a batch.

Callers divide once, by the number of target tokens, so that batches of any size add up to the same gradient.
`Loss.sums` is the definition, which a GPU compiles. Otherwise `Loss.sums_in_blocks` computes the same sums together
with their gradients, from the logits of a few tokens at a time.

Legend of the shapes: P passes (2 with R-Drop, else 1), N target tokens, M tokens of a block, C tokens of a chunk,
D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import Batch
from mt_cli.model.kernels import is_cpu, mark_rows
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import PAD_ID

_BLOCK_TOKENS, _BLOCK_LOGITS = 4096, 2**27
"""Limits of a block, whose logit gradients exist at a time; the second applies if V is above 32,768. A GPU holds 12
bytes for each logit."""
_CHUNK_TOKENS = 256
"""Number of tokens whose probabilities exist at a time on a CPU, in fp32: ten megabytes, which stay in its caches."""


@dataclass(frozen=True)
class LossSums:
    """Sums over the target tokens of a batch, in nats, as tensors without dimension."""

    objective: Tensor  # Sum of all terms of the loss, which training minimises.
    cross_entropy: Tensor  # Minus the log-probability of the references; per token, its exponential is the perplexity.
    num_correct: Tensor  # Tokens for which the reference had the highest score.

    def __add__(self, other: LossSums) -> LossSums:
        """Sums over the tokens of two batches."""
        return LossSums(*(one + two for one, two in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Loss:
    """Options of the loss.

    References keep 1 - smoothing of the probability; the rest is spread evenly over all V tokens (Szegedy et al. 2016,
    section 7). R-Drop takes the mean of two passes with different dropout, plus consistency/4 times KL(p|q) + KL(q|p)
    of their distributions: half of the loss of Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks",
    section 2. `consistency` is their alpha.
    """

    smoothing: float = 0.0
    consistency: float | None = None

    def sums(self, hidden_PND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> LossSums:
        """Definition of the loss of the logits `hidden_PND @ weight_VD.T + bias_V`; [PAD] in `targets_N` counts as 0.

        Cross-entropy and correct tokens are those of the first pass.
        """
        logits_PNV = F.linear(hidden_PND, weight_VD, bias_V).float()
        losses = [_cross_entropy(logits_NV, targets_N, self.smoothing) for logits_NV in logits_PNV]
        objective = torch.stack(losses).mean()
        if len(logits_PNV) == 2:
            log_p_NV, log_q_NV = logits_PNV.log_softmax(dim=-1)
            divergence_N = ((log_p_NV.exp() - log_q_NV.exp()) * (log_p_NV - log_q_NV)).sum(dim=-1)
            objective = objective + (self.consistency or 0.0) / 4 * (divergence_N * (targets_N != PAD_ID)).sum()
        logits_NV = logits_PNV[0].detach()
        is_right_N = logits_NV.gather(1, targets_N[:, None])[:, 0] >= logits_NV.amax(dim=-1)
        num_correct = (is_right_N & (targets_N != PAD_ID)).sum()
        return LossSums(objective, _cross_entropy(logits_NV, targets_N, 0.0), num_correct)

    def sums_in_blocks(
        self,
        hidden_PND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        num_tokens: int,
        grad_scale: Tensor | None = None,
    ) -> LossSums:
        """`sums` of the first `num_tokens` rows with its gradient, so that N x V values never exist at once.

        Gradients are rounded to the dtype of the hidden states. In fp16, pass the factor by which the backward pass
        will multiply the objective as `grad_scale`, so that small gradients do not round to zero.
        """
        options = self, num_tokens, torch.is_grad_enabled(), grad_scale
        sums: list[Tensor] = _Blockwise.apply(hidden_PND, weight_VD, bias_V, targets_N, *options)  # type: ignore[no-untyped-call]
        return LossSums(*sums)


def _cross_entropy(logits_NV: Tensor, targets_N: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(logits_NV, targets_N, ignore_index=PAD_ID, reduction="sum", label_smoothing=smoothing)


@cache
def _compiled(definition: Callable[..., LossSums]) -> Callable[..., LossSums]:
    return torch.compile(definition)


class Objective(nn.Module):
    """Model and its loss, as one module."""

    def __init__(self, model: Transformer, config: TrainingConfig) -> None:
        super().__init__()
        self.model = model
        self.loss = Loss(config.label_smoothing, config.r_drop)
        self.compiles_loss = False
        """True if training compiles the loss, which needs more memory."""

    def forward(self, batch: Batch, grad_scale: Tensor | None = None) -> LossSums:
        """Sums over the target tokens of a batch, padding excluded. With R-Drop, training computes it twice.

        `grad_scale`: see `Loss.sums_in_blocks`.
        """
        num_passes = 2 if self.training and self.loss.consistency is not None else 1
        hidden_PND = torch.stack([self.model.hidden_states(batch) for _ in range(num_passes)])
        inputs = hidden_PND, self.model.projection.weight, self.model.projection.bias
        # Add further terms to the objective here, as sums over the same tokens, only if `self.training`.
        if self.compiles_loss and self.training:
            mark_rows(batch.tgt_output_ids)
            mark_rows(hidden_PND, dim=1)
            return _compiled(Loss.sums)(self.loss, *inputs, batch.tgt_output_ids)
        return self.loss.sums_in_blocks(*inputs, batch.tgt_output_ids, batch.num_target_tokens, grad_scale)


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_PND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, *options: Any
    ) -> tuple[Tensor, ...]:
        loss, num_tokens, has_gradient, ctx.grad_scale = options
        num_passes, num_rows, _ = hidden_PND.shape
        sums = hidden_PND.new_zeros(3, dtype=torch.float32)
        grad_hidden_PND = torch.empty_like(hidden_PND)
        grad_weight_VD: Tensor | None = None
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=torch.float32)
        block_rows = max(_CHUNK_TOKENS, min(_BLOCK_TOKENS, _BLOCK_LOGITS // len(weight_VD))) // num_passes
        for start in range(0, num_rows, block_rows):
            block = slice(start, start + block_rows)
            hidden_PMD = hidden_PND[:, block].contiguous()
            block_sums, grad_MV = _block_sums(
                loss, hidden_PMD, weight_VD, bias_V, targets_N[block], num_tokens - start, has_gradient, ctx.grad_scale
            )
            sums += block_sums
            if grad_MV is None:
                continue
            for grad_ND, grad_NV in zip(grad_hidden_PND, grad_MV.chunk(num_passes), strict=True):
                torch.mm(grad_NV, weight_VD, out=grad_ND[block])
            if grad_bias_V is not None:
                grad_bias_V += grad_MV.sum(dim=0, dtype=torch.float32)
            if ctx.needs_input_grad[1]:
                grad_block_VD = grad_MV.T @ hidden_PMD.flatten(end_dim=1)
                grad_weight_VD = grad_block_VD if grad_weight_VD is None else grad_weight_VD.float() + grad_block_VD
        if has_gradient:
            grads = (grad if grad is None else grad.to(weight_VD.dtype) for grad in (grad_weight_VD, grad_bias_V))
            ctx.save_for_backward(grad_hidden_PND, *grads)
        smoothed, plain, num_correct = sums.unbind()
        ctx.mark_non_differentiable(plain, num_correct)
        return smoothed, plain, num_correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        factor = grads[0] if ctx.grad_scale is None else grads[0] / ctx.grad_scale
        return *(None if grad is None else factor * grad for grad in ctx.saved_tensors), *[None] * 5


def _block_sums(
    loss: Loss,
    hidden_PMD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_M: Tensor,
    num_tokens: int,
    has_gradient: bool,
    grad_scale: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """The three sums over the first `num_tokens` rows of a block, and the gradient by its logits, scaled."""
    num_passes, size, _ = hidden_PMD.shape
    num_rows = min(size, _CHUNK_TOKENS // num_passes) if is_cpu(hidden_PMD) else size
    sums = hidden_PMD.new_zeros(3, dtype=torch.float32)
    scores, probs = (sums.new_empty(num_passes, num_rows, len(weight_VD)) for _ in range(2))
    grad_PMV = hidden_PMD.new_empty(num_passes, size, len(weight_VD)) if has_gradient else None
    for start in range(0, size, num_rows):
        chunk, num_real = slice(start, start + num_rows), max(0, num_tokens - start)
        targets_PC1 = targets_M[chunk, None].expand(num_passes, -1, -1)
        scores_PCV, probs_PCV = scores[:, : targets_PC1.shape[1]], probs[:, : targets_PC1.shape[1]]
        for hidden_CD, scores_CV in zip(hidden_PMD[:, chunk], scores_PCV, strict=True):
            scores_CV.copy_(F.linear(hidden_CD, weight_VD, bias_V))
        torch.softmax(scores_PCV, dim=-1, out=probs_PCV)
        # Computed from the largest probability, which is never too small for a logarithm.
        largest_PC1, right_PC1 = scores_PCV.amax(dim=-1, keepdim=True), scores_PCV.gather(2, targets_PC1)
        log_sum_PC1 = largest_PC1 - probs_PCV.amax(dim=-1, keepdim=True).log()
        # Label smoothing s: (1 - s) * -log p(target) + s * the mean over the vocabulary of -log p(token) (section 5.4).
        uniform_PC1 = log_sum_PC1 - scores_PCV.mean(dim=-1, keepdim=True)
        columns_PC3 = torch.cat([uniform_PC1, log_sum_PC1 - right_PC1, right_PC1 >= largest_PC1], dim=-1)
        uniform_P, cross_entropy_P, num_correct_P = columns_PC3[:, :num_real].sum(dim=1).unbind(dim=-1)
        smoothed = ((1 - loss.smoothing) * cross_entropy_P + loss.smoothing * uniform_P).mean()
        grad_PCV = None
        if num_passes == 2:
            divergence_C1, grad_PCV = _divergence(scores_PCV, log_sum_PC1, probs_PCV, loss.consistency or 0.0)
            smoothed += divergence_C1[:num_real].sum()
        sums += torch.stack([smoothed, cross_entropy_P[0], num_correct_P[0]])
        if grad_PMV is not None:
            # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the probabilities.
            probs_PCV.sub_(loss.smoothing / len(weight_VD))
            probs_PCV.scatter_add_(2, targets_PC1, probs_PCV.new_full(targets_PC1.shape, loss.smoothing - 1))
            if grad_PCV is not None:
                torch.add(grad_PCV, probs_PCV, alpha=0.5, out=probs_PCV)
            probs_PCV[:, num_real:] = 0.0
            if grad_scale is not None:
                probs_PCV.mul_(grad_scale)
            grad_PMV[:, chunk] = probs_PCV
    return sums, None if grad_PMV is None else grad_PMV.flatten(end_dim=1)


def _divergence(
    scores_2CV: Tensor, log_sum_2C1: Tensor, probs_2CV: Tensor, consistency: float
) -> tuple[Tensor, Tensor]:
    """Divergence, consistency/4 times KL(p|q) + KL(q|p) in nats, of each of C tokens, and its gradient.

    The gradient by the scores of p is p (log p/q - KL(p|q)) + p - q.
    """
    factor = consistency / 4
    p_CV, q_CV = probs_2CV
    ratio_CV = (scores_2CV[0] - scores_2CV[1]).sub_(log_sum_2C1[0] - log_sum_2C1[1])
    p_from_q_C1 = torch.linalg.vecdot(p_CV, ratio_CV)[:, None]
    q_from_p_C1 = -torch.linalg.vecdot(q_CV, ratio_CV)[:, None]
    difference_CV = (p_CV - q_CV).mul_(factor)
    grad_p_CV = (ratio_CV - p_from_q_C1).mul_(p_CV).mul_(factor).add_(difference_CV)
    grad_q_CV = (ratio_CV + q_from_p_C1).mul_(q_CV).mul_(-factor).sub_(difference_CV)
    return factor * (p_from_q_C1 + q_from_p_C1), torch.stack([grad_p_CV, grad_q_CV])
