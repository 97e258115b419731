"""Packed layouts: where the tokens of sequences lie in memory. Knows lengths and ids; does not know models.

Most operations treat each token by itself, so training packs tokens one after the other, without padding. Attention
alone needs to know which tokens belong together. Our kernel for GPUs reads the starts of the sequences. Other
kernels need a grid, a matrix of sequences x positions. Its slots are gathered from the rows of tokens by index, and
rows from slots, at the cost of the copy that splitting heads needs anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.tokenizer.special_tokens import PAD_ID

# Legend of the shapes: N rows of tokens, B sequences, T positions, H heads.

_SHORTEST_SEQUENCES, _SEQUENCES_OF_SHAPES_PER_OCTAVE = 64, 4
"""For `Shape`: the smallest `longest`, and the number of sizes between a number of sequences and its double."""
_TOKENS_PER_OCTAVE, _SEQUENCES_PER_OCTAVE, _MULTIPLE_OF_POSITIONS = 16, 8, 2
"""Numbers of sizes of tokens and of sequences between a number and its double, and the multiple of positions. With few
sizes, shapes recur. On CPUs, a new shape of a bf16 product costs half a millisecond and some memory, and a batch has
thirty products. An epoch of the captions has 60 shapes of matrices instead of 93, and 13 numbers of tokens instead of
hundreds."""


T = TypeVar("T")


def moved(value: T, move: Callable[[Tensor], Tensor]) -> T:
    """Copy of a dataclass with each of its tensors moved to other memory, such as that of a device."""
    if isinstance(value, Tensor):
        return move(value)  # type: ignore[return-value]
    if not is_dataclass(value):
        return value
    fields: dict[str, Any] = {name: moved(field, move) for name, field in vars(value).items()}
    return replace(value, **fields)  # type: ignore[type-var]


@dataclass(frozen=True)
class Shape:
    """Sizes of all tensors of a batch without a grid; batches with equal sizes can share a CUDA graph."""

    source_rows: int
    target_rows: int
    num_sequences: int  # Includes sequences of padding and empty sequences.
    longest: int  # Upper limit for the rows of the longest sequence.


@dataclass(frozen=True)
class PackedLayout:
    """Sequence and position of each row of tokens, as starts of sequences and as a grid of B sequences x T positions.

    Packed tokens follow each other; `rows` and `slots` map slots of the grid to rows and back. The number of tokens is
    rounded up by padding rows, and the number of sequences by further sequences, to which the padding rows belong. No
    token attends to padding, and padding has no gradient. Padded tokens are the grid: row b*T + t is slot (b, t).
    """

    positions: Tensor  # N, the position of each row in its sequence; or one position for all.
    num_positions: int  # Larger than every position.
    mask: Tensor | None  # BxT, True where a token may be attended to, and in one slot of each sequence of padding.
    num_tokens: int  # Rows without padding rows.
    num_sequences: int  # Sequences without sequences of padding.
    rows: Tensor | None = None  # BxT, the row in each slot; a padding row if there is no token. With heads, BxHxT.
    slots: Tensor | None = None  # N, the slot b*T + t of each row. With heads, NxH.
    starts: Tensor | None = None  # B+1 (int32), the first row of each sequence, and N. None for padded tokens.
    sequences: Tensor | None = None  # N (int32), the sequence of each row. None for padded tokens.
    rotary_factors: Tensor | None = None  # NxCx2, cosine and sine for each of the C pairs of elements of a row.

    def without_grid(self) -> PackedLayout:
        """Layout for kernels that read where sequences start."""
        return replace(self, mask=None, rows=None, slots=None)

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
    """Layout of the rows of a grid of ids, with padding, which its mask excludes."""
    num_sequences, length = ids_BT.shape
    positions = torch.arange(length, device=ids_BT.device).repeat(num_sequences)
    return PackedLayout(positions, length, ids_BT != PAD_ID, num_sequences * length, num_sequences)


def packed_layout(lengths: NDArray[np.integer[Any]]) -> PackedLayout:
    """Packed layout of one or more sequences with these lengths; no sequence may be empty."""
    num_sequences, num_tokens = len(lengths), int(lengths.sum())
    num_rows = round_up(num_tokens + 1, _TOKENS_PER_OCTAVE)
    num_columns = -(-int(lengths.max()) // _MULTIPLE_OF_POSITIONS) * _MULTIPLE_OF_POSITIONS
    num_all_sequences = round_up(num_sequences + 1, _SEQUENCES_PER_OCTAVE)
    # The sequences of padding share its rows evenly.
    bounds = np.linspace(num_tokens, num_rows, num_all_sequences - num_sequences + 1).astype(np.int64)
    padding = bounds[1:] - bounds[:-1]
    layout = _without_grid(lengths, padding, num_columns)
    slots = np.full(num_rows, num_sequences * num_columns, dtype=np.int64)
    first_slots = np.repeat(np.arange(num_sequences) * num_columns, lengths)
    slots[:num_tokens] = first_slots + layout.positions.numpy()[:num_tokens]
    rows = np.full((num_all_sequences, num_columns), num_tokens, dtype=np.int64)
    rows.reshape(-1)[slots[:num_tokens]] = np.arange(num_tokens)
    mask = rows != num_tokens
    mask[num_sequences:, 0] = True  # The softmax of a row without any key is not a number.
    mask_BT, rows_BT, slots_N = map(torch.from_numpy, (mask, rows, slots))
    return replace(layout, mask=mask_BT, rows=rows_BT, slots=slots_N)


def shaped_layout(lengths: NDArray[np.integer[Any]], num_rows: int, num_sequences: int, longest: int) -> PackedLayout:
    """Packed layout of these sizes without a grid; padding rows form sequences of up to `longest` rows."""
    ends = np.arange(1, num_sequences - len(lengths) + 1) * longest
    padding: NDArray[np.integer[Any]] = np.diff(np.minimum(ends, num_rows - lengths.sum()), prepend=0)
    return _without_grid(lengths, padding, longest)


def _without_grid(
    lengths: NDArray[np.integer[Any]], padding: NDArray[np.integer[Any]], num_positions: int
) -> PackedLayout:
    """Packed layout of sequences with these lengths, followed by sequences of padding with the lengths `padding`."""
    all_lengths = np.append(lengths, padding)
    ends = np.cumsum(all_lengths)
    sequences = np.repeat(np.arange(len(all_lengths), dtype=np.int32), all_lengths)
    positions = np.arange(len(sequences)) - np.repeat(ends - all_lengths, all_lengths)
    positions[int(lengths.sum()) :] = 0
    return PackedLayout(
        torch.from_numpy(positions),
        num_positions,
        None,
        int(lengths.sum()),
        len(lengths),
        starts=torch.from_numpy(np.append(0, ends).astype(np.int32)),
        sequences=torch.from_numpy(sequences),
    )


def shape_of(lengths: NDArray[np.integer[Any]], batch_tokens: int) -> Shape:
    """Rounded-up sizes for sequences with the lengths 2xB, in a batch of at most `batch_tokens` rows a side.

    Rows are rounded up to eighths of `batch_tokens`, so that batches have few shapes. In batches of 25,000 tokens, the
    captions have 16 shapes and 5 % padding; pairs of random lengths from 8 to 40 have 56 shapes and 4 % padding.
    """
    longest = max(_SHORTEST_SEQUENCES, 1 << (int(lengths.max()) - 1).bit_length())
    multiple = max(8, -(-batch_tokens // 64) * 8)
    source_rows, target_rows = (-(-int(rows) // multiple) * multiple for rows in lengths.sum(axis=1))
    num_sequences = round_up(lengths.shape[1] + multiple // longest + 1, _SEQUENCES_OF_SHAPES_PER_OCTAVE)
    return Shape(source_rows, target_rows, num_sequences, longest)


def round_up(number: int, sizes_per_octave: int) -> int:
    """Next multiple of 8, or of a step that leaves `sizes_per_octave` sizes between a number and its double."""
    multiple: int = max(8, 2 ** (number.bit_length() - 1) // sizes_per_octave)
    return -(-number // multiple) * multiple


def pack(ids: NDArray[np.integer[Any]], layout: PackedLayout, special: int, at_end: bool) -> Tensor:
    """N ids (int64) of consecutive sequences and padding; each sequence has `special` at its end, or at its start."""
    is_first = layout.positions.numpy()[: layout.num_tokens] == 0
    is_special = np.append(is_first[1:], True) if at_end else is_first
    packed = np.full(len(layout.positions), PAD_ID, dtype=np.int64)
    tokens = packed[: layout.num_tokens]
    tokens[is_special], tokens[~is_special] = special, ids
    return torch.from_numpy(packed)
