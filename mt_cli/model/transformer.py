"""An encoder-decoder Transformer (Vaswani et al. 2017), in the order in which data passes through it.

    source ids > embedding, positions > encoder layers > memory ─┐
    target ids > embedding, positions > decoder layers ──────────┴> hidden states > projection > logits

Legend of the shapes: N target tokens, M source tokens, R rows of beams, B sentences, T target positions, D d_model,
F d_ff, V vocabulary. Hidden states are rows, one for each token. A `PackedLayout` maps rows to sentences and positions;
attention alone needs it. Modules compute in the dtype of their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mt_cli.config.sections import ModelConfig
from mt_cli.data.batch import Batch, Side
from mt_cli.data.packing import PackedLayout
from mt_cli.model.attention import Append, AttentionMaps, Memory, MultiHeadAttention, bias_of, recorded_maps
from mt_cli.model.cache import Arena, KeyValueCache
from mt_cli.model.kernels import add_dropped, drop, mark_rows
from mt_cli.model.packed_attention import has_row_kernels
from mt_cli.model.positions import Embedding, Rotation

M = TypeVar("M", bound=nn.Module)


class Transformer(nn.Module):
    """Encoder and decoder: from the ids of a source and of a target prefix to the logits of the next token."""

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.compiles_layers = False
        self.rotation = Rotation(config) if config.positions == "rotary" else nn.Identity()
        self.source_embedding = Embedding(config, source_vocab_size)
        encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.encoder = cast("Sequence[EncoderLayer]", encoder)
        self.encoder_norm = final_norm(config)
        self.target_embedding = Embedding(config, target_vocab_size)
        decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.decoder = cast("Sequence[DecoderLayer]", decoder)
        self.decoder_norm = final_norm(config)
        self.projection = nn.Linear(config.d_model, target_vocab_size, bias=config.output_bias)
        self.apply(_initialise)
        if config.tie_embeddings != "none":
            self.projection.weight = self.target_embedding.table.weight
        if config.tie_embeddings == "all":
            self.source_embedding.table.weight = self.target_embedding.table.weight

    def forward(self, src_ids: Tensor, tgt_input_ids: Tensor) -> Tensor:
        """Logits BxTxV of the token after each position of padded target ids.

        Training calls `hidden_states` instead, because the loss computes logits block by block (`model/loss.py`).
        """
        memory = self._encode(Side.of_padded(src_ids))
        hidden_ND = self._decode(Side.of_padded(tgt_input_ids), memory)
        return self.projection(hidden_ND).unflatten(0, tgt_input_ids.shape)

    def hidden_states(self, batch: Batch) -> Tensor:
        """Hidden states NxD of the target tokens of a packed batch, which the projection maps to logits."""
        return self._decode(batch.target, self._encode(batch.source))

    def read(self, src_ids: Tensor, tgt_input_ids: Tensor) -> tuple[Tensor, AttentionMaps]:
        """Logits as `forward` returns them, and the attention maps of every layer."""
        with (
            recorded_maps(layer.self_attention for layer in self.encoder) as encoder,
            recorded_maps(layer.self_attention for layer in self.decoder) as decoder,
            recorded_maps(layer.cross_attention for layer in self.decoder) as cross,
        ):
            return self(src_ids, tgt_input_ids), AttentionMaps(encoder, decoder, cross)

    def read_hidden(self, src_ids: Tensor, tgt_input_ids: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Hidden states (B x T)xD of padded target ids, before the projection, and cross-attention maps by layer."""
        with recorded_maps(layer.cross_attention for layer in self.decoder) as cross:
            memory = self._encode(Side.of_padded(src_ids))
            return self._decode(Side.of_padded(tgt_input_ids), memory), cross

    def start(self, src_ids: Tensor, num_beams: int = 1, arena: Arena | None = None) -> KeyValueCache:
        """Cache for decoding with `num_beams` hypotheses of each sentence, of padded ids BxS."""
        memory = self._encode(Side.of_padded(src_ids))
        assert memory.bias is not None
        keys_values = (layer.cross_attention.keys_values(memory) for layer in self.decoder)
        return KeyValueCache(keys_values, memory.bias, num_beams, arena)

    def next(self, token_ids: Tensor, cache: KeyValueCache) -> Tensor:
        """Logits RxV after one more token of each beam; the cache grows by these tokens."""
        layout = self.rotation(cache.advance())
        x_RD = self.target_embedding(token_ids, layout)
        for index, layer in enumerate(self.decoder):
            memory = Memory(layout, cache.memory_bias, keys_values=cache.memory(index))
            x_RD = layer(x_RD, layout, cache.bias, memory, partial(cache.append, index))
        return self.projection(self.decoder_norm(x_RD))

    def compile_layers(self) -> None:
        """Compile each layer at its first use; layers of the same kind share the compiled code."""
        self.compiles_layers = True
        for layer in (*self.encoder, *self.decoder):
            layer.compile()

    def _encode(self, source: Side) -> Memory:
        """Encoder output. The mask excludes padding; packed rows without a grid need none."""
        x_MD, layout = self._embed(self.source_embedding, source)
        bias = None if layout.mask is None else bias_of(layout.mask[:, None, None])
        for layer in self.encoder:
            x_MD = layer(x_MD, layout, bias)
        x_MD = self.encoder_norm(x_MD)
        if self.compiles_layers:
            mark_rows(x_MD)
        return Memory(layout, bias, x_MD)

    def _decode(self, target: Side, memory: Memory) -> Tensor:
        """Hidden states NxD of target ids. The causal mask excludes padding too, which is on the right."""
        x_ND, layout = self._embed(self.target_embedding, target)
        bias = None if layout.mask is None else bias_of(causal_mask(layout.num_positions, x_ND.device))
        for layer in self.decoder:
            x_ND = layer(x_ND, layout, bias, memory)
        return self.decoder_norm(x_ND)

    def _embed(self, embedding: Embedding, side: Side) -> tuple[Tensor, PackedLayout]:
        """Embedded rows of a side, and the layout for attention: with rotary factors, and with a grid if needed."""
        layout = self.rotation(side.layout)
        x_ND = embedding(side.ids, layout)
        if self.compiles_layers:
            tensors = x_ND, layout.starts, layout.sequences, layout.rotary_factors
            mark_rows(*(x for x in tensors if x is not None))
        if layout.starts is None or (layout.mask is not None and self._needs_grid(x_ND)):
            return x_ND, layout.with_heads(self.config.num_heads)
        return x_ND, layout.without_grid()

    def _needs_grid(self, x_ND: Tensor) -> bool:
        has_dropout = self.training and self.config.attention_dropout > 0
        return has_dropout or not has_row_kernels(x_ND.device, x_ND.dtype, self.config.d_head)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual block (figure 1, left)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, is_self=True)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_MD: Tensor, layout: PackedLayout, bias: Tensor | None) -> Tensor:
        """MxD to MxD."""
        x_MD = self.self_attention_residual(x_MD, lambda x: self.self_attention(x, layout, Memory(layout, bias, x)))
        return self.feed_forward_residual(x_MD, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward (figure 1, right)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config, is_self=True, is_causal=True)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x_ND: Tensor, layout: PackedLayout, bias: Tensor | None, memory: Memory, append: Append | None = None
    ) -> Tensor:
        """NxD to NxD; with `append`, each row is the next position after a cache."""
        x_ND = self.self_attention_residual(
            x_ND, lambda x: self.self_attention(x, layout, Memory(layout, bias, x), append)
        )
        x_ND = self.cross_attention_residual(x_ND, lambda x: self.cross_attention(x, layout, memory))
        return self.feed_forward_residual(x_ND, self.feed_forward)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between (section 3.3), or its gated form SwiGLU (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if config.activation == "swiglu" else 1))
        self.dropout = config.feed_forward_dropout
        self.outer = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x_ND: Tensor) -> Tensor:
        """NxD to NxD."""
        x_NF = self.inner(x_ND)
        if self.activation == "swiglu":
            gate_NF, x_NF = x_NF.chunk(2, dim=-1)
            x_NF = F.silu(gate_NF) * x_NF
        elif self.activation == "relu":
            x_NF = F.relu(x_NF, inplace=True)
        else:
            x_NF = F.gelu(x_NF) if self.activation == "gelu" else F.silu(x_NF)
        return self.outer(drop(x_NF, self.dropout) if self.training else x_NF)


