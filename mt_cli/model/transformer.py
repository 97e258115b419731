"""An encoder-decoder Transformer (Vaswani et al. 2017), in the order in which data meets it.

    source ids > embedding, positions > encoder layers > memory ─┐
    target ids > embedding, positions > decoder layers ──────────┴> hidden states > projection > logits

Legend of the shapes: B sentences, T query positions, S key positions, D d_model, H heads, K d_head, F d_ff,
V vocabulary. Masks are boolean, True = may be attended to. Every module works in the number format of its weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.model.kernels import attend, attention_weights, drop
from mt_cli.tokenizer import PAD_ID

KeysValues = tuple[Tensor, Tensor]


class Transformer(nn.Module):
    """Ids of a source and of a target prefix to scores of the next token."""

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.max_positions = config.max_positions if config.positions == "learned" else None
        self.source_embedding = Embedding(config, source_vocab_size)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.encoder_norm = final_norm(config)
        self.target_embedding = Embedding(config, target_vocab_size)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.decoder_norm = final_norm(config)
        self.projection = nn.Linear(config.d_model, target_vocab_size, bias=False)
        self.apply(_initialise)
        if config.tie_embeddings != "none":
            self.projection.weight = self.target_embedding.table.weight
        if config.tie_embeddings == "all":
            self.source_embedding.table.weight = self.target_embedding.table.weight

    def forward(self, src_ids: Tensor, tgt_input_ids: Tensor) -> Tensor:
        """Logits BxTxV of the token after each target position."""
        memory, memory_mask = self.encode(src_ids)
        logits_BTV: Tensor = self.projection(self.decode(tgt_input_ids, memory, memory_mask))
        return logits_BTV

    def encode(self, src_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Memory BxSxD of source ids BxS, and its mask Bx1x1xS."""
        mask_B11S = (src_ids != PAD_ID)[:, None, None, :]
        x_BSD = self.source_embedding(src_ids)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_B11S)
        return self.encoder_norm(x_BSD), mask_B11S

    def decode(self, tgt_ids: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Hidden states BxTxD of target ids BxT, each seeing only the positions up to its own.

        Padding stands to the right of every token, so the causal mask hides it too.
        """
        mask_TT = causal_mask(tgt_ids.shape[1], tgt_ids.device)
        x_BTD = self.target_embedding(tgt_ids)
        for layer in self.decoder:
            x_BTD = layer(x_BTD, mask_TT, layer.memory_keys_values(memory), memory_mask)  # type: ignore[operator]
        hidden_BTD: Tensor = self.decoder_norm(x_BTD)
        return hidden_BTD

    def start_cache(self, memory: Tensor, memory_mask: Tensor) -> DecoderCache:
        """What `decode_next` needs to know of the sentences: the memory's keys and values, computed once."""
        return DecoderCache([layer.memory_keys_values(memory) for layer in self.decoder], memory_mask)  # type: ignore[operator]

    def decode_next(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Logits RxV after one more token of each row R; the cache grows by it.

        A sentence may have several rows, one after the other: R is a multiple of the cache's number of sentences.
        """
        x_R1D = self.target_embedding(token_ids[:, None], first_position=cache.length)
        for layer, memory_kv, past in zip(self.decoder, cache.memory, cache.past, strict=True):
            x_R1D = layer(x_R1D, None, memory_kv, cache.memory_mask, past)
        cache.length += 1
        logits_RV: Tensor = self.projection(self.decoder_norm(x_R1D))[:, 0]
        return logits_RV


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions (sections 3.4 and 3.5)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, config.d_model)
        is_learned = config.positions == "learned"
        self.positions = LearnedPositions(config) if is_learned else SinusoidalPositions(config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, ids: Tensor, first_position: int = 0) -> Tensor:
        """BxTxD of ids BxT that stand at `first_position` and after."""
        x_BTD = self.table(ids) * self.scale
        positions_TD = self.positions(first_position, ids.shape[1])
        return self.dropout(x_BTD + positions_TD.to(x_BTD.dtype))


class SinusoidalPositions(nn.Module):
    """Sines in the even dimensions, cosines in the odd ones (section 3.5). The table grows as needed."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)

    def forward(self, first: int, length: int) -> Tensor:
        """TxD encodings of the positions from `first` on."""
        if first + length > len(self.table):
            self.table = sinusoids(2 * (first + length), self.d_model).to(self.table.device)
        return self.table[first : first + length]


class LearnedPositions(nn.Embedding):
    """A table of positions that is trained, and ends somewhere (Gehring et al. 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.max_positions, config.d_model)

    def forward(self, first: int, length: int) -> Tensor:  # type: ignore[override]
        """TxD encodings of the positions from `first` on."""
        return self.weight[first : first + length]


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos of the same, as num_positions x D."""
    frequencies = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angles = torch.arange(num_positions)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual block (figure 1, left)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_BSD: Tensor, mask: Tensor) -> Tensor:
        """BxSxD to BxSxD."""
        attention = self.self_attention
        x_BSD = self.self_attention_residual(x_BSD, lambda x: attention(x, attention.keys_values(x), mask))
        x_BSD = self.feed_forward_residual(x_BSD, self.feed_forward)
        return x_BSD


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward (figure 1, right)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def memory_keys_values(self, memory_BSD: Tensor) -> KeysValues:
        """What this layer's cross-attention looks up, which is the same for every target position."""
        return self.cross_attention.keys_values(memory_BSD)

    def forward(
        self, x_BTD: Tensor, mask: Tensor | None, memory: KeysValues, memory_mask: Tensor, past: Past | None = None
    ) -> Tensor:
        """BxTxD to BxTxD; with a `past`, x is the one position that follows it."""

        def self_attention(x: Tensor) -> Tensor:
            keys_values = self.self_attention.keys_values(x)
            return self.self_attention(x, past.append(keys_values) if past is not None else keys_values, mask)

        def cross_attention(x: Tensor) -> Tensor:
            # Rows that share a sentence's memory (its beams) attend as further queries of that sentence.
            queries = x.reshape(len(memory[0]), -1, x.shape[-1])
            return self.cross_attention(queries, memory, memory_mask).view_as(x)

        x_BTD = self.self_attention_residual(x_BTD, self_attention)
        x_BTD = self.cross_attention_residual(x_BTD, cross_attention)
        x_BTD = self.feed_forward_residual(x_BTD, self.feed_forward)
        return x_BTD


class MultiHeadAttention(nn.Module):
    """Several attentions over slices of the width, side by side (section 3.2.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.key = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.value = nn.Linear(config.d_model, config.d_model, bias=config.qkv_bias)
        self.attention_dropout = config.attention_dropout
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, x_BTD: Tensor, keys_values: KeysValues, mask: Tensor | None) -> Tensor:
        """BxTxD to BxTxD; `mask` broadcasts to BxHxTxS."""
        query_BHTK = self._split_heads(self.query(x_BTD))
        dropout = self.attention_dropout if self.training else 0.0
        mixed_BHTK = attend(query_BHTK, *keys_values, mask, dropout)
        return self.output(mixed_BHTK.transpose(1, 2).flatten(start_dim=2))

    def keys_values(self, x_BSD: Tensor) -> KeysValues:
        """BxHxSxK keys and values of what is attended to."""
        return self._split_heads(self.key(x_BSD)), self._split_heads(self.value(x_BSD))

    def weights(self, x_BTD: Tensor, keys_values: KeysValues, mask: Tensor | None) -> Tensor:
        """BxHxTxS attention weights, for pictures and alignments."""
        return attention_weights(self._split_heads(self.query(x_BTD)), keys_values[0], mask)

    def _split_heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between (section 3.3), or its gated form SwiGLU (Shazeer 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        self.inner = nn.Linear(config.d_model, config.d_ff * (2 if config.activation == "swiglu" else 1))
        self.outer = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """BxTxD to BxTxD."""
        x_BTF = self.inner(x_BTD)
        if self.activation == "swiglu":
            gate_BTF, x_BTF = x_BTF.chunk(2, dim=-1)
            return self.outer(F.silu(gate_BTF) * x_BTF)
        return self.outer(F.relu(x_BTF) if self.activation == "relu" else F.gelu(x_BTF))


class Residual(nn.Module):
    """The way around a sub-layer, with its norm before (Xiong et al. 2020) or after (section 5.4 of 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_order == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """BxTxD to BxTxD."""
        if self.norm_first:
            return x_BTD + self.dropout(sublayer(self.norm(x_BTD)))
        return self.norm(x_BTD + self.dropout(sublayer(x_BTD)))


class Dropout(nn.Module):
    """`kernels.drop` while training, nothing else."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return drop(x, self.rate) if self.training else x


def final_norm(config: ModelConfig) -> nn.Module:
    """Pre-norm layers add up un-normalised outputs, so their stack ends in a norm; post-norm ones need none."""
    return nn.LayerNorm(config.d_model) if config.norm_order == "pre" else nn.Identity()


def causal_mask(length: int, device: torch.device) -> Tensor:
    """TxT, True where the key stands at or before the query."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _initialise(module: nn.Module) -> None:
    """Xavier uniform for matrices (Glorot and Bengio 2010), zeros for biases.

    Embeddings get a standard deviation of D^-0.5: sqrt(D) brings them to 1, and tied logits begin near 1.
    """
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


class Past:
    """Self-attention keys and values RxHxTxK of the positions that one decoder layer has seen."""

    def __init__(self) -> None:
        self._buffers: list[Tensor] | None = None
        self._length = 0

    def append(self, keys_values: KeysValues) -> KeysValues:
        """All keys and values, with those of one more position at the end."""
        if self._buffers is None or self._length == self._buffers[0].shape[2]:
            self._grow(keys_values)
        assert self._buffers is not None
        self._length += 1
        for buffer, new in zip(self._buffers, keys_values, strict=True):
            buffer[:, :, self._length - 1] = new[:, :, 0]
        keys, values = (buffer[:, :, : self._length] for buffer in self._buffers)
        return keys, values

    def _grow(self, keys_values: KeysValues) -> None:
        """Room for twice as many positions."""
        capacity = max(16, 2 * self._length)
        buffers = [new.new_empty(*new.shape[:2], capacity, new.shape[3]) for new in keys_values]
        for buffer, old in zip(buffers, self._buffers or (), strict=False):
            buffer[:, :, : self._length] = old
        self._buffers = buffers

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may stand several times."""
        if self._buffers is not None:
            self._buffers = [buffer.index_select(0, rows) for buffer in self._buffers]


@dataclass
class DecoderCache:
    """All that decoding one more token needs, so that a prefix is never read twice."""

    memory: list[KeysValues]
    """Cross-attention keys and values BxHxSxK of each layer."""
    memory_mask: Tensor
    """Bx1x1xS."""
    past: list[Past] = field(init=False)
    """Self-attention keys and values of each layer."""
    length: int = 0
    """Positions decoded so far."""

    def __post_init__(self) -> None:
        self.past = [Past() for _ in self.memory]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Keep these rows of the past, and these sentences of the memory (None: all), in this order."""
        for past in self.past:
            past.select(rows)
        if sentences is not None:
            self.memory = [(keys[sentences], values[sentences]) for keys, values in self.memory]
            self.memory_mask = self.memory_mask[sentences]


@contextmanager
def recorded_attention(model: Transformer) -> Iterator[dict[str, list[Tensor]]]:
    """Inside, every attention that is run adds its weights BxHxTxS under its name (`decoder.0.cross_attention`)."""
    record: dict[str, list[Tensor]] = {}

    def recorder(name: str) -> Callable[..., None]:
        def record_weights(module: Any, inputs: tuple[Any, ...]) -> None:
            record.setdefault(name, []).append(module.weights(*inputs).detach())

        return record_weights

    attentions = [(name, module) for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    handles = [module.register_forward_pre_hook(recorder(name)) for name, module in attentions]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()
