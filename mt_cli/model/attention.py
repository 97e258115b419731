"""Multi-head attention (Vaswani et al. 2017, section 3.2).

`attend` is scaled dot-product attention, softmax(query key^T / sqrt(K)) value, over a grid of sentences x positions:
the definition; on GPUs it calls a kernel. `MultiHeadAttention` splits rows into heads around it. Packed rows are
gathered into the grid, or, on a GPU with kernels for it, attend within their sequences (`packed_attention`).
`cached_attention` is for steps of a search.

Legend of the shapes: N rows of queries, M rows of keys, B sentences, T query positions, S key positions, D d_model,
H heads, K head dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.data.packing import PackedLayout
from mt_cli.model.cache import KeysValues
from mt_cli.model.cached_attention import attend_on_gpu
from mt_cli.model.kernels import drop, from_grid, is_cpu, to_grid
from mt_cli.model.packed_attention import attend_packed
from mt_cli.model.positions import rotate

Append = Callable[[KeysValues], KeysValues]
"""Function that appends keys and values to a cache and returns the whole content of the cache."""


class Memory(NamedTuple):
    """Rows that attention reads: hidden states, or keys and values that were already computed from them."""

    layout: PackedLayout
    bias: Tensor | None
    """Added to the scores, broadcast to BxHxTxS: 0 where attention is allowed, -inf elsewhere. None: packed rows for a
    kernel, which masks by `layout.starts` and `is_causal` instead."""
    hidden: Tensor | None = None  # MxD.
    keys_values: KeysValues | None = None


class MultiHeadAttention(nn.Module):
    """Attention of several heads in parallel (section 3.2.2). Rotary positions apply to self-attention only."""

    def __init__(self, config: ModelConfig, is_self: bool = False, is_causal: bool = False) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.key = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.value = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.is_rotary = is_self and config.positions == "rotary"
        self.is_causal = is_causal
        self.dot_product = DotProductAttention(config.attention_dropout)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, x_ND: Tensor, layout: PackedLayout, memory: Memory, append: Append | None = None) -> Tensor:
        """NxD to NxD: rows attend to the memory, and with `append`, to the keys and values cached before."""
        keys_values = self.keys_values(memory) if memory.keys_values is None else memory.keys_values
        keys, values = keys_values if append is None else append(keys_values)
        query = self._heads(self.query(x_ND), layout, self.is_rotary)
        mixed = self.dot_product(query, keys, values, layout, memory, self.is_causal and append is None)
        if layout.starts is None:  # BxHxTxK.
            mixed = mixed.transpose(1, 2).flatten(end_dim=1)
        return self.output(mixed.flatten(start_dim=1))

    def keys_values(self, memory: Memory) -> KeysValues:
        """Keys and values of hidden states: BxHxSxK for padded rows, MxHxK for packed rows."""
        keys = self._heads(self.key(memory.hidden), memory.layout, self.is_rotary)
        return keys, self._heads(self.value(memory.hidden), memory.layout)

    def _heads(self, x_ND: Tensor, layout: PackedLayout, is_rotated: bool = False) -> Tensor:
        """Rows NxD, split into heads: BxHxTxK if they are padded, NxHxK if they are packed."""
        if is_rotated:
            assert layout.rotary_factors is not None
            x_ND = rotate(x_ND, layout.rotary_factors)
        x_NHK = x_ND.unflatten(1, (self.num_heads, -1))
        return x_NHK if layout.starts is not None else x_NHK.unflatten(0, (layout.num_sequences, -1)).transpose(1, 2)


class DotProductAttention(nn.Module):
    """Scaled dot-product attention for rows of any layout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, queries: PackedLayout, memory: Memory, is_causal: bool
    ) -> Tensor:
        """Weighted means of the values, in the shape of the queries."""
        if memory.bias is None:
            return attend_packed(query, keys, values, queries, memory.layout, is_causal)
        dropout = self.dropout if self.training else 0.0
        if queries.starts is None:
            return attend(query, keys, values, memory.bias, dropout, is_causal)
        keys_BHSK, values_BHSK = to_grid(keys, memory.layout), to_grid(values, memory.layout)
        query_BHTK = to_grid(query, queries)
        return from_grid(attend(query_BHTK, keys_BHSK, values_BHSK, memory.bias, dropout, is_causal), queries)


def attend(
    query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, bias: Tensor, dropout: float = 0, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention, softmax(query key^T / sqrt(K) + bias) value, BxHxTxK (equation 1).

    `bias` is the mask (`bias_of`); with `is_causal`, it is the causal mask, which kernels of GPUs need not read. On
    CPUs this takes less time than PyTorch's kernel (256x4x16x64, forward and backward: bf16 7 ms against 40, fp32 6
    against 8).
    """
    if not is_cpu(query_BHTK):
        return attend_on_gpu(query_BHTK, key_BHSK, value_BHSK, bias, dropout, is_causal)
    weights_BHTS = attention_weights(query_BHTK, key_BHSK, bias)
    return (drop(weights_BHTS, dropout) if dropout else weights_BHTS) @ value_BHSK


def attention_weights(query_BHTK: Tensor, key_BHSK: Tensor, bias: Tensor) -> Tensor:
    """softmax(query key^T / sqrt(K) + bias), BxHxTxS: how much each query attends to each key.

    The product is computed in the dtype of the arguments, the softmax in fp32: on CPUs, the softmax of a short row in
    bf16 takes 1.4 ms forward and 1.0 backward instead of 0.3 and 0.1 (200x4x19x19).
    """
    scores_BHTS = (query_BHTK @ key_BHSK.transpose(-1, -2)).float()
    scores_BHTS = torch.add(bias, scores_BHTS, alpha=1 / math.sqrt(query_BHTK.shape[-1]))  # scores / sqrt(K) + bias
    return scores_BHTS.softmax(dim=-1).to(query_BHTK.dtype)


def bias_of(mask: Tensor) -> Tensor:
    """Attention bias of a boolean mask, in fp32: 0 where it is True (may be attended to), -inf elsewhere."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, -math.inf)


class AttentionMaps(NamedTuple):
    """Attention maps BxHxTxS of every layer in one pass through a model."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


@contextmanager
def recorded_maps(attentions: Iterable[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Context manager that collects the attention maps of padded rows that this thread computes, in order."""
    maps, thread = list[Tensor](), get_ident()

    def record(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if get_ident() == thread:  # Other threads may use the model, too.
            query_BHTK, keys_BHSK, _, _, memory, _ = inputs
            maps.append(attention_weights(query_BHTK, keys_BHSK, memory.bias))

    hooks = [attention.dot_product.register_forward_hook(record) for attention in attentions]
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()
