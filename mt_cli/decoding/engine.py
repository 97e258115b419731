"""Interface of the engines of a translator: search for translations of ids, and forced decoding. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import DecodingConfig

Ids = Sequence[int]
Attention = NDArray[np.float32]
"""(T+1)x(S+1), mean over heads of the cross-attention; the last row and column are [EOS]."""
TOKENS_BESIDE_RATIO = 10


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a model produced."""

    ids: list[int]  # Without [SOS] and [EOS].
    score: float  # Log-probability (nats, [EOS] included) divided by the length penalty; higher is better.

    def without_first(self, number: int) -> Hypothesis:
        """Copy without the first tokens, with the same score."""
        return replace(self, ids=self.ids[number:])


NBest = list[Hypothesis]
"""N-best list of a sentence, best first."""


def penalty_of(length: int, alpha: float) -> float:
    """Divisor of the log-probability of a number of tokens, [EOS] counted (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** alpha)


def max_length(num_source_tokens: int, decoding: DecodingConfig) -> int:
    """Maximum number of tokens before [EOS] for a source of this length."""
    return int(num_source_tokens * decoding.max_length_ratio) + TOKENS_BESIDE_RATIO


@dataclass(frozen=True)
class ForcedDecoding:
    """Probabilities and attention of a given translation, by teacher forcing."""

    log_probs: list[float]  # One for each token and for [EOS], in nats.
    attention: Attention | None

    def without_first(self, number: int) -> ForcedDecoding:
        """Copy without the first tokens."""
        return ForcedDecoding(self.log_probs[number:], None if self.attention is None else self.attention[number:])


class Sentence(NamedTuple):
    """Source to translate."""

    ids: Ids
    prefix: Ids = ()
    """First tokens of its translations."""
    order: Ids = ()
    """Numbers of its reserved characters that keep their order."""


class Engine(Protocol):
    """A model that translates ids."""

    def search(self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1) -> list[NBest]:
        """Search for the `num_best` best hypotheses of each sentence."""

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """Compute the probabilities of the target of each pair, given its source."""

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        """Compute the cross-attention of each pair."""


@dataclass(frozen=True)
class RelayedEngine:
    """Engine whose methods are computed elsewhere; see `Engine`."""

    compute: Callable[..., list[Any]]
    """Called with the name of a method, its rows and its options; returns a result for each row."""

    def search(self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1) -> list[NBest]:
        return self.compute("search", sentences, decoding, num_best)

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        return self.compute("force_decode", pairs)

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        return self.compute("attend", pairs)
