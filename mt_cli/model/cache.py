"""The key/value cache of incremental decoding.

Legend of the shapes: B sentences, N beams, S source positions, C columns (N for each target position), H heads,
K d_head.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.batching.packing import PackedLayout

KeysValues = tuple[Tensor, Tensor]
"""Keys and values BxHxSxK."""

_POSITIONS_AT_ONCE = 8


class KeyValueCache:
    """Keys and values of the source and of the target tokens read so far, so that no prefix is computed twice.

    Each step adds N columns, one for each beam. Keys stay in their columns when beams change places; only `bias`
    changes, which marks the columns that a beam descends from.

    `memory` has the cross-attention keys and values of each layer. `memory_bias` (Bx1x1xS) is 0 for keys that may be
    attended to and -inf for others.
    """

    def __init__(self, memory: list[KeysValues], memory_bias: Tensor, num_beams: int) -> None:
        self.memory, self.memory_bias, self.num_beams = memory, memory_bias, num_beams
        self.length = 0  # Target positions read.
        # Bx1xNxC, 0 for the tokens that a beam descends from, -inf for other tokens and for unused columns.
        self.bias = memory_bias.new_empty(len(memory_bias), 1, num_beams, 0)
        # BxHxCxK, self-attention keys and values of each layer in turn, with room for more columns.
        self._past = [past.new_empty(*past.shape[:2], 0, past.shape[3]) for pair in memory for past in pair]

    @property
    def num_columns(self) -> int:
        """Number of columns that self-attention reads, rounded up, because oneDNN has to prepare every new shape."""
        return -(-self.length // _POSITIONS_AT_ONCE) * _POSITIONS_AT_ONCE * self.num_beams

    def advance(self) -> PackedLayout:
        """Add a position with one token for each beam; return the layout of these tokens.

        The beams of a sentence are consecutive rows. They share the memory and the past of the sentence as if they were
        more positions of it.
        """
        num_sentences, device = len(self.bias), self.bias.device
        position = torch.full((1,), self.length, device=device)  # `torch.tensor` would wait for a GPU.
        self.length += 1
        if (missing := self.num_columns - self.bias.shape[3]) > 0:
            self.bias = F.pad(self.bias, (0, missing), value=-math.inf)
        if self.num_columns > (size := self._past[0].shape[2]):
            # Zeros, because a masked value is multiplied by 0, and 0 times infinity is NaN.
            self._past = [F.pad(past, (0, 0, 0, 2 * self.num_columns - size)) for past in self._past]
        self.bias[:, 0, :, self._newest].diagonal(dim1=1, dim2=2).zero_()
        mask = torch.ones(num_sentences, self.num_beams, dtype=torch.bool, device=device)
        return PackedLayout(position, self.length, mask, num_sentences * self.num_beams, num_sentences)

    @property
    def _newest(self) -> slice:
        return slice((self.length - 1) * self.num_beams, self.length * self.num_beams)

    def append(self, layer: int, keys_values: KeysValues) -> KeysValues:
        """Write keys and values BxHxNxK of the newest position; return BxHxCxK of all columns, zeros if unused."""
        past_keys, past_values = self._past[2 * layer : 2 * layer + 2]
        past_keys[:, :, self._newest], past_values[:, :, self._newest] = keys_values
        return past_keys[:, :, : self.num_columns], past_values[:, :, : self.num_columns]

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Let each beam continue the beam `parents_BN` of its sentence, then keep only `sentences`; None: all."""
        if parents_BN is not None and self.num_beams > 1:
            index = parents_BN[:, None, :, None].expand(-1, -1, -1, self.bias.shape[3])
            self.bias = self.bias.gather(2, index)
        if sentences is not None:
            self.memory = [(keys[sentences], values[sentences]) for keys, values in self.memory]
            self.memory_bias, self.bias = self.memory_bias[sentences], self.bias[sentences]
            self._past = [past.index_select(0, sentences) for past in self._past]
