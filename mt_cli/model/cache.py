"""The key/value cache of incremental decoding.

Legend of the shapes: B sentences, N beams, S source positions, C columns (N per target position), H heads, K head dim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.data.packing import PackedLayout, round_up
from mt_cli.model.kernels import is_cpu

KeysValues = tuple[Tensor, Tensor]
"""Keys and values BxHxSxK."""

SOURCE_MULTIPLE, _POSITIONS_AT_ONCE = 16, 8
_GROWTH = 1.5


def rounded_sentences(number: int) -> int:
    """Number of sentences, rounded up to a size that recurs: 1, 2, 4, 8, then four sizes an octave."""
    return round_up(number, sizes_per_octave=4) if number > 4 else 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class CacheShape:
    """Sizes of a cache."""

    num_sentences: int
    num_beams: int
    source_length: int
    num_positions: int
    """Number of positions that there is room for, N columns each."""

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
        return max(32, round_up(self.num_positions, sizes_per_octave=1)) * self.num_beams


class Arena:
    """Memory for tensors of changing shapes; those of one name share an address unless a larger one is requested."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.num_moves = 0  # Number of times that a name got a new address.
        self._flat: dict[str, Tensor] = {}

    def tensor(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Tensor of this shape with undefined content."""
        size, flat = math.prod(shape), self._flat.get(name)
        if flat is None or len(flat) < size:
            room = size if flat is None else max(size, int(_GROWTH * len(flat)))
            self._flat[name] = flat = torch.zeros(room, dtype=dtype, device=self.device)
            self.num_moves += 1
        return flat[:size].view(*shape)


class KeyValueCache:
    """Keys and values of the source and of the target tokens read so far, so that no prefix is computed twice.

    Each step appends one column for each beam. Keys and values are never reordered: all beams of a sentence read all
    its columns, and the mask `bias` is -inf at columns that are not in a beam's own history. When beams change places,
    only rows of `bias` do. When a cache on a CPU is copied, because it grows or sentences leave, the columns that no
    beam has in its history any more are dropped: with five beams, three quarters of those of a long translation.

    With an arena, tensors have fixed addresses and shapes that recur, so that a step can be captured and replayed.
    Sizes are rounded up by copies of the first sentence, and by positions that are masked.
    """

    def __init__(
        self, memory: Iterable[KeysValues], memory_bias: Tensor, num_beams: int, arena: Arena | None = None
    ) -> None:
        self._memory = list(chain.from_iterable(memory))  # BxHxSxK, keys and values of each layer in turn.
        self._past = [x[:, :, :0] for x in self._memory]  # BxHxCxK, of self-attention.
        keys = self._memory[0]
        self.memory_bias = memory_bias if arena is None else memory_bias.to(keys.dtype)
        """Bx1x1xS, 0 for keys that may be attended to and -inf for others."""
        self._bias = self.memory_bias.new_empty(len(keys), 1, num_beams, 0)
        self.num_sentences, self.num_beams, self._source_length = len(keys), num_beams, keys.shape[2]
        self.length = 0  # Target positions read.
        self._num_dropped = 0  # Positions by which dropped columns have made the others move up.
        self._arena = arena
        position = torch.empty(1, dtype=torch.int64, device=keys.device)
        self._position = (position if arena is None else arena.tensor("position", (1,), torch.int64)).fill_(-1)
        self._resize()

    def reserve(self) -> None:
        """Make room for one more position. With an arena, call it before each `advance`, outside of a capture."""
        if self.length - self._num_dropped == self.shape.num_positions:
            self._resize(num_new=1)
        self.length += 1

    def advance(self) -> PackedLayout:
        """Go to the next position; return the layout of its tokens, one for each beam. Can be captured.

        The beams of a sentence are consecutive rows, as if they were more positions of it.
        """
        if self._arena is None:
            self.reserve()
        shape = self.shape
        self._position.add_(1)
        beams = torch.arange(shape.num_beams, device=self._position.device)
        self._newest = (self._position - self._num_dropped) * shape.num_beams + beams
        self.bias.scatter_(3, self._newest[:, None].expand(shape.num_sentences, 1, -1, 1), 0.0)
        num_positions = max(self.length, shape.num_positions)
        return PackedLayout(self._position, num_positions, None, shape.num_rows, shape.num_sentences)

    def append(self, layer: int, keys_values: KeysValues) -> KeysValues:
        """Write keys and values BxHxNxK of the newest position; return BxHxCxK of the columns to read."""
        keys, values = (past[:, :, : self.shape.num_columns] for past in self._past[2 * layer : 2 * layer + 2])
        return keys.index_copy_(2, self._newest, keys_values[0]), values.index_copy_(2, self._newest, keys_values[1])

    def memory(self, layer: int) -> KeysValues:
        """Cross-attention keys and values BxHxSxK of a layer."""
        return self._memory[2 * layer], self._memory[2 * layer + 1]

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Let each beam continue the beam `parents_BN` of its sentence, then keep only `sentences`; None: all."""
        if parents_BN is not None and self.num_beams > 1:
            bias_B1NC = self.bias[: self.num_sentences]
            bias_B1NC.copy_(bias_B1NC.gather(2, parents_BN[:, None, :, None].expand_as(bias_B1NC)))
        if sentences is not None:
            self.num_sentences = len(sentences)
            self._resize(sentences)

    def _resize(self, sentences: Tensor | None = None, num_new: int = 0) -> None:
        """Move the content of all or some sentences to tensors of the current sizes, with room for new positions."""
        number, source_length = self.num_sentences, self._source_length
        columns = self._columns_to_keep(sentences)
        if columns is not None:
            self._num_dropped = self.length - columns.shape[1] // self.num_beams
        length = max(1, self.length + num_new - self._num_dropped)
        positions = -(-length // _POSITIONS_AT_ONCE) * _POSITIONS_AT_ONCE  # oneDNN has to prepare every new shape.
        if self._arena is not None:
            number, positions = rounded_sentences(number), max(16, round_up(length, sizes_per_octave=2))
            source_length = -(-source_length // SOURCE_MULTIPLE) * SOURCE_MULTIPLE
        self.shape = CacheShape(number, self.num_beams, source_length, positions)
        if sentences is None and number > len(self.memory_bias):
            sentences = torch.arange(self.num_sentences, device=self.memory_bias.device)
        if sentences is not None:
            sentences = F.pad(sentences, (0, number - len(sentences)))
        place, capacity = partial(self._placed, sentences), self.shape.capacity
        # Zeros, because a masked value is multiplied by 0, and 0 times infinity is NaN.
        self._memory = [place(f"memory {i}", x, 2, source_length, 0.0) for i, x in enumerate(self._memory)]
        self.memory_bias = place("memory bias", self.memory_bias, 3, source_length, -math.inf)
        if columns is None:
            self._past = [place(f"past {i}", x, 2, capacity, 0.0) for i, x in enumerate(self._past)]
            self._bias = place("bias", self._bias, 3, capacity, -math.inf)
        else:
            rows = torch.arange(number, device=columns.device) if sentences is None else sentences
            num_empty = capacity - columns.shape[1]
            self._past = [_taken(x, rows, F.pad(columns, (0, num_empty))) for x in self._past]
            bias = self._bias[rows].gather(3, columns[:, None, None].expand(-1, 1, self.num_beams, -1))
            self._bias = F.pad(bias, (0, num_empty), value=-math.inf)
        self.bias = self._bias[..., : self.shape.num_columns]
        """Bx1xNxC, 0 for the columns that a beam descends from and -inf for others."""

    def _columns_to_keep(self, sentences: Tensor | None) -> Tensor | None:
        """BxC indices of the columns that a beam of each sentence reads, and others, N for each position.

        None: all. Only CPUs drop some: a GPU would wait for their number.
        """
        if self.length == 0 or self.num_beams == 1 or self._arena is not None or not is_cpu(self.bias):
            return None
        bias = self.bias if sentences is None else self.bias[sentences]
        is_read_BC = (bias == 0).any(dim=2)[:, 0]
        num_positions = -(-int(is_read_BC.sum(dim=1).max()) // self.num_beams)
        order_BC = is_read_BC.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
        return order_BC[:, : num_positions * self.num_beams]

    def _placed(self, rows: Tensor | None, name: str, content: Tensor, dim: int, size: int, fill: float) -> Tensor:
        """Tensor with some or all rows of the content, padded to a size in one dimension."""
        if rows is not None:
            content = content.index_select(0, rows)
        length = content.shape[dim]
        if self._arena is None and length == size:
            return content.contiguous()  # Otherwise each step would copy it.
        shape = *content.shape[:dim], size, *content.shape[dim + 1 :]
        place = content.new_empty(shape) if self._arena is None else self._arena.tensor(name, shape, content.dtype)
        if place.shape == content.shape and place.data_ptr() == content.data_ptr():
            return place
        content = content if rows is not None else content.clone()  # It may be in the memory of the place.
        place.narrow(dim, length, size - length).fill_(fill)
        place.narrow(dim, 0, length).copy_(content)
        return place


def _taken(x_BHCK: Tensor, rows_B: Tensor, columns_BC: Tensor) -> Tensor:
    """The rows of `x_BHCK`, which is contiguous, each with its own columns."""
    num_heads, num_columns, size = x_BHCK.shape[1:]
    heads = torch.arange(num_heads, device=x_BHCK.device)
    starts_BH1 = ((rows_B[:, None] * num_heads + heads) * num_columns)[..., None]
    places = (starts_BH1 + columns_BC[:, None]).flatten()
    return x_BHCK.view(-1, size).index_select(0, places).view(*starts_BH1.shape[:2], -1, size)
