"""Weights that are trained: all, all except frozen parts, or low-rank adapters.

The adapters follow Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.

Legend of the shapes: N rows of tokens, I and O widths of input and output, R rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt_cli.config.sections import InitConfig
from mt_cli.errors import ConfigError
from mt_cli.model.attention import MultiHeadAttention
from mt_cli.model.transformer import FeedForward, Transformer

_ALPHA = 16.0
"""An adapter is scaled by this number divided by its rank."""
_PARTS: Mapping[str, Sequence[str]] = {
    "embeddings": ("source_embedding", "target_embedding"),
    "encoder": ("encoder", "encoder_norm"),
    "decoder": ("decoder", "decoder_norm"),
}


def freeze(model: nn.Module, names: Sequence[str]) -> None:
    """Exclude the parts of a model with these names from training."""
    if names:
        trained = _trained(model, names)
        for weight in model.parameters():
            weight.requires_grad_(weight in trained)


def check_trainable(model: Transformer, config: InitConfig) -> None:
    """Raise ConfigError if a part to freeze does not exist, nothing is left to train, or a rank is too large."""
    trained = _trained(model, config.freeze)
    if not trained:
        raise ConfigError("init.freeze: nothing is left to train")
    if config.adapter_rank is None:
        return
    sizes = [min(linear.weight.shape) for _, _, linear in _linear_maps(model) if linear.weight in trained]
    if not sizes:
        raise ConfigError("init.freeze: no attention or feed-forward block is left for adapters")
    if config.adapter_rank > min(sizes):
        raise ConfigError(f"init.adapter_rank: {config.adapter_rank} is more than the width {min(sizes)} of this model")


def _trained(model: nn.Module, frozen: Sequence[str]) -> set[nn.Parameter]:
    """Weights outside of frozen parts. Raises ConfigError for a part that does not exist."""
    modules = {name: module for name, module in model.named_modules() if name and list(module.parameters())}
    excluded = set[nn.Parameter]()
    for part in frozen:
        if part not in _PARTS and part not in modules:
            use = f"use {', '.join(_PARTS)}, or modules such as decoder.0"
            raise ConfigError(f"init.freeze: this model has no part {part!r}; {use}")
        for name in _PARTS.get(part, (part,)):
            excluded.update(modules[name].parameters() if name in modules else ())
    return set(model.parameters()) - excluded


class LowRankLinear(nn.Linear):
    """Linear map with the weight `weight + scale * up @ down`, of which only `up` and `down` are trained.

    `up` begins as zeros, so that the map initially equals the map that it adapts.
    """

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        for parameter in linear.parameters():
            parameter.requires_grad_(False)
        self.scale = scale
        self.down = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))
        self.up = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))
        nn.init.uniform_(self.down, -1 / math.sqrt(linear.in_features), 1 / math.sqrt(linear.in_features))

    def forward(self, x_NI: Tensor) -> Tensor:
        """NxI to NxO."""
        x_NO = F.linear(x_NI, self.weight, self.bias)
        return torch.addmm(x_NO, x_NI @ self.down.T, self.up.T, alpha=self.scale)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Ordinary linear map whose weight is the sum."""
        has_bias = self.bias is not None
        linear = nn.Linear(self.in_features, self.out_features, has_bias, device="meta")
        linear.weight = nn.Parameter(torch.addmm(self.weight, self.up, self.down, alpha=self.scale))
        linear.bias = self.bias
        return linear


def add_adapters(model: Transformer, config: InitConfig) -> None:
    """Add adapters to the attentions and feed-forward blocks of a model if the config has a rank for them.

    Then only the adapters are trained, and the embeddings if the vocabulary is extended. Frozen parts get no adapters.
    """
    if config.adapter_rank is None:
        return
    freeze(model, config.freeze)
    trained = {weight for weight in model.parameters() if weight.requires_grad}
    tables = [embedding.table.weight for embedding in (model.source_embedding, model.target_embedding)]
    model.requires_grad_(False)
    for weight in tables:
        weight.requires_grad_(config.vocabulary == "extend" and weight in trained)
    scale = _ALPHA / config.adapter_rank
    for block, name, linear in _linear_maps(model):
        if linear.weight in trained:
            setattr(block, name, LowRankLinear(linear, config.adapter_rank, scale))


def merge_adapters(model: Transformer) -> None:
    """Turn a model with adapters into an ordinary model with the same output, up to rounding."""
    for block, name, linear in _linear_maps(model):
        if isinstance(linear, LowRankLinear):
            setattr(block, name, linear.merged())
    model.requires_grad_(True)


def _linear_maps(model: nn.Module) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Linear maps of the attentions and feed-forward blocks of a model, each with its block and its name there."""
    blocks = [module for module in model.modules() if isinstance(module, MultiHeadAttention | FeedForward)]
    children = ((block, *child) for block in blocks for child in block.named_children())
    return [(block, name, module) for block, name, module in children if isinstance(module, nn.Linear)]


def saved_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Weights that a run saves, by name: all of them, or for a model with adapters, the trained ones."""
    is_adapted = any(isinstance(module, LowRankLinear) for module in model.modules())
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad or not is_adapted}
