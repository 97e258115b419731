"""Weights and options of our model in the formats of other programs: names, keys of `config.json`, dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar, get_args

import torch
from pydantic import BaseModel, Field, model_validator
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig, TokenizerConfig
from mt_cli.runtime.files import read_model

T = TypeVar("T", bound=BaseModel)


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

SHARED_TABLE, PROJECTION = "model.shared.weight", "lm_head.weight"
SOURCE_TABLE, TARGET_TABLE = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
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
SETTINGS = "tokenizer_config.json"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}


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


class TokenizerSettings(BaseModel):
    """Keys of `SETTINGS` that are needed; without a limit, the length is an enormous number."""

    source_lang: str | None = None
    target_lang: str | None = None
    src_lang: str | None = None
    """Source language of M2M100 and NLLB."""
    tgt_lang: str | None = None
    model_max_length: float | None = None
    legacy_behaviour: bool = False
    tokenizer_class: str | None = None
    mt_tokenizer: TokenizerConfig | None = None
    """Options of the tokenizer, in our own exports."""


def read_optional(path: Path, kind: type[T]) -> T:
    return read_model(path, kind) if path.exists() else kind()


_Architecture = Literal["marian", "pegasus"]
ARCHITECTURES = get_args(_Architecture)


class TransformersConfig(BaseModel):
    """Keys of `config.json` that are needed of each class; a `Literal` has the values that a run can have."""

    model_type: str
    d_model: int = Field(ge=2, le=2**16, multiple_of=2)
    vocab_size: int = Field(ge=4, le=2**24)
    encoder_layers: int = Field(ge=1, le=1000)
    decoder_layers: int = Field(ge=1, le=1000)
    encoder_attention_heads: int = Field(ge=1)
    decoder_attention_heads: int = Field(ge=1)
    encoder_ffn_dim: int = Field(ge=1, le=2**20)
    decoder_ffn_dim: int = Field(ge=1)
    activation_function: Literal["relu", "gelu", "silu", "swish"]
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    activation_dropout: float = Field(default=0.0, ge=0, le=0.99)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for keys in OPTIONS.values():
            if len({getattr(self, key) for key in keys}) > 1:
                raise ValueError(f"{' and '.join(keys)} differ")
        if self.d_model % self.encoder_attention_heads:
            raise ValueError("d_model is no multiple of encoder_attention_heads")
        return self

    def common_options(self) -> dict[str, Any]:
        activations = {name: ours for ours, name in ACTIVATIONS.items()}
        options = {ours: getattr(self, keys[0]) for ours, keys in OPTIONS.items()}
        return options | {"activation": activations.get(self.activation_function, self.activation_function)}


class MarianConfig(TransformersConfig):
    """Keys of MarianMT and Pegasus."""

    model_type: _Architecture
    decoder_vocab_size: int | None = None
    scale_embedding: Literal[True]
    normalize_before: Literal[False] = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    num_beams: int = Field(default=6, ge=1, le=1000)

    def our_options(self) -> ModelConfig:
        ties = "all" if self.share_encoder_decoder_embeddings else "target"
        return ModelConfig.model_validate(
            self.common_options()
            | {
                "norm_order": "pre" if self.model_type == "pegasus" else "post",
                "tie_embeddings": ties if self.tie_word_embeddings else "none",
                "output_bias": True,
            }
        )
