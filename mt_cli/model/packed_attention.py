"""Attention between packed rows without a grid, on a GPU: by our kernels in `triton_attention`, else by PyTorch's.

Shapes alone decide what is launched, so that the operations can be compiled and captured.

Legend of the shapes: N rows of queries, M rows of keys, B sequences, H heads, K head dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.data.packing import PackedLayout, moved, shaped_layout
from mt_cli.model.kernel_trial import Case, kernel_works

_BLOCK, _INNER = 64, 32
"""Rows that a program computes, and rows that it reads per iteration."""
_MOST_INNER_BYTES = 8192
"""Maximum bytes of a tile in the loop, limited by shared memory."""


def attend_packed(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """Attention within the sequences of two layouts, NxHxK, by the fastest kernel; 0 for a row without keys.

    With `is_causal`, a row attends to no later row of its sequence.
    """
    if query_NHK.is_cuda and queries.sequences is not None and keys.sequences is not None:
        return attend_rows(query_NHK, key_MHK, value_MHK, queries, keys, is_causal)
    assert queries.starts is not None and keys.starts is not None
    if query_NHK.is_cuda:
        from torch.nn.attention.varlen import varlen_attn  # Imports the compiler, which takes two seconds.

        starts, longest = (queries.starts, keys.starts), (queries.longest, keys.longest)
        window = (-1, 0) if is_causal else (-1, -1)  # Keys before and after the query; -1: all.
        return cast("Tensor", varlen_attn(query_NHK, key_MHK, value_MHK, *starts, *longest, window_size=window))
    return attention_of_sequences(query_NHK, key_MHK, value_MHK, queries, keys, is_causal)


def attend_rows(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """`attention_of_sequences` by our kernels, for up to 128 elements a head. Every row must be finite, padding too."""
    indices = queries.sequences, keys.sequences, queries.starts, keys.starts
    mixed_NHK: Tensor = _forward(query_NHK, key_MHK, value_MHK, *indices, is_causal)[0]
    return mixed_NHK


def attention_of_sequences(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """Attention within sequences by its definition: one attention between all rows, masked."""
    assert queries.starts is not None and keys.starts is not None
    query_sequences_N, key_sequences_M = (
        torch.searchsorted(starts[1:].contiguous(), torch.arange(len(rows), device=rows.device), right=True)
        for starts, rows in ((queries.starts, query_NHK), (keys.starts, key_MHK))
    )
    mask_NM = query_sequences_N[:, None] == key_sequences_M
    query_HNK, key_HMK, value_HMK = (rows.transpose(0, 1) for rows in (query_NHK, key_MHK, value_MHK))
    mask_NM = mask_NM.tril() if is_causal else mask_NM
    return F.scaled_dot_product_attention(query_HNK, key_HMK, value_HMK, mask_NM).transpose(0, 1)


def has_row_kernels(device: torch.device, dtype: torch.dtype, d_head: int) -> bool:
    """True if `attend_rows` works for this device, dtype and head dim."""
    return kernel_works("attention", trial_cases, device, dtype, d_head)


def trial_cases(d_head: int) -> Iterator[Case]:
    """With and without a causal mask; sequences begin and end inside of tiles, and some are empty."""
    lengths = np.array([5, 40, 1, 0, 70, 130, 33, 9]), np.array([30, 2, 0, 7, 64, 100, 65, 20])
    generator = torch.Generator().manual_seed(1)
    for is_causal in (False, True):
        layouts = [shaped_layout(side, 320, 16, 256) for side in (lengths[0], lengths[0 if is_causal else 1])]

        def attend(function: Any, *rows: Tensor, layouts: Any = layouts, is_causal: bool = is_causal) -> Tensor:
            return function(*rows, *(moved(layout, lambda x: x.to(rows[0].device)) for layout in layouts), is_causal)

        inputs = [torch.randn(320, 2, d_head, generator=generator) for _ in range(3)]
        yield Case(partial(attend, attend_rows), partial(attend, attention_of_sequences), inputs)


@torch.library.custom_op("mt::attend_rows", mutates_args=())
def _forward(
    query_NHK: Tensor,
    key_MHK: Tensor,
    value_MHK: Tensor,
    query_sequences_N: Tensor,
    key_sequences_M: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    is_causal: bool,
) -> tuple[Tensor, Tensor]:
    """Mixed values NxHxK, and the log-sum-exp HxN of the scores, in units of log 2."""
    from mt_cli.model.triton_attention import forward  # Triton may be missing, and is slow to import.

    inputs = [_heads_side_by_side(x) for x in (query_NHK, key_MHK, value_MHK)]
    mixed_NHK, lse_HN = _forward_outputs(query_NHK)
    tensors = (*inputs, mixed_NHK, lse_HN, query_sequences_N, key_starts)
    strides = [x.stride(0) for x in inputs]
    _launch(forward, query_NHK, is_causal, *tensors, *strides, len(query_NHK))
    return mixed_NHK, lse_HN


@_forward.register_fake
def _forward_outputs(query_NHK: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    num_rows, num_heads = query_NHK.shape[:2]
    return query_NHK.new_empty(query_NHK.shape), query_NHK.new_empty((num_heads, num_rows), dtype=torch.float32)


@torch.library.custom_op("mt::attend_rows_backward", mutates_args=())
def _backward(
    grad_NHK: Tensor,
    query_NHK: Tensor,
    key_MHK: Tensor,
    value_MHK: Tensor,
    query_sequences_N: Tensor,
    key_sequences_M: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    mixed_NHK: Tensor,
    lse_HN: Tensor,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from mt_cli.model.triton_attention import key_gradient, query_gradient

    query, key, value, grad = (_heads_side_by_side(x) for x in (query_NHK, key_MHK, value_MHK, grad_NHK))
    query_grad, key_grad, value_grad = (x.new_empty(x.shape) for x in (query, key, value))
    delta_HN = torch.empty_like(lse_HN)
    sizes = *(x.stride(0) for x in (query, key, value, grad)), len(query)
    tensors = (query, key, value, mixed_NHK, grad, lse_HN, delta_HN, query_grad, query_sequences_N, key_starts)
    _launch(query_gradient, query, is_causal, *tensors, *sizes)
    tensors = (query, key, value, grad, lse_HN, delta_HN, key_grad, value_grad, key_sequences_M, query_starts)
    _launch(key_gradient, key, is_causal, *tensors, *sizes, len(key))
    return query_grad, key_grad, value_grad


@_backward.register_fake
def _(grad_NHK: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in inputs[:3])


def _set_up_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.is_causal = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)  # Otherwise autograd makes a gradient of zeros for the log-sum-exp.


def _gradients(ctx: Any, grad_NHK: Tensor, _: None) -> tuple[Tensor | None, ...]:
    gradients: tuple[Tensor, ...] = _backward(grad_NHK, *ctx.saved_tensors, ctx.is_causal)
    return *gradients, None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_set_up_context)


def _heads_side_by_side(x_NHK: Tensor) -> Tensor:
    """Rows in the layout that the kernels read: heads side by side, any stride between rows; a copy only if needed."""
    return x_NHK if x_NHK.stride()[1:] == (x_NHK.shape[2], 1) else x_NHK.contiguous()


def _launch(kernel: Any, x_NHK: Tensor, is_causal: bool, *arguments: Any) -> None:
    """Start a kernel for each head and tile of the rows of `x_NHK`."""
    num_rows, num_heads, d_head = x_NHK.shape
    block_d = max(16, 1 << (d_head - 1).bit_length())
    inner = max(16, min(_INNER, _MOST_INNER_BYTES // (block_d * x_NHK.element_size())))
    # The programs for all heads of a row start one after the other, because the row is contiguous in memory.
    grid = (num_heads, -(-num_rows // _BLOCK))
    with torch.cuda.device_of(x_NHK):
        kernel[grid](
            *arguments, D=d_head, BLOCK_D=block_d, IS_CAUSAL=is_causal, BLOCK=_BLOCK, INNER=inner,
            num_warps=4, num_stages=3,
        )  # fmt: skip
