"""Names and layouts of the weights of a MarianMT model, beside ours."""

from __future__ import annotations

import re

import torch
from torch import Tensor

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_BLOCKS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_FEED_FORWARD = {
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def their_name(name: str) -> str:
    """Marian's name of a weight of a layer, or of the norm after all layers, which Pegasus has."""
    if name.startswith(("encoder_norm.", "decoder_norm.")):
        return "model." + name.replace("_norm.", ".layer_norm.")
    stack, number, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    if module in _FEED_FORWARD:
        theirs = _FEED_FORWARD[module]
    elif module.endswith("_residual.norm"):
        theirs = f"{_BLOCKS[module.removesuffix('_residual.norm')]}_layer_norm"
    else:
        block, _, part = module.partition(".")
        theirs = f"{_BLOCKS[block]}.{_ATTENTION[part]}"
    return f"model.{stack}.layers.{number}.{theirs}.{kind}"


def interleaved(d_model: int) -> Tensor:
    """For each of our dimensions, that of Marian, which has all sines before the cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()


def reordered(weight: Tensor, name: str, order: Tensor) -> Tensor:
    """A weight of a layer with the dimensions of the hidden states in another order."""
    is_input = re.search(r"\.(query|key|value|inner)\.", name) is not None
    if not is_input:
        return weight[order]
    return weight[:, order] if weight.dim() == 2 else weight
