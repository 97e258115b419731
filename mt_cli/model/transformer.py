"""An encoder-decoder Transformer (Vaswani et al. 2017), in the order in which data meets it.

    source ids > embedding, positions > encoder layers > memory ─┐
    target ids > embedding, positions > decoder layers ──────────┴> hidden states > projection > logits

Legend of the shapes: N target tokens, M source tokens, B sentences, T query positions, S key positions, D d_model,
H heads, K d_head, F d_ff, V vocabulary. Masks are boolean, True = may be attended to. Every module works in the number
format of its weights. Hidden states are rows, one a token; only attention knows to which sentence a row belongs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mt_cli.batching.packing import Grid
from mt_cli.config.sections import ModelConfig
from mt_cli.model.kernels import add_dropped, attend, attention_weights, bias_of, drop
from mt_cli.model.layouts import Layout, Packed, Padded, padded

KeysValues = tuple[Tensor, Tensor]
"""BxHxSxK keys and values."""
LookedUp = tuple[Tensor, Tensor, Tensor | None]
"""Keys, values, and the mask, broadcast to BxHxTxS, of which a query may attend to."""


class Transformer(nn.Module):
    """Ids of a source and of a target prefix to scores of the next token."""

    def __init__(self, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.num_heads = config.num_heads
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
        """Logits BxTxV of the token after each target position, of padded ids."""
        hidden_ND = self.decode(tgt_input_ids, *self.encode(src_ids))
        logits_BTV: Tensor = self.projection(hidden_ND).unflatten(0, tgt_input_ids.shape)
        return logits_BTV

    def encode(self, src_ids: Tensor, grid: Grid | None = None) -> tuple[Tensor, Layout]:
        """Memory MxD, a row for each source token, and its layout; of ids BxS, or of packed ones and their grid."""
        x_MD, layout = self._embed(self.source_embedding, src_ids, grid)
        for layer in self.encoder:
            x_MD = layer(x_MD, layout)
        return self.encoder_norm(x_MD), layout

    def decode(self, tgt_ids: Tensor, memory: Tensor, memory_layout: Layout, grid: Grid | None = None) -> Tensor:
        """Hidden states NxD of target ids BxT, or of packed ones, each seeing only the positions up to its own.

        Padding stands to the right of every token, so the causal mask hides it too.
        """
        x_ND, layout = self._embed(self.target_embedding, tgt_ids, grid)
        mask_TT = causal_mask(tgt_ids.shape[1] if grid is None else grid.rows.shape[1], tgt_ids.device)
        for layer in self.decoder:
            looked_up = *layer.memory_keys_values(memory, memory_layout), memory_layout.mask  # type: ignore[operator]
            x_ND = layer(x_ND, layout, mask_TT, layout, looked_up)
        hidden_ND: Tensor = self.decoder_norm(x_ND)
        return hidden_ND

    def _embed(self, embedding: Embedding, ids: Tensor, grid: Grid | None) -> tuple[Tensor, Layout]:
        """NxD and the layout of ids, padded ones without a grid or packed ones with it."""
        if grid is None:
            length = ids.shape[1]
            positions_N = torch.arange(length, device=ids.device).repeat(len(ids))
            return embedding(ids.flatten(), positions_N, length), padded(ids)
        return embedding(ids, grid.positions, grid.rows.shape[1]), Packed.of(grid, self.num_heads)

    def start_cache(self, memory: Tensor, layout: Layout, num_beams: int = 1) -> DecoderCache:
        """What `decode_next` needs to know of the sentences: the memory's keys and values, computed once."""
        looked_up = (layer.memory_keys_values(memory, layout) for layer in self.decoder)  # type: ignore[operator]
        assert layout.mask is not None
        # Contiguous, or they would be copied anew at each step.
        keys_values = [(keys.contiguous(), values.contiguous()) for keys, values in looked_up]
        return DecoderCache(keys_values, bias_of(layout.mask), num_beams)

    def decode_next(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Logits RxV after one more token of each beam; the cache grows by it.

        The N beams of a sentence are rows one after the other, and are treated as further positions of it: they share
        its memory and its past.
        """
        position = torch.tensor([cache.length], device=token_ids.device)
        x_RD = self.target_embedding(token_ids, position, cache.length + 1)
        sentences = Padded(cache.num_sentences)
        past_bias = cache.grow()
        for layer, memory_kv, past in zip(self.decoder, cache.memory, cache.past, strict=True):
            x_RD = layer(x_RD, sentences, past_bias, sentences, (*memory_kv, cache.memory_bias), past)
        logits_RV: Tensor = self.projection(self.decoder_norm(x_RD))
        return logits_RV


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions (sections 3.4 and 3.5)."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, config.d_model)
        is_learned = config.positions == "learned"
        self.positions = LearnedPositions(config) if is_learned else SinusoidalPositions(config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.dropout = config.dropout

    def forward(self, ids_N: Tensor, positions_N: Tensor, length: int) -> Tensor:
        """NxD of ids that stand at these positions, all below `length`; one position will do for all."""
        positions_ND = self.positions(positions_N, length)
        x_ND = torch.add(positions_ND.to(self.table.weight.dtype), self.table(ids_N), alpha=self.scale)
        return drop(x_ND, self.dropout) if self.training else x_ND


class SinusoidalPositions(nn.Module):
    """Sines in the even dimensions, cosines in the odd ones (section 3.5). The table grows as needed."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)

    def forward(self, positions_N: Tensor, length: int) -> Tensor:
        """NxD encodings of positions below `length`."""
        if length > len(self.table):
            self.table = sinusoids(2 * length, self.d_model).to(self.table.device)
        return self.table[positions_N]


class LearnedPositions(nn.Embedding):
    """A table of positions that is trained, and ends somewhere (Gehring et al. 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.max_positions, config.d_model)

    def forward(self, positions_N: Tensor, length: int) -> Tensor:  # type: ignore[override]
        """NxD encodings of positions below `length`."""
        return self.weight[positions_N]


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos of the same, as num_positions x D on the CPU."""
    frequencies = torch.exp(torch.arange(0, d_model, 2, device="cpu") * (-math.log(10_000.0) / d_model))
    angles = torch.arange(num_positions, device="cpu")[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual block (figure 1, left)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x_MD: Tensor, layout: Layout) -> Tensor:
        """MxD to MxD."""
        attention = self.self_attention
        x_MD = self.self_attention_residual(
            x_MD, lambda x: attention(x, layout, (*attention.keys_values(x, layout), layout.mask))
        )
        x_MD = self.feed_forward_residual(x_MD, self.feed_forward)
        return x_MD


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

    def memory_keys_values(self, memory_MD: Tensor, layout: Layout) -> KeysValues:
        """What this layer's cross-attention looks up, which is the same for every target position."""
        return self.cross_attention.keys_values(memory_MD, layout)

    def forward(
        self,
        x_ND: Tensor,
        layout: Layout,
        mask: Tensor | None,
        cross_layout: Layout,
        memory: LookedUp,
        past: Past | None = None,
    ) -> Tensor:
        """NxD to NxD; with a `past`, a row is the one position that follows it.

        `layout` is that of self-attention, and `cross_layout` that of queries to the memory, where several rows may
        belong to one sentence.
        """

        def self_attention(x: Tensor) -> Tensor:
            keys, values = self.self_attention.keys_values(x, layout)
            if past is not None:
                assert mask is not None
                keys, values = past.append((keys, values), mask.shape[3])
            return self.self_attention(x, layout, (keys, values, mask))

        x_ND = self.self_attention_residual(x_ND, self_attention)
        x_ND = self.cross_attention_residual(x_ND, lambda x: self.cross_attention(x, cross_layout, memory))
        x_ND = self.feed_forward_residual(x_ND, self.feed_forward)
        return x_ND


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

    def forward(self, x_ND: Tensor, layout: Layout, looked_up: LookedUp) -> Tensor:
        """NxD to NxD: each row asks the keys of its sentence."""
        query_BHTK = layout.split_heads(self.query(x_ND), self.num_heads)
        dropout = self.attention_dropout if self.training else 0.0
        mixed_BHTK = attend(query_BHTK, *looked_up, dropout)
        return self.output(layout.join_heads(mixed_BHTK))

    def keys_values(self, x_MD: Tensor, layout: Layout) -> KeysValues:
        """BxHxSxK keys and values of what is attended to."""
        return (
            layout.split_heads(self.key(x_MD), self.num_heads),
            layout.split_heads(self.value(x_MD), self.num_heads),
        )

    def weights(self, x_ND: Tensor, layout: Layout, looked_up: LookedUp) -> Tensor:
        """BxHxTxS attention weights, for pictures and alignments."""
        keys, _, mask = looked_up
        return attention_weights(layout.split_heads(self.query(x_ND), self.num_heads), keys, mask)


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
        else:
            x_NF = F.relu(x_NF, inplace=True) if self.activation == "relu" else F.gelu(x_NF)
        return self.outer(drop(x_NF, self.dropout) if self.training else x_NF)


class Residual(nn.Module):
    """The way around a sub-layer, with its norm before (Xiong et al. 2020) or after (section 5.4 of 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_order == "pre"
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = config.dropout

    def forward(self, x_ND: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """NxD to NxD."""
        rate = self.dropout if self.training else 0.0
        if self.norm_first:
            return add_dropped(x_ND, sublayer(self.norm(x_ND)), rate)
        return self.norm(add_dropped(x_ND, sublayer(x_ND), rate))


def final_norm(config: ModelConfig) -> nn.Module:
    """Pre-norm layers add up un-normalised outputs, so their stack ends in a norm; post-norm ones need none."""
    return nn.LayerNorm(config.d_model) if config.ends_in_norm else nn.Identity()


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


def outline(config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Transformer:
    """The model with the shapes of its weights and no memory for them, on the device `meta`."""
    with torch.device("meta"), _NothingDrawn():
        return Transformer(config, source_vocab_size, target_vocab_size)


class _NothingDrawn(TorchFunctionMode):
    """Inside, no normal distribution is drawn from; on `meta`, PyTorch would import its compiler to do so (1.6 s)."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return None if function is nn.init.normal_ else function(*args, **(kwargs or {}))


class Past:
    """Self-attention keys and values of what the beams of each sentence have read, in one decoder layer.

    The N tokens of a step stand side by side, and stay where they are: which of them a beam descends from is for the
    cache to know. So no keys move when beams change places.
    """

    def __init__(self, num_beams: int) -> None:
        self._num_beams = num_beams
        self._length = 0
        self._buffers: list[Tensor] | None = None
        """BxHxCxK keys and values, with room for C = N x positions."""

    def append(self, keys_values: KeysValues, room: int) -> KeysValues:
        """BxHxSxK with S = `room`: all keys and values, those of one more position BxHxNxK, and zeros."""
        if self._buffers is None or room > self._buffers[0].shape[2]:
            self._grow(keys_values, 2 * room)
        assert self._buffers is not None
        start = self._length * self._num_beams
        for buffer, new in zip(self._buffers, keys_values, strict=True):
            buffer[:, :, start : start + self._num_beams] = new
        self._length += 1
        keys, values = (buffer[:, :, :room] for buffer in self._buffers)
        return keys, values

    def _grow(self, keys_values: KeysValues, room: int) -> None:
        # Zeros, not what happens to be in memory: what is masked counts 0 times, and 0 times infinity is not 0.
        buffers = [new.new_zeros(*new.shape[:2], room, new.shape[3]) for new in keys_values]
        for buffer, old in zip(buffers, self._buffers or (), strict=False):
            buffer[:, :, : old.shape[2]] = old
        self._buffers = buffers

    def select(self, sentences: Tensor) -> None:
        """Keep these sentences, in this order."""
        if self._buffers is not None:
            self._buffers = [buffer.index_select(0, sentences) for buffer in self._buffers]


class DecoderCache:
    """All that decoding one more token needs, so that a prefix is never read twice.

    Args:
        memory: cross-attention keys and values BxHxSxK of each layer.
        memory_bias: Bx1x1xS, 0 where a key may be attended to and -inf elsewhere.
        num_beams: rows of each sentence.
    """

    def __init__(self, memory: list[KeysValues], memory_bias: Tensor, num_beams: int) -> None:
        self.memory, self.memory_bias, self.num_beams = memory, memory_bias, num_beams
        self.past = [Past(num_beams) for _ in memory]
        self.length = 0
        """Positions decoded so far."""
        self._past_bias = memory_bias.new_empty(len(memory_bias), 1, num_beams, 0)
        """Bx1xNxC, 0 for the tokens in the past that a beam descends from, -inf for others and where nothing is yet."""

    @property
    def num_sentences(self) -> int:
        """Sentences that are still decoded."""
        return len(self.memory_bias)

    @property
    def capacity(self) -> int:
        """Positions that attention looks at, filling included: shapes that recur spare oneDNN preparing new ones."""
        return -(-self.length // _POSITIONS_AT_ONCE) * _POSITIONS_AT_ONCE

    def grow(self) -> Tensor:
        """One more position; the bias Bx1xNxS of the past, in which each beam descends from its own token too."""
        start = self.length * self.num_beams
        self.length += 1
        missing = self.capacity * self.num_beams - self._past_bias.shape[3]
        if missing > 0:
            self._past_bias = F.pad(self._past_bias, (0, missing), value=-math.inf)
        self._past_bias[:, 0, :, start : start + self.num_beams].diagonal(dim1=1, dim2=2).zero_()
        return self._past_bias

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Let each beam continue one of its sentence's beams, and then keep these sentences; None: as it is."""
        if parents_BN is not None and self.num_beams > 1:
            index = parents_BN[:, None, :, None].expand(-1, -1, -1, self._past_bias.shape[3])
            self._past_bias = self._past_bias.gather(2, index)
        if sentences is not None:
            for past in self.past:
                past.select(sentences)
            self.memory = [(keys[sentences], values[sentences]) for keys, values in self.memory]
            self.memory_bias, self._past_bias = self.memory_bias[sentences], self._past_bias[sentences]


_POSITIONS_AT_ONCE = 8


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
