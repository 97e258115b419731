"""Token embeddings and positions (Vaswani et al. 2017, sections 3.4 and 3.5).

Legend of the shapes: N tokens, T query positions, S key positions, D d_model, H heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mt_cli.batching.packing import Grid
from mt_cli.config.sections import ModelConfig
from mt_cli.model.kernels import drop


class Embedding(nn.Module):
    """Token embeddings times sqrt(d_model), plus positions unless attention has them."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, config.d_model)
        self.positions = added_positions(config)
        self.scale = math.sqrt(config.d_model)
        self.dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        self.word_dropout = config.word_dropout

    def forward(self, ids_N: Tensor, grid: Grid) -> Tensor:
        """NxD of ids at the positions of a grid."""
        words_ND = self.table(ids_N)
        if self.training and self.word_dropout:
            words_ND = words_ND * drop(torch.ones_like(words_ND[:, :1]), self.word_dropout)
        if self.positions is None:
            x_ND = words_ND * self.scale
        else:
            positions_ND = self.positions(grid.positions, grid.num_positions)
            x_ND = torch.add(positions_ND.to(words_ND.dtype), words_ND, alpha=self.scale)
        return drop(x_ND, self.dropout) if self.training else x_ND


class SinusoidalPositions(nn.Module):
    """Sines in the even dimensions, cosines in the odd ones (section 3.5). The table grows as needed."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)

    def forward(self, positions_N: Tensor, num_positions: int) -> Tensor:
        """NxD encodings of positions below `num_positions`."""
        if num_positions > len(self.table):
            self.table = sinusoids(2 * num_positions, self.table.shape[1]).to(self.table.device)
        return self.table[positions_N]


class LearnedPositions(nn.Embedding):
    """A trained table of positions, of limited length (Gehring et al. 2017)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.max_positions, config.d_model)

    def forward(self, positions_N: Tensor, num_positions: int) -> Tensor:  # type: ignore[override]
        """NxD encodings of positions below `num_positions`."""
        return self.weight[positions_N]


def added_positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions | None:
    """The encoding that is added to embeddings; None if only attention knows positions."""
    if config.positions == "learned":
        return LearnedPositions(config)
    return SinusoidalPositions(config.d_model) if config.positions == "sinusoidal" else None


class RelativeBias(nn.Module):
    """A learned bias of the scores of each head for the distance of a key (Raffel et al. 2020, section 2.1).

    Distances share 32 buckets: half of them for one distance each, the others wider the further they are, the last for
    all from 128. If keys may follow queries (`has_future`), each direction has half of the buckets.
    """

    max_distance = 128

    def __init__(self, config: ModelConfig, has_future: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(32, config.num_heads))
        self.has_future = has_future

    def forward(self, queries_T: Tensor, keys_S: Tensor) -> Tensor:
        """HxTxS of the positions of queries and keys."""
        return self.weight[self.buckets(keys_S - queries_T[:, None])].permute(2, 0, 1)

    def buckets(self, distances: Tensor) -> Tensor:
        """The bucket of each distance, key minus query."""
        num_buckets = len(self.weight) // (2 if self.has_future else 1)
        first = num_buckets * (distances > 0) if self.has_future else torch.zeros_like(distances)
        sizes = distances.abs() if self.has_future else (-distances).clamp(min=0)
        num_exact = num_buckets // 2
        octaves = torch.log(sizes.clamp(min=1) / num_exact) / math.log(self.max_distance / num_exact)
        wide = num_exact + (octaves * (num_buckets - num_exact)).long()
        return first + torch.where(sizes < num_exact, sizes, wide.clamp(max=num_buckets - 1))


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)) and PE(p, 2i+1) = cos of the same, as num_positions x D on the CPU."""
    frequencies = torch.exp(torch.arange(0, d_model, 2, device="cpu") * (-math.log(10_000.0) / d_model))
    angles = torch.arange(num_positions, device="cpu")[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)
