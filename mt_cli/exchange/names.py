"""Names of weights and options in our model and in the formats of other programs, and the order of dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Names(NamedTuple):
    """A linear map or a norm of a layer under each of its names."""

    ours: str
    transformers: str
    """Name in MarianMT and Pegasus."""
    ctranslate2: str
    """Place in the specification of a layer; maps with the same place are concatenated."""


LAYER = (
    Names("self_attention.query", "self_attn.q_proj", "self_attention.linear.0"),
    Names("self_attention.key", "self_attn.k_proj", "self_attention.linear.0"),
    Names("self_attention.value", "self_attn.v_proj", "self_attention.linear.0"),
    Names("self_attention.output", "self_attn.out_proj", "self_attention.linear.1"),
    Names("self_attention_residual.norm", "self_attn_layer_norm", "self_attention.layer_norm"),
    Names("cross_attention.query", "encoder_attn.q_proj", "attention.linear.0"),
    Names("cross_attention.key", "encoder_attn.k_proj", "attention.linear.1"),
    Names("cross_attention.value", "encoder_attn.v_proj", "attention.linear.1"),
    Names("cross_attention.output", "encoder_attn.out_proj", "attention.linear.2"),
    Names("cross_attention_residual.norm", "encoder_attn_layer_norm", "attention.layer_norm"),
    Names("feed_forward.inner", "fc1", "ffn.linear_0"),
    Names("feed_forward.outer", "fc2", "ffn.linear_1"),
    Names("feed_forward_residual.norm", "final_layer_norm", "ffn.layer_norm"),
)
_TRANSFORMERS = {names.ours: names.transformers for names in LAYER}

SHARED_TABLE, SOURCE_TABLE, TARGET_TABLE, PROJECTION = TABLES = (
    *("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "lm_head.weight",
)
BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Names in `transformers` of the weights outside of layers."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "d_model": ("d_model",),
    "num_encoder_layers": ("encoder_layers",),
    "num_decoder_layers": ("decoder_layers",),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "dropout": ("dropout",),
    "attention_dropout": ("attention_dropout",),
    "feed_forward_dropout": ("activation_dropout",),
}
"""Our options of `model`, and the keys of `config.json` that have their values."""
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
"""Our activations, and their names in `config.json`."""


def transformers_name(name: str) -> str:
    """Name in `transformers` of one of our weights: of a layer, or of the norm after all layers (Pegasus)."""
    if name.startswith(("encoder_norm.", "decoder_norm.")):
        return "model." + name.replace("_norm.", ".layer_norm.")
    stack, number, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    return f"model.{stack}.layers.{number}.{_TRANSFORMERS[module]}.{kind}"


def interleaved(d_model: int) -> Tensor:
    """For each of our dimensions, the dimension in `transformers`, where all sines come before the cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()


def reordered(weight: Tensor, name: str, order: Tensor) -> Tensor:
    """A weight of a layer, by our name, with the dimensions of the hidden states in another order."""
    if not any(f".{module}." in name for module in ("query", "key", "value", "inner")):
        return weight[order]
    return weight[:, order] if weight.dim() == 2 else weight


def their_layers(model: nn.Module, order: Tensor | None = None) -> dict[str, Tensor]:
    """Weights of the layers of our model in fp32, under the names of `transformers`; see `reordered`."""
    return {
        transformers_name(name): weight.detach().float() if order is None else reordered(weight.float(), name, order)
        for name, weight in model.state_dict().items()
        if name.startswith(("encoder", "decoder"))
    }
