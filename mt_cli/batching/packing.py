"""Packed layouts: where the tokens of sequences lie in memory. Knows lengths and ids; does not know models.

Most operations treat each token by itself, so training packs tokens one after the other, without padding. Attention
alone needs a matrix of sequences x positions. It gathers the slots of the matrix from the rows of tokens by index, and
the rows from the slots, which costs no more than the copy that splitting heads needs anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.tokenizer.special import PAD_ID

# Legend of the shapes: N rows of tokens, B sequences, T positions, H heads.

_TOKENS_PER_OCTAVE, _SEQUENCES_PER_OCTAVE, _MULTIPLE_OF_POSITIONS = 16, 8, 2
"""Number of sizes between a number and its double. Few sizes make shapes recur: on CPUs, a new shape of a bf16 product
costs half a millisecond and some memory, and a batch has thirty products. An epoch of the captions has 60 shapes of
matrices instead of 93, and 13 numbers of tokens instead of hundreds."""


@dataclass(frozen=True)
class PackedLayout:
    """Position of each row of tokens in a matrix of B sequences x T positions.

    Packed tokens follow each other; `rows` and `slots` map matrix slots to rows and back. Padding rows round up the
    number of tokens, and empty sequences the number of sequences. The padding belongs to the empty sequences: no token
    attends to it, and it has no gradient. Padded tokens are the matrix itself: row b*T + t is slot (b, t).
    """

    positions: Tensor  # N, the position of each row in its sequence; or one position for all.
    num_positions: int  # Larger than every position.
    mask: Tensor  # BxT, True where a token may be attended to, and in one slot of each empty sequence.
    num_tokens: int  # Rows without those added to round up.
    num_sequences: int  # Sequences without the empty ones.
    rows: Tensor | None = None  # BxT, the row in each slot, of padding where there is no token. With heads, BxHxT.
    slots: Tensor | None = None  # N, the slot b*T + t of each row. With heads, NxH.
    rotary_factors: Tensor | None = None  # NxC complex numbers, which rotate the C pairs of elements of each row.

    def twice(self) -> PackedLayout:
        """Packed layout followed by a copy of it, each with its padding rows and empty sequences."""
        assert self.rows is not None and self.slots is not None
        num_rows = len(self.positions)
        return PackedLayout(
            self.positions.repeat(2),
            self.num_positions,
            self.mask.repeat(2, 1),
            num_rows + self.num_tokens,
            len(self.mask) + self.num_sequences,
            torch.cat([self.rows, self.rows + num_rows]),
            torch.cat([self.slots, self.slots + self.rows.numel()]),
        )

    def padded(self, ids: Tensor) -> Tensor:
        """Matrix of packed ids with a row for each sequence, padded on the right."""
        return ids[self.rows][: self.num_sequences]

    def with_heads(self, num_heads: int) -> PackedLayout:
        """Layout of N*H rows: one for each head of each token."""
        if self.rows is None or self.slots is None:
            return self
        heads = torch.arange(num_heads, device=self.rows.device)
        rows_BHT = self.rows[:, None, :] * num_heads + heads[:, None]
        sequences, positions = self.slots // self.num_positions, self.slots % self.num_positions
        slots_NH = (sequences[:, None] * num_heads + heads) * self.num_positions + positions[:, None]
        return replace(self, rows=rows_BHT, slots=slots_NH)


def padded_layout(ids_BT: Tensor) -> PackedLayout:
    """Layout of padded ids."""
    num_sequences, length = ids_BT.shape
    positions = torch.arange(length, device=ids_BT.device).repeat(num_sequences)
    return PackedLayout(positions, length, ids_BT != PAD_ID, num_sequences * length, num_sequences)


def packed_layout(lengths: NDArray[np.integer[Any]]) -> PackedLayout:
    """Packed layout of sequences with these lengths: at least one sequence, none of them empty."""
    num_sequences, num_tokens = len(lengths), int(lengths.sum())
    num_rows = round_up(num_tokens + 1, _TOKENS_PER_OCTAVE)
    num_columns = -(-int(lengths.max()) // _MULTIPLE_OF_POSITIONS) * _MULTIPLE_OF_POSITIONS
    num_all_sequences = round_up(num_sequences + 1, _SEQUENCES_PER_OCTAVE)
    positions = np.zeros(num_rows, dtype=np.int64)
    slots = np.full(num_rows, num_sequences * num_columns, dtype=np.int64)
    positions[:num_tokens] = np.arange(num_tokens) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    slots[:num_tokens] = np.repeat(np.arange(num_sequences) * num_columns, lengths) + positions[:num_tokens]
    rows = np.full((num_all_sequences, num_columns), num_tokens, dtype=np.int64)
    rows.reshape(-1)[slots[:num_tokens]] = np.arange(num_tokens)
    mask = rows != num_tokens
    mask[num_sequences:, 0] = True
    return PackedLayout(
        torch.from_numpy(positions),
        num_columns,
        torch.from_numpy(mask),
        num_tokens,
        num_sequences,
        torch.from_numpy(rows),
        torch.from_numpy(slots),
    )


def round_up(number: int, sizes_per_octave: int) -> int:
    """Next multiple of 8, or of a step that leaves `sizes_per_octave` sizes between a number and its double."""
    multiple: int = max(8, 2 ** (number.bit_length() - 1) // sizes_per_octave)
    return -(-number // multiple) * multiple


def pack(ids: NDArray[np.integer[Any]], layout: PackedLayout, special: int, at_end: bool) -> Tensor:
    """N ids (int64): consecutive sequences, each with the id `special` at its end or else at its start, and padding."""
    is_first = layout.positions.numpy()[: layout.num_tokens] == 0
    is_special = np.append(is_first[1:], True) if at_end else is_first
    packed = np.full(len(layout.positions), PAD_ID, dtype=np.int64)
    tokens = packed[: layout.num_tokens]
    tokens[is_special], tokens[~is_special] = special, ids
    return torch.from_numpy(packed)