class Residual(nn.Module):
    """Residual connection around a sub-layer, with dropout and a norm.

    The norm comes before the sub-layer (Xiong et al. 2020), or after the sum: LayerNorm(x + Sublayer(x)) (section 3.1).
    Dropout precedes the sum (section 5.4).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_order == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(self, x_ND: Tensor, sub_layer: Callable[[Tensor], Tensor]) -> Tensor:
        """NxD to NxD."""
        y_ND = sub_layer(self.norm(x_ND) if self.norm_first else x_ND)
        sum_ND = add_dropped(x_ND, y_ND, self.dropout if self.training else 0.0)
        return sum_ND if self.norm_first else self.norm(sum_ND)


def final_norm(config: ModelConfig) -> nn.Module:
    """Norm at the end of a stack: pre-norm layers add up unnormalised outputs, post-norm layers need none."""
    return nn.LayerNorm(config.d_model) if config.norm_order == "pre" else nn.Identity()


def causal_mask(length: int, device: torch.device) -> Tensor:
    """TxT, True where the key is at or before the query (section 3.2.3)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _initialise(module: nn.Module) -> None:
    """Xavier uniform for matrices (Glorot and Bengio 2010), zeros for biases.

    Embeddings get a standard deviation of D^-0.5: times sqrt(D) they have unit size, and tied logits begin near 1.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def with_dtype(module: M, dtype: torch.dtype, device: torch.device | None = None) -> M:
    """Copy of a module whose weights have another dtype or device; the module itself if they have both already.

    Tables of positions stay in fp32.
    """
    weight = next(module.parameters())
    device = device or weight.device
    if (weight.dtype, weight.device) == (dtype, device):
        return module
    weights: dict[int, Tensor] = {
        id(weight): nn.Parameter(weight.detach().to(device, dtype), weight.requires_grad)
        for weight in module.parameters()
    }
    return deepcopy(module, weights).to(device)


def outline(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Transformer:
    """Model with its weights on the device `meta`: shapes without memory."""
    with torch.device("meta"), _NoNormal():
        return Transformer(config, source_vocab_size, target_vocab_size)


class _NoNormal(TorchFunctionMode):
    """Context manager that skips `nn.init.normal_`, for which PyTorch imports its compiler on `meta` (1.6 s)."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return None if function is nn.init.normal_ else function(*args, **(kwargs or {}))
