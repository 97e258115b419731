"""Entries of the vocabulary that stand for protected spans: a translation has each as often as its source.

Legend of the shapes: B sentences, T positions, V vocabulary, K reserved characters, A entries of a character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mt_cli.tokenizer.tokenizer import TokenizerPair


@dataclass(frozen=True)
class ReservedIds:
    """Entries of K reserved characters. A translation has each character as often as its source."""

    source: Tensor  # V, number of the character of each entry; K for other entries.
    target: Tensor  # V, the same for entries of the target.
    target_ids: Tensor  # KxA, entries of each character.
    orders: Sequence[Sequence[int]] = ()  # Numbers of the characters that keep their order, for each source.

    @classmethod
    def of(cls, tokenizers: TokenizerPair) -> ReservedIds | None:
        """Reserved entries of tokenizers; None if they have none."""
        ids = [torch.tensor(tokenizer.reserved_ids) for tokenizer in tokenizers]
        if not all(map(len, ids)):
            return None
        numbers = [torch.full((tokenizer.vocab_size,), len(ids[0])) for tokenizer in tokenizers]
        for numbers_V, ids_KA in zip(numbers, ids, strict=True):
            numbers_V[ids_KA] = torch.arange(len(ids_KA))[:, None]
        return cls(numbers[0], numbers[1], ids[1])

    def counts(self, ids: Tensor, numbers_V: Tensor) -> Tensor:
        """How often each character occurs in ids ...xT: ...xK."""
        counts = ids.new_zeros(*ids.shape[:-1], len(self.target_ids) + 1)
        return counts.scatter_add_(-1, numbers_V[ids], torch.ones_like(ids))[..., :-1]

    @property
    def before(self) -> Tensor | None:
        """BxK, number of the character that must come before each one, or K; None if there is none."""
        if not any(self.orders):
            return None
        before_BK = torch.full((len(self.orders), len(self.target_ids)), len(self.target_ids))
        for before_K, order in zip(before_BK, self.orders, strict=True):
            for first, second in pairwise(order):
                before_K[second] = first
        return before_BK
