"""Projection, smoothed cross-entropy and their gradients in one: a fast `objective.smoothed_cross_entropy`.

Legend of the shapes: N target tokens, D d_model, V vocabulary, M tokens of a block, C tokens of a chunk, P passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mt_cli.model.kernels import is_cpu

_BLOCK_TOKENS = 4096
"""Number of tokens whose logit gradients exist at a time, in the format of the activations: enough for a fast product
 (the weight gradient of 2,500 x 8,000 in bf16 on two cores: 26 ms as one product, 35 ms in blocks of 256)."""
_BLOCK_LOGITS = 2**27
"""Number of logits of a block; more than 32,768 entries have smaller blocks. A GPU holds 12 bytes for each logit."""
_CHUNK_TOKENS = 256
"""Number of tokens whose probabilities exist at a time on a CPU, in fp32: ten megabytes, which stay in its caches."""


class Workspace:
    """Memory for intermediate values, reused by the next call.

    New memory costs page faults: up to 26,000 a step for the 80 MB of logit gradients, at 5 microseconds each (two
    cores, a virtual machine).
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def matrix(self, name: str, num_rows: int, num_columns: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Uninitialised matrix; the next matrix of the same name reuses its memory."""
        key = name, device, dtype
        size = num_rows * num_columns
        if key not in self._memory or self._memory[key].numel() < size:
            self._memory.pop(key, None)  # First, because both may not fit in memory.
            with torch.inference_mode(False):  # Training must be able to use what validation allocates.
                self._memory[key] = torch.empty(size, dtype=dtype, device=device)
        return self._memory[key][:size].view(num_rows, num_columns)


def fused_loss(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    num_tokens: int,
    smoothing: float,
    workspace: Workspace,
    consistency: float | None = None,
    bias_V: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of `objective.smoothed_cross_entropy` over the first `num_tokens` rows: smoothed, plain, correct.

    With `consistency`, `hidden_ND` has two passes over the tokens, one after the other, for the sums of
    `objective.consistent_cross_entropy`. The gradient is computed together with the loss, one block of tokens at a
    time, so that N x V values never exist at once.
    """
    num_passes = 1 if consistency is None else 2
    sums: tuple[Tensor, Tensor, Tensor] = _FusedLoss.apply(  # type: ignore[no-untyped-call]
        hidden_ND.view(num_passes, -1, hidden_ND.shape[1]),
        weight_VD,
        bias_V,
        targets_N,
        num_tokens,
        torch.is_grad_enabled(),
        smoothing,
        consistency or 0.0,
        workspace,
    )
    return sums


@dataclass(frozen=True)
class _Loss:
    """Values that all blocks share: projection, options of the loss, and memory for intermediate values."""

    weight: Tensor  # VxD, of the projection.
    bias: Tensor | None  # V.
    smoothing: float
    consistency: float
    workspace: Workspace


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_PND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, *others: Any
    ) -> tuple[Tensor, ...]:
        num_tokens, with_gradient, smoothing, consistency, workspace = others
        loss = _Loss(weight_VD, bias_V, smoothing, consistency, workspace)
        num_passes, num_rows, _ = hidden_PND.shape
        sums = hidden_PND.new_zeros(3, dtype=torch.float32)
        grad_hidden_PND = torch.empty_like(hidden_PND)
        grad_weight_VD: Tensor | None = None
        grad_bias_V = None if bias_V is None else torch.zeros_like(bias_V, dtype=torch.float32)
        block_rows = max(_CHUNK_TOKENS, min(_BLOCK_TOKENS, _BLOCK_LOGITS // len(weight_VD))) // num_passes
        for start in range(0, num_rows, block_rows):
            block = slice(start, start + block_rows)
            hidden_PMD, targets_M = hidden_PND[:, block].contiguous(), targets_N[block]
            grad_MV = None
            if with_gradient:
                shape = num_passes * hidden_PMD.shape[1], len(weight_VD)
                grad_MV = workspace.matrix("grad", *shape, hidden_PND.device, hidden_PND.dtype)
            sums += _block_sums(loss, hidden_PMD, targets_M, num_tokens - start, grad_MV)
            if grad_MV is not None:
                for grad_hidden_ND, grad_NV in zip(grad_hidden_PND, grad_MV.chunk(num_passes), strict=True):
                    torch.mm(grad_NV, weight_VD, out=grad_hidden_ND[block])
                if grad_bias_V is not None:
                    grad_bias_V += grad_MV.sum(dim=0, dtype=torch.float32)
                if not ctx.needs_input_grad[1]:
                    continue
                grad_block_VD = grad_MV.T @ hidden_PMD.flatten(end_dim=1)
                grad_weight_VD = grad_block_VD if grad_weight_VD is None else grad_weight_VD.float() + grad_block_VD
        if with_gradient:
            grad_weight_VD = None if grad_weight_VD is None else grad_weight_VD.to(weight_VD.dtype)
            grad_bias_V = None if bias_V is None or grad_bias_V is None else grad_bias_V.to(bias_V.dtype)
            ctx.save_for_backward(grad_hidden_PND, grad_weight_VD, grad_bias_V)
        smoothed, plain, num_correct = sums.unbind()
        ctx.mark_non_differentiable(plain, num_correct)
        return smoothed, plain, num_correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        input_grads = (None if grad is None else grads[0] * grad for grad in ctx.saved_tensors)
        return *input_grads, None, None, None, None, None, None


def _block_sums(loss: _Loss, hidden_PMD: Tensor, targets_M: Tensor, num_tokens: int, grad_MV: Tensor | None) -> Tensor:
    """Compute the three sums over a block; fill `grad_MV`, if given, with the gradient by the logits."""
    num_passes, size, _ = hidden_PMD.shape
    sums = hidden_PMD.new_zeros(3, dtype=torch.float32)
    num_rows = min(size, _CHUNK_TOKENS // num_passes) if is_cpu(hidden_PMD) else size
    formats = {"logits": hidden_PMD.dtype, "scores": torch.float32, "probs": torch.float32}
    shape, device = (num_passes * num_rows, len(loss.weight)), hidden_PMD.device
    buffers = [loss.workspace.matrix(name, *shape, device, formats[name]) for name in formats]
    for start in range(0, size, num_rows):
        hidden_PCD, targets_C1 = hidden_PMD[:, start : start + num_rows], targets_M[start : start + num_rows, None]
        num_real = max(0, num_tokens - start)
        views = (buffer[: num_passes * len(targets_C1)] for buffer in buffers)
        logits_PCV, scores_PCV, probs_PCV = (view.view(num_passes, len(targets_C1), -1) for view in views)
        for hidden_CD, logits_CV in zip(hidden_PCD, logits_PCV, strict=True):
            if loss.bias is None:
                torch.mm(hidden_CD, loss.weight.T, out=logits_CV)
            else:
                torch.addmm(loss.bias, hidden_CD, loss.weight.T, out=logits_CV)
        scores_PCV.copy_(logits_PCV)
        torch.softmax(scores_PCV, dim=-1, out=probs_PCV)
        targets_PC1 = targets_C1.expand(num_passes, -1, -1)
        log_sum_PC1, losses_PC3 = _token_losses(scores_PCV, probs_PCV, targets_PC1)
        to_all_P, cross_entropy_P, num_correct_P = losses_PC3[:, :num_real].sum(dim=1).unbind(dim=-1)
        smoothed = ((1 - loss.smoothing) * cross_entropy_P + loss.smoothing * to_all_P).mean()
        grads_PCV = None
        if num_passes == 2:
            divergence, grads_PCV = _divergence(scores_PCV, log_sum_PC1, probs_PCV, loss.consistency)
            smoothed += divergence[:num_real].sum()
        sums += torch.stack([smoothed, cross_entropy_P[0], num_correct_P[0]])
        if grad_MV is not None:
            # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the probabilities.
            probs_PCV.sub_(loss.smoothing / probs_PCV.shape[-1])
            probs_PCV.scatter_add_(2, targets_PC1, probs_PCV.new_full(targets_PC1.shape, loss.smoothing - 1))
            if grads_PCV is not None:
                torch.add(grads_PCV, probs_PCV, alpha=0.5, out=probs_PCV)
            probs_PCV[:, num_real:] = 0.0
            grad_MV.view(num_passes, size, -1)[:, start : start + num_rows] = probs_PCV
    return sums


def _token_losses(scores_PCV: Tensor, probs_PCV: Tensor, targets_PC1: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the sum of exp(scores); and for each token, mean loss over all entries, loss, and whether it is right."""
    # Computed from the largest probability, which is never too small for a logarithm.
    largest_PC1 = scores_PCV.amax(dim=-1, keepdim=True)
    log_sum_PC1 = largest_PC1 - probs_PCV.amax(dim=-1, keepdim=True).log()
    right_PC1 = scores_PCV.gather(2, targets_PC1)
    to_all_PC1 = log_sum_PC1 - scores_PCV.mean(dim=-1, keepdim=True)
    return log_sum_PC1, torch.cat([to_all_PC1, log_sum_PC1 - right_PC1, right_PC1 >= largest_PC1], dim=-1)


def _divergence(
    scores_2CV: Tensor, log_sum_2C1: Tensor, probs_2CV: Tensor, consistency: float
) -> tuple[Tensor, Tensor]:
    """Divergence, consistency/4 times KL(p|q) + KL(q|p) in nats, of each of C tokens, and its gradient.

    The gradient by the scores of p is p (log p/q - KL(p|q)) + p - q; it overwrites the scores.
    """
    factor = consistency / 4
    p_CV, q_CV = probs_2CV
    ratio_CV = torch.sub(*scores_2CV, out=scores_2CV[0]).sub_(log_sum_2C1[0] - log_sum_2C1[1])
    p_from_q_C1 = torch.linalg.vecdot(p_CV, ratio_CV)[:, None]
    q_from_p_C1 = -torch.linalg.vecdot(q_CV, ratio_CV)[:, None]
    difference_CV = (p_CV - q_CV).mul_(factor)
    torch.mul(ratio_CV + q_from_p_C1, q_CV, out=scores_2CV[1]).mul_(-factor).sub_(difference_CV)
    ratio_CV.sub_(p_from_q_C1).mul_(p_CV).mul_(factor).add_(difference_CV)
    return factor * (p_from_q_C1 + q_from_p_C1), scores_2CV
