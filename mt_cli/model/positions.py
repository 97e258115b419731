"""Token embeddings and positions (Vaswani et al. 2017, sections 3.4 and 3.5).

Legend of the shapes: N tokens, D d_model, H heads, K d_head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.data.packing import PackedLayout
from mt_cli.model.kernels import drop, is_cpu
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions unless these are rotary."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, config.d_model)
        self.positions: SinusoidalPositions | None = None  # Rotary positions are applied by attention.
        if config.positions != "rotary":
            encodings = fairseq_sinusoids if config.positions == "fairseq" else sinusoids
            self.positions = SinusoidalPositions(config.d_model, encodings)
        self.starts_with_eos = config.positions == "fairseq"
        self.scale = math.sqrt(config.d_model)
        self.dropout = config.dropout

    def forward(self, ids_N: Tensor, layout: PackedLayout) -> Tensor:
        """Embed ids at the positions of a layout, as NxD."""
        if self.starts_with_eos:
            ids_N = ids_N.masked_fill(ids_N == SOS_ID, EOS_ID)
        words_ND = self.table(ids_N)
        if self.positions is None:
            x_ND = words_ND * self.scale
        else:
            positions_ND = self.positions(layout.positions, layout.num_positions)
            x_ND = torch.add(positions_ND.to(words_ND.dtype), words_ND, alpha=self.scale)
        return drop(x_ND, self.dropout) if self.training else x_ND


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos(p / 10000^(2i/D)) (section 3.5), num_positions x D."""
    frequencies = torch.exp(torch.arange(0, d_model, 2, device="cpu") * (-math.log(10_000.0) / d_model))
    angles = torch.arange(num_positions, device="cpu")[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)


def fairseq_sinusoids(num_positions: int, d_model: int) -> Tensor:
    """`sinusoids` of fairseq, M2M100 and NLLB: all sines before all cosines, and without the first two positions.

    The wavelengths are a geometric progression that ends at 10000 * 2 pi.
    """
    half = d_model // 2
    frequencies = torch.exp(torch.arange(half, device="cpu") * (-math.log(10_000.0) / max(1, half - 1)))
    angles = torch.arange(2, num_positions + 2, device="cpu")[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class SinusoidalPositions(nn.Module):
    """Table of sinusoids, which grows as needed, in fp32 whatever dtype the model has."""

    table: Tensor

    def __init__(self, d_model: int, encodings: Callable[[int, int], Tensor] = sinusoids) -> None:
        super().__init__()
        self.encodings = encodings
        self.register_buffer("table", encodings(256, d_model), persistent=False)

    def forward(self, positions_N: Tensor, num_positions: int) -> Tensor:
        """Encodings NxD of positions below `num_positions`."""
        table = self.table  # Another thread may replace the table, even by a shorter one.
        if num_positions > len(table):
            self.table = table = self.encodings(2 * num_positions, table.shape[1]).to(table.device)
        return table[positions_N]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a model to another device, but not to half precision, which would round the angles of positions."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.table = self.encodings(*self.table.shape).to(self.table.device)
        return self


class Rotation(nn.Module):
    """Rotary positions (Su et al. 2021, section 3.2): dot products of rotated rows depend on their distance only.

    The elements 2i and 2i+1 of a head rotate as a pair, by position / 10000^(2i/K) radians.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.sinusoids = SinusoidalPositions(config.d_head)

    def forward(self, layout: PackedLayout) -> PackedLayout:
        """The layout with the rotary factors of its rows, which all layers share."""
        return replace(layout, rotary_factors=rotary_factors(self.sinusoids(layout.positions, layout.num_positions)))


def rotary_factors(sinusoids_NK: Tensor) -> Tensor:
    """Cosines and sines NxCx2 of the angles whose sines and cosines alternate in NxK; C = K/2."""
    return sinusoids_NK.unflatten(1, (-1, 2)).flip(2)


def rotate(x_ND: Tensor, factors_NC2: Tensor) -> Tensor:
    """Multiply the elements 2i and 2i+1 of each head, as a complex number, by factor i of the row, in fp32.

    A single row of factors serves all rows. On CPUs the product of complex numbers takes half the time of the product
    in real numbers, which PyTorch can compile.
    """
    x_NHC2 = x_ND.float().view(len(x_ND), -1, factors_NC2.shape[1], 2)
    factors_N1C2 = factors_NC2[:, None]
    if is_cpu(x_ND):
        product_NHC2 = torch.view_as_real(torch.view_as_complex(x_NHC2) * torch.view_as_complex(factors_N1C2))
    else:
        (cosine, sine), (real, imaginary) = factors_N1C2.unbind(-1), x_NHC2.unbind(-1)
        product_NHC2 = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)
    return product_NHC2.view(x_ND.shape).to(x_ND.dtype)
