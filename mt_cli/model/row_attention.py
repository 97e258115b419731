"""Our kernels of attention between packed rows, `triton_attention`, as operations that can be compiled and captured.

Legend of the shapes: N rows of queries, M rows of keys, H heads, K head dim.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mt_cli.data.packing import PackedLayout

_BLOCK, _INNER = 64, 32
"""Rows that a program computes, and rows that it reads per iteration."""
_MOST_INNER_BYTES = 8192
"""Maximum bytes of a tile in the loop, limited by shared memory."""


def attend_rows(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """`attention_of_sequences` by our kernels, for up to 128 elements a head. Every row must be finite, padding too."""
    indices = queries.sequences, keys.sequences, queries.starts, keys.starts
    mixed_NHK: Tensor = _forward(query_NHK, key_MHK, value_MHK, *indices, is_causal)[0]
    return mixed_NHK


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
