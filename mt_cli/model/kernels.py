"""The few operations that have a fast way on each kind of device. Each equals a plain PyTorch expression.

What is fast is measured, not guessed: the figures stand beside each piece (milliseconds on two AVX512-BF16 cores, in
bf16, of 3,712 tokens of width 256 unless said otherwise), and `tests/unit/test_kernels.py` holds each to the
expression that it replaces, values and gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Legend of the shapes: B sentences, T query positions, S key positions, H heads, K d_head.


def attend(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, mask: Tensor | None, dropout: float = 0.0
) -> Tensor:
    """softmax(query key^T / sqrt(K)) value, BxHxTxK (Vaswani et al. 2017, equation 1).

    `mask` broadcasts to BxHxTxS, True where a query may attend, or it is the bias made of that. On CPUs the expression
    is written out, which takes less time than the fused kernel (256x4x16x64, forward and backward: bf16 7 ms against
    40, fp32 6 against 8).
    """
    if query_BHTK.device.type != "cpu":
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query_BHTK.dtype)
        return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, mask, dropout)
    weights_BHTS = attention_weights(query_BHTK, key_BHSK, mask)
    return drop(weights_BHTS, dropout) @ value_BHSK


def attention_weights(query_BHTK: Tensor, key_BHSK: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(query key^T / sqrt(K)), BxHxTxS: how much each query attends to each key.

    Products are in the number format of the arguments, the softmax in fp32: on CPUs, that of a short row in bf16 takes
    1.4 ms forward and 1.0 backward instead of 0.3 and 0.1 (200x4x19x19).
    """
    scores_BHTS = (query_BHTK @ key_BHSK.transpose(-1, -2)).float()
    bias = scores_BHTS.new_zeros(()) if mask is None else mask
    if bias.dtype == torch.bool:
        bias = bias_of(bias)
    scores_BHTS = torch.add(bias, scores_BHTS, alpha=1 / math.sqrt(query_BHTK.shape[-1]))
    return scores_BHTS.softmax(dim=-1).to(query_BHTK.dtype)


def bias_of(mask: Tensor) -> Tensor:
    """What is added to scores, in fp32: 0 where the mask is True, -inf elsewhere."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -math.inf)


def drop(x: Tensor, rate: float) -> Tensor:
    """`x` with a share `rate` of its elements set to zero and the rest scaled up to keep the mean.

    On CPUs one random byte decides over an element, so the rate is rounded to 1/256 (0.1 becomes 26/256) and the
    scale follows the rounded rate; PyTorch's own generator takes one full draw for each (1.3 ms against 7.4, with the
    gradient).
    """
    if rate == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, rate)
    keep, scale = _kept(x, rate)
    return x * keep.mul_(scale)


def add_dropped(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """`x + drop(y, rate)`, in one pass."""
    if rate == 0.0:
        return x + y
    if x.device.type != "cpu":
        return x + F.dropout(y, rate)
    keep, scale = _kept(y, rate)
    return torch.addcmul(x, y, keep, value=scale)


def _kept(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Ones and zeros of the shape of `x`, a share `rate` of them zeros, and one through the share of ones."""
    threshold = max(1, round(rate * 256))
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(torch.int8)[: x.numel()]
    # In the memory of the random bytes: a comparison into booleans takes 0.24 ms instead of 0.02, and to turn them into
    # bf16 0.7 ms instead of 0.07.
    torch.ge(keep, threshold - 128, out=keep)
    return keep.view(x.shape).to(x.dtype), 256 / (256 - threshold)


def take_rows(x_RK: Tensor, rows_C: Tensor, cells_R: Tensor) -> Tensor:
    """`x_RK[rows_C]`, where `cells_R` leads back: `rows_C[cells_R[r]] == r` for every row that has a gradient.

    Its gradient is then a second gathering, without the sums that a row may need that is taken several times: 0.04 ms
    each way, as much as copying takes.
    """
    taken: Tensor = _TakeRows.apply(x_RK, rows_C, cells_R)  # type: ignore[no-untyped-call]
    return taken


class _TakeRows(torch.autograd.Function):
    """Rows by index, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x_RK: Tensor, rows_C: Tensor, cells_R: Tensor) -> Tensor:
        ctx.save_for_backward(cells_R)
        return x_RK.index_select(0, rows_C)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        (cells_R,) = ctx.saved_tensors
        return grads[0].index_select(0, cells_R), None, None
