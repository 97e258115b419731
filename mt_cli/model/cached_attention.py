"""Attention over a grid on a GPU, with a kernel for few queries and a cache, as in each step of a search.

PyTorch's fused kernels compute tiles of 64 queries, of which a step has one for each beam. For one query and 32 keys of
2,560 sentences (8 heads of 64 elements, bf16) they take 0.26 ms on an H100, and this kernel 0.065.

Legend of the shapes: B sentences, H heads, T queries, S keys, K head dim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.model.kernel_trial import Case, kernel_works

_MOST_QUERIES = 16
"""Smallest tile of a matrix product in Triton."""
_MOST_SENTENCES = 65_535
"""Limit of CUDA for the second dimension of a grid."""
_FEWEST_ROWS = 512
"""Number of queries of a batch from which the kernel is used. The first use compiles it, which takes seconds."""


def attend_on_gpu(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, bias: Tensor, dropout: float, is_causal: bool
) -> Tensor:
    """`attention.attend` by the fastest kernel. A causal mask is not passed on, so that kernels can skip the future."""
    if dropout == 0.0 and suits_cached_attention(query_BHTK, key_BHSK, value_BHSK, bias):
        return attend_to_cache(query_BHTK, key_BHSK, value_BHSK, bias)
    mask = None if is_causal else bias.to(query_BHTK.dtype)
    return F.scaled_dot_product_attention(query_BHTK, key_BHSK, value_BHSK, mask, dropout, is_causal)


def suits_cached_attention(query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, bias: Tensor) -> bool:
    """True if `attend_to_cache` computes this attention faster than PyTorch's kernels; it has no gradient."""
    num_sentences, num_heads, num_queries, d_head = query_BHTK.shape
    if torch.is_grad_enabled() or num_queries > _MOST_QUERIES or num_sentences > _MOST_SENTENCES:
        return False
    if num_sentences * num_queries < _FEWEST_ROWS or key_BHSK.shape[:2] != (num_sentences, num_heads):
        return False
    is_laid_out = all(map(_has_heads_apart, (key_BHSK, value_BHSK))) and key_BHSK.stride() == value_BHSK.stride()
    has_bias = bias.shape[1] == 1 and bias.shape[3] == key_BHSK.shape[2] and bias.stride(3) == 1
    return is_laid_out and has_bias and has_cached_kernel(query_BHTK.device, query_BHTK.dtype, d_head)


def _has_heads_apart(x_BHSK: Tensor) -> bool:
    """True if each head has its rows one after the other, and heads follow each other, with room for more rows."""
    num_heads, d_head = x_BHSK.shape[1], x_BHSK.shape[3]
    batch_stride, head_stride, *strides = x_BHSK.stride()
    return strides == [d_head, 1] and batch_stride == num_heads * head_stride and head_stride % d_head == 0


def has_cached_kernel(device: torch.device, dtype: torch.dtype, d_head: int) -> bool:
    """True if `attend_to_cache` works for this device, dtype and head dim."""
    return kernel_works("cached attention", trial_cases, device, dtype, d_head)


def attend_to_cache(query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, bias: Tensor) -> Tensor:
    """softmax(query key^T / sqrt(K) + bias) value, BxHxTxK, without a gradient; see `suits_cached_attention`.

    `bias` broadcasts to Bx1xTxS. Each query may attend to at least one key, otherwise its result is 0.
    """
    from mt_cli.model.triton_attention import attend_cached

    num_sentences, num_heads, num_queries, d_head = query_BHTK.shape
    query_BTHK = query_BHTK.transpose(1, 2).contiguous()  # The layout of the caller, so nothing is copied.
    mixed_BTHK = torch.empty_like(query_BTHK)
    bias = bias.expand(num_sentences, 1, num_queries, key_BHSK.shape[2])
    sizes = num_queries, key_BHSK.shape[2], key_BHSK.stride(1) // d_head, bias.stride(0), bias.stride(2)
    with torch.cuda.device_of(query_BHTK):
        attend_cached[(num_heads, num_sentences)](
            query_BTHK, key_BHSK, value_BHSK, bias, mixed_BTHK, *sizes,
            D=d_head, BLOCK_D=max(16, 1 << (d_head - 1).bit_length()), BLOCK=_MOST_QUERIES, INNER=32,
            num_warps=1, num_stages=1,
        )  # fmt: skip
    return mixed_BTHK.transpose(1, 2)


def trial_cases(d_head: int) -> Iterator[Case]:
    """One query and five; the cache has room for more keys, and some queries attend to few keys."""
    generator = torch.Generator().manual_seed(1)
    for num_queries in (1, 5):
        rows = [torch.randn(3, 2, length, d_head, generator=generator) for length in (num_queries, 64, 64)]
        fractions = torch.tensor([0.1, 0.5, 1.0]).view(3, 1, 1, 1)
        is_hidden = torch.rand(3, 1, num_queries, 40, generator=generator) > fractions
        is_hidden[..., -1] = False
        bias = torch.zeros(is_hidden.shape).masked_fill_(is_hidden, -torch.inf)
        kernel, definition = partial(_first_keys, attend_to_cache), partial(_first_keys, F.scaled_dot_product_attention)
        yield Case(kernel, definition, [*rows, bias], has_gradient=False)


def _first_keys(function: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    return function(query, key[:, :, : bias.shape[3]], value[:, :, : bias.shape[3]], bias)
