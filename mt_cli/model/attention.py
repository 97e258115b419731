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
from mt_cli.model.kernels import attend, attend_packed, attention_weights
from mt_cli.model.positions import rotate

Append = Callable[[KeysValues], KeysValues]
"""Function that appends keys and values to a cache and returns the whole content of the cache."""


class Attended(NamedTuple):
    """Keys and values, their layout, and their bias Bx1x1xS: 0 for keys that may be attended to, -inf for others."""

    bias: Tensor | None
    keys_values: KeysValues
    layout: PackedLayout | None = None  # None for keys of a cache.


class AttentionWeights(NamedTuple):
    """Attention weights BxHxTxS of every layer in one pass through a model."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class MultiHeadAttention(nn.Module):
    """Attention over several slices of the width in parallel. Rotary positions apply to self-attention only.

    With `is_causal`, the bias of self-attention without a cache is the causal mask.
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
        """Keys and values of rows: BxHxSxK for padded rows, MxHxK for packed rows."""
        keys = self._split_and_rotate(self.key(x_MD), layout)
        return keys, split_heads(self.value(x_MD), layout, self.num_heads)

    def forward(
        self,
        x_ND: Tensor,
        layout: PackedLayout,
        bias: Tensor | None,
        memory: Attended | None = None,
        append: Append | None = None,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """NxD to NxD: rows attend to `memory` or, without it, to their sentence and the cached rows of `append`.

        `bias` is the bias of self-attention and broadcasts to BxHxTxS; `memory` has its own bias. Packed rows without a
        grid need none. The attention weights of padded rows are appended to the list `weights`, if it is given.
        """
        keys_layout = layout
        if memory is not None:
            bias, (keys, values), memory_layout = memory
            keys_layout = memory_layout or layout
        else:
            keys, values = self.keys_values(x_ND, layout)
        if append is not None:
            keys, values = append((keys, values))
        query = self._split_and_rotate(self.query(x_ND), layout)
        if weights is not None:
            assert bias is not None
            weights.append(attention_weights(query, keys, bias))
        dropout = self.attention_dropout if self.training else 0.0
        is_causal = self.is_causal and append is None
        if layout.starts is not None:
            mixed_NHK = attend_packed(query, keys, values, layout, keys_layout, bias, dropout, is_causal)
            return self.output(mixed_NHK.flatten(start_dim=1))
        assert bias is not None
        mixed_BHTK = attend(query, keys, values, bias, dropout, is_causal)
        return self.output(mixed_BHTK.transpose(1, 2).flatten(start_dim=2).flatten(end_dim=1))

    def _split_and_rotate(self, x_ND: Tensor, layout: PackedLayout) -> Tensor:
        """Queries or keys of rows in the shape of `split_heads`, rotated if positions are rotary."""
        if self.is_rotary:
            assert layout.rotary_factors is not None
            x_ND = rotate(x_ND, layout.rotary_factors)
        return split_heads(x_ND, layout, self.num_heads)


def split_heads(x_ND: Tensor, layout: PackedLayout, num_heads: int) -> Tensor:
    """Split NxD rows into heads: BxHxTxK for padded rows, NxHxK for packed rows."""
    if layout.starts is not None:
        return x_ND.unflatten(1, (num_heads, -1))
    return x_ND.view(layout.num_sequences, -1, num_heads, x_ND.shape[1] // num_heads).transpose(1, 2)
