"""Attention weights of a forward pass, for pictures and alignments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from mt_cli.model.attention import MultiHeadAttention


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[dict[str, list[Tensor]]]:
    """Context manager that records the weights BxHxTxS of every call of every attention.

    Keys are the names of modules, such as `decoder.0.cross_attention`.
    """
    attentions = {name: each for name, each in model.named_modules() if isinstance(each, MultiHeadAttention)}
    record: dict[str, list[Tensor]] = {name: [] for name in attentions}
    for name, attention in attentions.items():
        attention.recorded = record[name]
    try:
        yield record
    finally:
        for attention in attentions.values():
            attention.recorded = None
