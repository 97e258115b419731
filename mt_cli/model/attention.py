"""Multi-head attention over rows of tokens (Vaswani et al. 2017, section 3.2.2).

Legend of the shapes: N rows of queries, M rows of keys, B sentences, T query positions, S key positions, D d_model,
H heads, K d_head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from mt_cli.batching.packing import PackedLayout
from mt_cli.config.sections import ModelConfig
from mt_cli.model.cache import KeysValues
from mt_cli.model.kernels import attend, attention_weights, take_rows
from mt_cli.model.positions import rotate

Append = Callable[[KeysValues], KeysValues]
"""Function that appends keys and values to a cache and returns the whole content of the cache."""


class Attended(NamedTuple):
    """Keys and values, and their bias Bx1x1xS: 0 where a key may be attended to and -inf elsewhere."""

    bias: Tensor
    keys_values: KeysValues


class AttentionWeights(NamedTuple):
    """Attention weights BxHxTxS of every layer in one pass through a model."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class MultiHeadAttention(nn.Module):
    """Several attentions over slices of the width, in parallel. Rotary positions apply to self-attention only.

    `is_causal` says that the bias is the causal mask whenever rows attend to their own sentence alone.
    """

    def __init__(self, config: ModelConfig, is_self: bool = False, is_causal: bool = False) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.key = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.value = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.is_causal = is_causal
        self.is_rotary = is_self and config.positions == "rotary"
        self.attention_dropout = config.attention_dropout
        self.output = nn.Linear(config.d_model, config.d_model)

    def keys_values(self, x_MD: Tensor, layout: PackedLayout) -> KeysValues:
        """Keys and values BxHxSxK of rows."""
        keys_BHSK = self._split_and_rotate(self.key(x_MD), layout)
        return keys_BHSK, split_heads(self.value(x_MD), layout, self.num_heads)

    def forward(
        self,
        x_ND: Tensor,
        layout: PackedLayout,
        bias: Tensor,
        memory: KeysValues | None = None,
        append: Append | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """NxD to NxD: rows attend to `memory` or, without it, to their sentence and the cached rows of `append`.

        `bias` broadcasts to BxHxTxS. The attention weights are added to the list `weights`, if one is given.
        """
        keys_BHSK, values_BHSK = self.keys_values(x_ND, layout) if memory is None else memory
        if append is not None:
            keys_BHSK, values_BHSK = append((keys_BHSK, values_BHSK))
        query_BHTK = self._split_and_rotate(self.query(x_ND), layout)
        if weights is not None:
            weights.append(attention_weights(query_BHTK, keys_BHSK, bias))
        dropout = self.attention_dropout if self.training else 0.0
        is_causal = self.is_causal and append is None
        mixed_BHTK = attend(query_BHTK, keys_BHSK, values_BHSK, bias, dropout, is_causal)
        return self.output(join_heads(mixed_BHTK, layout))

    def _split_and_rotate(self, x_ND: Tensor, layout: PackedLayout) -> Tensor:
        """Queries or keys BxHxTxK of rows, rotated by their positions if these are rotary."""
        if self.is_rotary:
            assert layout.rotary_factors is not None
            x_ND = rotate(x_ND, layout.rotary_factors)
        return split_heads(x_ND, layout, self.num_heads)


def split_heads(x_ND: Tensor, layout: PackedLayout, num_heads: int) -> Tensor:
    """Split NxD rows into heads BxHxTxK; a packed layout needs `with_heads`."""
    if layout.rows is None or layout.slots is None:
        return x_ND.view(layout.num_sequences, -1, num_heads, x_ND.shape[1] // num_heads).transpose(1, 2)
    x_RK = take_rows(x_ND.view(len(x_ND) * num_heads, -1), layout.rows.flatten(), layout.slots.flatten())
    return x_RK.view(*layout.rows.shape, -1)


def join_heads(x_BHTK: Tensor, layout: PackedLayout) -> Tensor:
    """Join heads BxHxTxK to NxD rows: the inverse of `split_heads`."""
    if layout.rows is None or layout.slots is None:
        return x_BHTK.transpose(1, 2).flatten(start_dim=2).flatten(end_dim=1)
    x_RK = take_rows(x_BHTK.flatten(end_dim=2), layout.slots.flatten(), layout.rows.flatten())
    return x_RK.view(len(layout.slots), -1)
