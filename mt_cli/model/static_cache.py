"""A key/value cache in tensors with fixed addresses, for steps that are recorded once and replayed.

It has the content of `KeyValueCache` in shapes that recur: the numbers of sentences, of source positions and of target
positions are rounded up. Self-attention reads only the first columns of those allocated. The current position is a
tensor, so that a recorded step can advance it. Knows tensors and shapes; does not know graphs or models.

Legend of the shapes: B sentences, N beams, S source positions, C columns (N for each target position), H heads,
K d_head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.batching.packing import PackedLayout, round_up
from mt_cli.model.cache import KeysValues, KeyValueCache

_SENTENCES_PER_OCTAVE = 4
SOURCE_MULTIPLE = 16
_FEWEST_READ, _FEWEST_POSITIONS, _POSITIONS_PER_OCTAVE = 16, 32, 2
_GROWTH = 1.5


def rounded_sentences(number: int) -> int:
    """Number of sentences, rounded up to a size that caches have: 1, 2, 4, 8, then four sizes an octave."""
    return round_up(number, _SENTENCES_PER_OCTAVE) if number > 4 else 1 << (number - 1).bit_length()


def rounded_positions(number: int) -> int:
    """Number of target positions, rounded up to a size that self-attention reads: 16, 24, 32, 48, 64, 96, 128, ..."""
    units = -(-number // (_FEWEST_READ // _POSITIONS_PER_OCTAVE))
    if units <= _POSITIONS_PER_OCTAVE:
        return _FEWEST_READ
    multiple = 2 ** ((units - 1).bit_length() - 1) // _POSITIONS_PER_OCTAVE
    return -(-units // multiple) * multiple * _FEWEST_READ // _POSITIONS_PER_OCTAVE


@dataclass(frozen=True)
class CacheShape:
    """Sizes of a cache. All of its tensors follow from them and from the model."""

    num_sentences: int
    num_beams: int
    source_length: int
    num_positions: int

    @property
    def num_rows(self) -> int:
        """Number of rows of beams."""
        return self.num_sentences * self.num_beams

    @property
    def num_columns(self) -> int:
        """Number of columns that self-attention reads."""
        return self.num_positions * self.num_beams

    @property
    def capacity(self) -> int:
        """Number of columns that are allocated."""
        return max(self.num_positions, _FEWEST_POSITIONS) * self.num_beams


class Arena:
    """Memory for tensors of changing shapes, with a separate part for each name.

    Tensors of the same name have the same address, unless a larger tensor was requested in between.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.num_moves = device, 0
        """`num_moves` counts how often a name got a new address."""
        self._flat: dict[str, Tensor] = {}

    def tensor(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Tensor of this shape with undefined content; tensors of the same name share memory."""
        size, flat = math.prod(shape), self._flat.get(name)
        if flat is None or len(flat) < size:
            room = size if flat is None else max(size, int(_GROWTH * len(flat)))
            self._flat[name] = flat = torch.zeros(room, dtype=dtype, device=self.device)
            self.num_moves += 1
        return flat[:size].view(*shape)


class StaticCache:
    """Keys and values of the source and of the target tokens read so far, in tensors with fixed addresses.

    `memory`, `memory_bias` and `bias` are as in `KeyValueCache`, in the number format of the keys. Sentences that were
    added to round up have a memory of zeros; their rows are computed like all other rows.
    """

    def __init__(self, arena: Arena, started: KeyValueCache) -> None:
        """Copy the sentences of a cache that has no target positions yet."""
        keys = started.memory[0][0]
        num_sentences, self._num_heads, source_length, self._d_head = keys.shape
        self._arena, self._dtype, self._num_layers = arena, keys.dtype, len(started.memory)
        self.num_sentences = num_sentences
        """Number of sentences, without sentences that were added to round up."""
        self.length = 0  # Target positions read.
        source_length = -(-source_length // SOURCE_MULTIPLE) * SOURCE_MULTIPLE
        self._set_shape(
            CacheShape(rounded_sentences(num_sentences), started.num_beams, source_length, rounded_positions(1))
        )
        self._position = arena.tensor("position", (1,), torch.int64).fill_(-1)
        self.parents.copy_(torch.arange(started.num_beams, device=arena.device).expand_as(self.parents))
        self._bias.fill_(-math.inf)
        for past in self._past:
            past.zero_()  # A masked value is multiplied by 0, and 0 times infinity is NaN.
        for pair, started_pair in zip(self.memory, started.memory, strict=True):
            for memory, content in zip(pair, started_pair, strict=True):
                _write(memory, content, 0.0)
        _write(self.memory_bias, started.memory_bias, -math.inf)
        self.memory_bias[num_sentences:].zero_()  # The softmax of a row of -inf would be NaN.

    def _set_shape(self, shape: CacheShape) -> None:
        self.shape, tensor = shape, self._arena.tensor
        keys = (shape.num_sentences, self._num_heads)
        layers = range(self._num_layers)
        self.memory: list[KeysValues] = [
            (
                tensor(f"memory keys {layer}", (*keys, shape.source_length, self._d_head), self._dtype),
                tensor(f"memory values {layer}", (*keys, shape.source_length, self._d_head), self._dtype),
            )
            for layer in layers
        ]
        self._past = [
            tensor(f"{part} {layer}", (*keys, shape.capacity, self._d_head), self._dtype)
            for layer in layers
            for part in ("keys", "values")
        ]
        self.memory_bias = tensor("memory bias", (shape.num_sentences, 1, 1, shape.source_length), self._dtype)
        self._bias = tensor("bias", (shape.num_sentences, 1, shape.num_beams, shape.capacity), self._dtype)
        self.bias = self._bias[..., : shape.num_columns]  # No beam descends from the other columns.
        self.parents = tensor("parents", (shape.num_sentences, shape.num_beams), torch.int64)
        """The beam of its sentence that each beam continues at the next position."""

    def reserve(self) -> None:
        """Make room for one more position; call it before each `advance`, and do not record it."""
        self.length += 1
        if self.length > self.shape.num_positions:
            self._reshape(None, replace(self.shape, num_positions=rounded_positions(self.length)))

    def advance(self) -> PackedLayout:
        """Go to the next position, with one token for each beam; return the layout of these tokens.

        Reads only values on the device, so it can be recorded.
        """
        shape, device = self.shape, self._arena.device
        self._position.add_(1)
        self._newest_columns = self._position * shape.num_beams + torch.arange(shape.num_beams, device=device)
        if shape.num_beams > 1:
            index = self.parents[:, None, :, None].expand(-1, -1, -1, shape.num_columns)
            self.bias.copy_(self.bias.gather(2, index))
        is_own_NC = torch.arange(shape.num_columns, device=device) == self._newest_columns[:, None]
        self.bias.masked_fill_(is_own_NC, 0.0)
        mask = torch.ones(shape.num_sentences, shape.num_beams, dtype=torch.bool, device=device)
        return PackedLayout(self._position, shape.num_positions, mask, shape.num_rows, shape.num_sentences)

    def append(self, layer: int, keys_values: KeysValues) -> KeysValues:
        """Write keys and values BxHxNxK of the newest position; return BxHxCxK of the columns to read."""
        read = slice(self.shape.num_columns)  # Zeros where unused.
        past_keys, past_values = (past[:, :, read] for past in self._past[2 * layer : 2 * layer + 2])
        for past, newest in zip((past_keys, past_values), keys_values, strict=True):
            past.index_copy_(2, self._newest_columns, newest)
        return past_keys, past_values

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Let each beam continue the beam `parents_BN` of its sentence, then keep only `sentences`; None: all."""
        if parents_BN is not None:
            self.parents[: self.num_sentences].copy_(parents_BN)
        if sentences is not None:
            self.num_sentences = len(sentences)
            number = rounded_sentences(len(sentences))
            rows = F.pad(sentences, (0, number - len(sentences)))  # Further copies of the first sentence.
            self._reshape(rows, replace(self.shape, num_sentences=number))

    def _reshape(self, rows: Tensor | None, shape: CacheShape) -> None:
        """Move the content of all sentences, or of some rows of them, to tensors of another shape."""
        before = self._content()
        self._set_shape(shape)
        for (old, _), (new, fill) in zip(before, self._content(), strict=True):
            if rows is not None or old.shape != new.shape:
                # Copied first, because both tensors share memory.
                _write(new, old.clone() if rows is None else old.index_select(0, rows), fill)

    def _content(self) -> list[tuple[Tensor, float]]:
        """All tensors with a row for each sentence, and the value of their unused parts."""
        zero = [*self._past, *(memory for pair in self.memory for memory in pair), self.parents]
        return [*((tensor, 0.0) for tensor in zero), (self.memory_bias, -math.inf), (self._bias, -math.inf)]


def _write(place: Tensor, content: Tensor, fill: float) -> None:
    """Copy a tensor to the beginning of each dimension of a larger one, and fill the rest."""
    if place.shape != content.shape:
        place.fill_(fill)
    place[tuple(slice(size) for size in content.shape)].copy_(content)
