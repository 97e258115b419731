"""Projection, smoothed cross-entropy and their gradients in one: `objective.smoothed_cross_entropy`, fast.

Legend of the shapes: N target tokens, D d_model, V vocabulary, M tokens of a block, C tokens of a chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mt_cli.model.kernels import is_cpu

_BLOCK_TOKENS = 4096
"""Tokens whose logit gradients exist at a time, in the number format of the activations: as many as a product needs to
be fast (the weight gradient of 2,500 x 8,000 in bf16 on two cores: 26 ms as one product, 35 ms in blocks of 256)."""
_CHUNK_TOKENS = 256
"""Tokens whose probabilities exist at a time on a CPU, in fp32: ten megabytes, which stay in its caches."""


class Workspace:
    """Memory for intermediate values, reused by the next call.

    New memory costs page faults: for the 80 MB of logit gradients, 26,000 in some steps and none in others, at 5
    microseconds each (two cores, a virtual machine).
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def matrix(self, name: str, num_rows: int, num_columns: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """An uninitialised matrix; the next one of the same name overwrites it."""
        key = name, device, dtype
        size = num_rows * num_columns
        if key not in self._memory or self._memory[key].numel() < size:
            with torch.inference_mode(False):  # Training must be able to use what validation allocates.
                self._memory[key] = torch.empty(size, dtype=dtype, device=device)
        return self._memory[key][:size].view(num_rows, num_columns)


def fused_loss(
    hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, num_tokens: int, smoothing: float, workspace: Workspace
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of `objective.smoothed_cross_entropy` over the first `num_tokens` rows: smoothed, plain, correct.

    The gradient is computed together with the loss, a block of the tokens at a time, so that N x V values never exist
    at once.
    """
    sums: tuple[Tensor, Tensor, Tensor] = _FusedLoss.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, targets_N, num_tokens, smoothing, workspace, torch.is_grad_enabled()
    )
    return sums


class _FusedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, *options: Any) -> tuple[Tensor, ...]:
        num_tokens, smoothing, workspace, with_gradient = options
        sums = hidden_ND.new_zeros(3, dtype=torch.float32)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD: Tensor | None = None
        for start in range(0, len(hidden_ND), _BLOCK_TOKENS):
            block = slice(start, start + _BLOCK_TOKENS)
            hidden_MD, targets_M = hidden_ND[block], targets_N[block]
            grad_MV = None
            if with_gradient:
                shape = len(hidden_MD), len(weight_VD)
                grad_MV = workspace.matrix("grad", *shape, hidden_ND.device, hidden_ND.dtype)
            sums += _block_sums(hidden_MD, weight_VD, targets_M, num_tokens - start, smoothing, workspace, grad_MV)
            if grad_MV is not None:
                torch.mm(grad_MV, weight_VD, out=grad_hidden_ND[block])
                grad_block_VD = grad_MV.T @ hidden_MD
                grad_weight_VD = grad_block_VD if grad_weight_VD is None else grad_weight_VD.float() + grad_block_VD
        if grad_weight_VD is not None:
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        smoothed, *others = sums.unbind()
        ctx.mark_non_differentiable(*others)
        return smoothed, *others

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grads[0] * grad_hidden_ND, grads[0] * grad_weight_VD, None, None, None, None, None


def _block_sums(
    hidden_MD: Tensor,
    weight_VD: Tensor,
    targets_M: Tensor,
    num_tokens: int,
    smoothing: float,
    workspace: Workspace,
    grad_MV: Tensor | None,
) -> Tensor:
    """The three sums over a block; fills `grad_MV`, if given, with the gradient by the logits."""
    sums = hidden_MD.new_zeros(3, dtype=torch.float32)
    num_rows = min(len(hidden_MD), _CHUNK_TOKENS) if is_cpu(hidden_MD) else len(hidden_MD)
    formats = {"logits": hidden_MD.dtype, "scores": torch.float32, "probs": torch.float32}
    buffers = [workspace.matrix(name, num_rows, len(weight_VD), hidden_MD.device, formats[name]) for name in formats]
    for start in range(0, len(hidden_MD), num_rows):
        hidden_CD, targets_C1 = hidden_MD[start : start + num_rows], targets_M[start : start + num_rows, None]
        logits_CV, scores_CV, probs_CV = (buffer[: len(hidden_CD)] for buffer in buffers)
        scores_CV.copy_(torch.mm(hidden_CD, weight_VD.T, out=logits_CV))
        torch.softmax(scores_CV, dim=-1, out=probs_CV)
        # log sum exp, from the largest probability, which is never too small for its logarithm.
        largest_C1 = scores_CV.amax(dim=-1, keepdim=True)
        log_sum_C1 = largest_C1 - probs_CV.amax(dim=-1, keepdim=True).log()
        right_C1 = scores_CV.gather(1, targets_C1)
        each_CX = torch.cat(
            [log_sum_C1 - scores_CV.mean(dim=-1, keepdim=True), log_sum_C1 - right_C1, right_C1 >= largest_C1], dim=1
        )
        num_real = max(0, num_tokens - start)
        to_all, cross_entropy, num_correct = each_CX[:num_real].sum(dim=0)
        sums += torch.stack([(1 - smoothing) * cross_entropy + smoothing * to_all, cross_entropy, num_correct])
        if grad_MV is not None:
            # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the probabilities.
            probs_CV.sub_(smoothing / probs_CV.shape[1])
            probs_CV.scatter_add_(1, targets_C1, probs_CV.new_full(targets_C1.shape, smoothing - 1))
            probs_CV[num_real:] = 0.0
            grad_MV[start : start + num_rows] = probs_CV
    return sums
