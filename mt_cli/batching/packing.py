"""Sequences one after the other without padding, and where each of their tokens stands in a padded grid.

Embeddings, linear maps, norms, dropout and the loss treat each token by itself and never see padding. Attention alone
wants a grid of sequences x positions; it gathers its rows from the tokens, and the tokens theirs from its rows, by
index, which costs what copying them into order of heads costs anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.tokenizer import PAD_ID

# Legend of the shapes: N tokens and filling, B sequences and empty ones, T positions.

_TOKENS_PER_OCTAVE, _SEQUENCES_PER_OCTAVE, _MULTIPLE_OF_POSITIONS = 16, 8, 2
"""Sizes between a number and its double. Shapes should come again: on CPUs each new one of a bf16 product costs half a
millisecond, and memory to remember what was prepared for it, and a batch has thirty of them. An epoch of the captions
has 60 shapes of grids instead of 93, and 13 of tokens instead of hundreds."""


@dataclass(frozen=True)
class Grid:
    """Where packed tokens stand in a BxT grid.

    After the tokens there are some rows of filling, for a round number of them, and after the sequences some empty
    ones, to which the filling belongs: no token attends to it, and no gradient comes from it.
    """

    positions: Tensor
    """N, the position of each token in its sequence."""
    cells: Tensor
    """N, the cell b*T + t of the grid in which each token stands."""
    rows: Tensor
    """BxT, the token in each cell; where there is none, a row of filling."""
    is_key: Tensor
    """BxT, True where there is a token; an empty sequence has one too, since attention to nothing is undefined."""
    num_tokens: int
    """Without filling."""
    num_sequences: int
    """Without empty ones."""

    def moved(self, move: Callable[[Tensor], Tensor]) -> Grid:
        """The same grid, of tensors that were moved."""
        positions, cells, rows, is_key = map(move, (self.positions, self.cells, self.rows, self.is_key))
        return Grid(positions, cells, rows, is_key, self.num_tokens, self.num_sequences)

    def halves(self, middle: int) -> tuple[Grid, Grid]:
        """The grids of the sequences before and from number `middle` on, on the same device."""
        lengths = self.is_key[: self.num_sequences].sum(dim=1).cpu().numpy()
        device = self.rows.device
        first, second = (
            grid_of(part).moved(lambda tensor: tensor.to(device)) for part in (lengths[:middle], lengths[middle:])
        )
        return first, second

    def split_ids(self, ids: Tensor, halves: tuple[Grid, Grid]) -> tuple[Tensor, Tensor]:
        """The packed ids of two halves of this grid."""
        parts = ids[: self.num_tokens].split([half.num_tokens for half in halves])
        first, second = (
            torch.nn.functional.pad(part, (0, len(half.positions) - len(part)), value=PAD_ID)
            for part, half in zip(parts, halves, strict=True)
        )
        return first, second

    def padded(self, ids: Tensor) -> Tensor:
        """Packed ids as a matrix, a row for each sequence, padded on the right."""
        return ids[self.rows][: self.num_sequences]


def grid_of(lengths: NDArray[np.integer[Any]]) -> Grid:
    """The grid of sequences of these lengths, at least one, none of them empty."""
    num_sequences, num_tokens = len(lengths), int(lengths.sum())
    num_rows = round_up(num_tokens + 1, _TOKENS_PER_OCTAVE)
    num_columns = -(-int(lengths.max()) // _MULTIPLE_OF_POSITIONS) * _MULTIPLE_OF_POSITIONS
    num_grid_rows = round_up(num_sequences + 1, _SEQUENCES_PER_OCTAVE)
    empty_cell = num_sequences * num_columns
    positions = np.zeros(num_rows, dtype=np.int64)
    cells = np.full(num_rows, empty_cell, dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    positions[:num_tokens] = np.arange(num_tokens) - np.repeat(starts, lengths)
    cells[:num_tokens] = np.repeat(np.arange(num_sequences) * num_columns, lengths) + positions[:num_tokens]
    rows = np.full(num_grid_rows * num_columns, num_tokens, dtype=np.int64)
    rows[cells[:num_tokens]] = np.arange(num_tokens)
    is_key = (rows != num_tokens).reshape(num_grid_rows, num_columns)
    is_key[num_sequences:, 0] = True
    return Grid(
        torch.from_numpy(positions),
        torch.from_numpy(cells),
        torch.from_numpy(rows).view(num_grid_rows, num_columns),
        torch.from_numpy(is_key),
        num_tokens,
        num_sequences,
    )


def round_up(number: int, sizes_per_octave: int) -> int:
    """The next of the numbers of which there are so many between a power of two and the next, or multiple of 8."""
    multiple: int = max(8, 2 ** (number.bit_length() - 1) // sizes_per_octave)
    return -(-number // multiple) * multiple


def pack(ids: NDArray[np.integer[Any]], grid: Grid, start: int | None = None, end: int | None = None) -> Tensor:
    """N ids (int64) of a grid's sequences, each between an optional start and end, and filling.

    `ids` are those of all sequences, one after the other, without start and end.
    """
    packed = np.full(len(grid.positions), PAD_ID, dtype=np.int64)
    positions = grid.positions.numpy()[: grid.num_tokens]
    is_first = positions == 0
    is_special = np.zeros(grid.num_tokens, dtype=bool)
    tokens = packed[: grid.num_tokens]
    if start is not None:
        is_special |= is_first
        tokens[is_first] = start
    if end is not None:
        is_last = np.append(is_first[1:], True)
        is_special |= is_last
        tokens[is_last] = end
    tokens[~is_special] = ids
    return torch.from_numpy(packed)
