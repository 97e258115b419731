"""Conversion of a model to CTranslate2's Python specification; knows our names of weights and those of CTranslate2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.model.attention import MultiHeadAttention
from mt_cli.model.positions import Embedding, SinusoidalPositions, sinusoids
from mt_cli.model.transformer import FeedForward, Transformer
from mt_cli.tokenizer.special import EOS, SOS, UNK
from mt_cli.tokenizer.tokenizer import TokenizerPair

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
_MIN_POSITIONS = 1024


def specification(specs: Any, model: Transformer, tokenizers: TokenizerPair, num_positions: int) -> Any:
    """CTranslate2's specification of a model, with its weights and at least `num_positions` sinusoidal positions."""
    config = model.config
    spec = _architecture(specs, config)
    num_positions = max(_MIN_POSITIONS, num_positions)
    _fill_embedding(spec.encoder.embeddings[0], spec.encoder, model.source_embedding, config, num_positions)
    _fill_embedding(spec.decoder.embeddings, spec.decoder, model.target_embedding, config, num_positions)
    layers: list[Any] = [*model.encoder, *model.decoder]
    for theirs, layer in zip([*spec.encoder.layer, *spec.decoder.layer], layers, strict=True):
        _fill_attention(theirs.self_attention, layer.self_attention, layer.self_attention_residual.norm, fused=3)
        if hasattr(layer, "cross_attention"):
            _fill_attention(theirs.attention, layer.cross_attention, layer.cross_attention_residual.norm, fused=2)
        _fill_feed_forward(theirs.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    if config.ends_in_norm:
        _fill_norm(spec.encoder.layer_norm, model.encoder_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = _array(model.projection.weight)
    if config.output_bias:
        spec.decoder.projection.bias = _array(model.projection.bias)
    registers = (spec.register_source_vocabulary, spec.register_target_vocabulary)
    for tokenizer, register in zip(tokenizers, registers, strict=True):
        register(tokenizer.tokens(range(tokenizer.vocab_size)))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token, spec.config.add_source_eos = SOS, True
    return spec


def _architecture(specs: Any, config: ModelConfig) -> Any:
    """A specification without weights."""
    options = {
        "num_heads": config.num_heads,
        "pre_norm": config.ends_in_norm,
        "activation": getattr(specs.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation == "swiglu",
        **({"rotary_dim": config.d_head, "rotary_interleave": True} if config.positions == "rotary" else {}),
    }
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, **options)
    decoder = specs.TransformerDecoderSpec(config.num_decoder_layers, **options)
    spec = specs.TransformerSpec(encoder, decoder)
    # They take one argument for pre-norm and the norm at the end, which are separate options here.
    spec.encoder.pre_norm = spec.decoder.pre_norm = config.norm_order == "pre"
    return spec


def _fill_embedding(theirs: Any, stack: Any, ours: Embedding, config: ModelConfig, num_positions: int) -> None:
    theirs.weight = _array(ours.table.weight)
    stack.scale_embeddings = True
    if ours.positions is None:
        return
    is_sinusoidal = isinstance(ours.positions, SinusoidalPositions)
    table = sinusoids(num_positions, config.d_model) if is_sinusoidal else ours.positions.weight
    stack.position_encodings.encodings = _array(table)  # type: ignore[arg-type]


def _fill_attention(theirs: Any, ours: MultiHeadAttention, norm: nn.Module, fused: int) -> None:
    """CTranslate2 fuses queries, keys and values (`fused=3`), or keys and values only (`fused=2`)."""
    maps = [ours.query, ours.key, ours.value]
    groups = [maps] if fused == 3 else [maps[:1], maps[1:]]
    for linear, group in zip(theirs.linear, [*groups, [ours.output]], strict=True):
        linear.weight = _array(torch.cat([each.weight for each in group]))
        if group[0].bias is not None:
            linear.bias = _array(torch.cat([each.bias for each in group]))
    _fill_norm(theirs.layer_norm, norm)


def _fill_feed_forward(theirs: Any, ours: FeedForward, norm: nn.Module) -> None:
    gated = [theirs.linear_0, theirs.linear_0_noact] if ours.activation == "swiglu" else [theirs.linear_0]
    halves = zip(ours.inner.weight.chunk(len(gated)), ours.inner.bias.chunk(len(gated)), strict=True)
    for linear, (weight, bias) in zip(gated, halves, strict=True):
        linear.weight, linear.bias = _array(weight), _array(bias)
    theirs.linear_1.weight, theirs.linear_1.bias = _array(ours.outer.weight), _array(ours.outer.bias)
    _fill_norm(theirs.layer_norm, norm)


def _fill_norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)  # type: ignore[arg-type]


def _array(weight: Tensor) -> Any:
    """A copy, because quantisation works in place."""
    return weight.detach().float().cpu().contiguous().clone().numpy()
