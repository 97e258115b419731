"""How the tokens of sentences lie in memory, and how attention gets its grid of sentences x positions from them.

Legend of the shapes: N tokens, B sentences, T positions, D d_model, H heads, K d_head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.batching.packing import Grid
from mt_cli.model.kernels import take_rows
from mt_cli.tokenizer import PAD_ID


@dataclass(frozen=True)
class Padded:
    """Token t of sentence b is row b*T + t; for decoding, where rows come and go."""

    num_sentences: int
    mask: Tensor | None = None
    """Bx1x1xT, which positions may be attended to; None: all."""

    def split_heads(self, x_ND: Tensor, num_heads: int) -> Tensor:
        """BxHxTxK of NxD."""
        return x_ND.view(self.num_sentences, -1, num_heads, x_ND.shape[1] // num_heads).transpose(1, 2)

    def join_heads(self, x_BHTK: Tensor) -> Tensor:
        """NxD of BxHxTxK."""
        return x_BHTK.transpose(1, 2).flatten(start_dim=2).flatten(end_dim=1)


@dataclass(frozen=True)
class Packed:
    """Tokens without padding, which are gathered into a grid and back; for training."""

    rows: Tensor
    """BxHxT, the row of N*H x K in each cell of the grid."""
    cells: Tensor
    """NxH, the cell of the grid of each row."""
    mask: Tensor
    """Bx1x1xT, which positions may be attended to."""

    @classmethod
    def of(cls, grid: Grid, num_heads: int) -> Packed:
        """The layout of a grid for attention with so many heads."""
        length = grid.rows.shape[1]
        heads = torch.arange(num_heads, device=grid.rows.device)
        rows_BHT = grid.rows[:, None, :] * num_heads + heads[:, None]
        sentences, positions = grid.cells // length, grid.cells % length
        cells_NH = (sentences[:, None] * num_heads + heads) * length + positions[:, None]
        return cls(rows_BHT, cells_NH, grid.is_key[:, None, None, :])

    def split_heads(self, x_ND: Tensor, num_heads: int) -> Tensor:
        """BxHxTxK of NxD."""
        x_RK = take_rows(x_ND.view(len(x_ND) * num_heads, -1), self.rows.flatten(), self.cells.flatten())
        return x_RK.view(*self.rows.shape, -1)

    def join_heads(self, x_BHTK: Tensor) -> Tensor:
        """NxD of BxHxTxK."""
        x_RK = x_BHTK.flatten(end_dim=2)
        return take_rows(x_RK, self.cells.flatten(), self.rows.flatten()).view(len(self.cells), -1)


Layout = Padded | Packed


def padded(ids_BT: Tensor) -> Padded:
    """The layout of padded ids."""
    return Padded(len(ids_BT), (ids_BT != PAD_ID)[:, None, None, :])
