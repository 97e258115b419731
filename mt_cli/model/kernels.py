"""Operations with a fast implementation for CPUs; each equals a plain PyTorch expression.

The docstrings give the measurements (milliseconds on two AVX512-BF16 cores, in bf16, for 3,712 tokens of width 256
unless stated otherwise).

Legend of the shapes: N rows of tokens, B sentences, T positions, H heads, K head dim, R rows, C slots.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.data.packing import PackedLayout


def is_cpu(x: Tensor) -> bool:
    """True if the implementations for CPUs are used."""
    return x.device.type == "cpu"


def mark_rows(*tensors: Tensor, dim: int = 0) -> None:
    """Tell the compiler that the number of rows, the size of a dimension, differs between calls.

    Otherwise it compiles for the first number, and once more for any number, and the bits of a batch of the first size
    would depend on the batches before.
    """
    from torch._dynamo import maybe_mark_dynamic  # Slow to import, and needed only with the compiler.

    for tensor in tensors:
        maybe_mark_dynamic(tensor, dim)


def to_grid(x_NHK: Tensor, layout: PackedLayout) -> Tensor:
    """Grid BxHxTxK of packed rows NxHxK."""
    assert layout.rows is not None and layout.slots is not None
    x_RK = take_rows(x_NHK.flatten(end_dim=1), layout.rows.flatten(), layout.slots.flatten())
    return x_RK.view(*layout.rows.shape, -1)


def from_grid(x_BHTK: Tensor, layout: PackedLayout) -> Tensor:
    """Packed rows NxHxK of the slots of a grid: the inverse of `to_grid`."""
    assert layout.rows is not None and layout.slots is not None
    x_RK = take_rows(x_BHTK.flatten(end_dim=2), layout.slots.flatten(), layout.rows.flatten())
    return x_RK.view(*layout.slots.shape, -1)


def drop(x: Tensor, rate: float) -> Tensor:
    """Set a fraction `rate` of the elements to zero and scale the others up to keep the mean.

    On CPUs one random byte decides about an element, so the rate is rounded to a multiple of 1/256 (0.1 becomes
    26/256). Rates below 1/32 or above 31/32 take two bytes. One byte takes 1.3 ms, with the gradient; PyTorch 7.4.
    """
    if rate == 0.0:
        return x
    if not is_cpu(x):
        return F.dropout(x, rate)
    keep, scale = _keep_mask(x, rate)
    return x * keep.mul_(scale)


def add_dropped(x: Tensor, y: Tensor, rate: float) -> Tensor:
    """`x + drop(y, rate)`, in one pass."""
    if rate == 0.0 or not is_cpu(x):
        return x + drop(y, rate)
    keep, scale = _keep_mask(y, rate)
    return torch.addcmul(x, y, keep, value=scale)


def _keep_mask(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Mask of `x`, 0 for a fraction `rate` of the elements and 1 for the others, and the scale of the kept elements."""
    dtype, levels = (torch.int8, 2**8) if 1 / 32 <= rate <= 31 / 32 else (torch.int16, 2**16)
    threshold = min(round(rate * levels), levels - 1)
    words = torch.empty((x.numel() * dtype.itemsize + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    keep = words.view(dtype)[: x.numel()]
    # Overwrites the random bytes. With a mask of booleans, comparing and converting to bf16 take ten times as long.
    torch.ge(keep, threshold - levels // 2, out=keep)
    return keep.view(x.shape).to(x.dtype), levels / (levels - threshold)


def take_rows(x_RK: Tensor, rows_C: Tensor, slots_R: Tensor) -> Tensor:
    """`x_RK[rows_C]`, whose gradient is gathered by the inverse index instead of summed: 0.04 ms, the time of a copy.

    `rows_C[slots_R[r]] == r` must hold for every row that has a gradient.
    """
    taken: Tensor = _TakeRows.apply(x_RK, rows_C, slots_R)  # type: ignore[no-untyped-call]
    return taken


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RK: Tensor, rows_C: Tensor, slots_R: Tensor) -> Tensor:
        ctx.save_for_backward(slots_R)
        return x_RK.index_select(0, rows_C)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None]:
        (slots_R,) = ctx.saved_tensors
        return grads[0].index_select(0, slots_R), None, None
