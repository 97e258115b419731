"""Descriptions of models of `transformers`, `config.json`, as far as a run can have such a model."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, Field, model_validator

from mt_cli.config.sections import ModelConfig
from mt_cli.exchange.names import ACTIVATIONS, OPTIONS

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
