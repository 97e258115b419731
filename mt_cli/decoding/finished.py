"""Sentences of a batch that are done: how a search learns of them, and when it drops them. Does not know their content.

Legend of the shapes: B sentences.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from mt_cli.batching.packing import round_up
from mt_cli.decoding.transfers import Arriving
from mt_cli.errors import DivergenceError

_SIZES_PER_OCTAVE = 4
_LARGEST_SHARE = Fraction(5, 6)
SHRINKING_LATE = (Fraction(1, 2), 64)
"""On a GPU, a graph of a step is recorded for each size, and a small batch takes as long as one of 64 sentences."""


def reads_late(device: torch.device) -> bool:
    """Whether a search reads what is done one position later, because reading at once would leave a GPU without work.

    The batch then shrinks in large steps too, to few sizes.
    """
    return device.type == "cuda"


class Flags:
    """Which sentences are done, and which have a score that is not a number, on their way to the CPU."""

    def __init__(self, is_done_B: Tensor, is_nan_B: Tensor) -> None:
        self._flags = Arriving(torch.stack([is_done_B, is_nan_B]))

    def read_done(self) -> Tensor:
        """B, True where a sentence is done, on the CPU. Raises DivergenceError if a score is not a number."""
        is_done_B: Tensor
        is_done_B, is_nan_B = self._flags.read()
        if is_nan_B.any():  # The search would never end.
            raise DivergenceError(
                "the scores of this model are not numbers, because its training diverged; lower training.learning_rate "
                "or raise training.warmup_steps, and train again with --fresh"
            )
        return is_done_B


def worth_keeping(active_B: Tensor, largest_share: Fraction = _LARGEST_SHARE, fewest: int = 0) -> Tensor | None:
    """Indices of the sentences to continue with, padded with finished ones; None: all.

    A batch shrinks to sizes that recur, for which oneDNN has its kernels ready, and only by a sixth or more, because
    every key and value is copied. A batch of `fewest` sentences does not shrink.
    """
    num_kept = min(len(active_B), round_up(int(active_B.sum()), _SIZES_PER_OCTAVE))
    if num_kept > largest_share * len(active_B) or len(active_B) <= fewest:
        return None
    return active_B.to(torch.uint8).argsort(descending=True, stable=True)[:num_kept]
