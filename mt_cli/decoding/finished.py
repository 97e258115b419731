"""Finished sentences of a batch: which are finished, and when a search drops them. Does not know their content.

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
"""`largest_share` and `fewest` for a GPU, where each size needs a graph and fewer than 64 sentences save no time."""


def reads_late(device: torch.device) -> bool:
    """Whether a search reads one position later which sentences are done, because reading at once would idle a GPU.

    Such a search also shrinks the batch only in large steps, to few sizes.
    """
    return device.type == "cuda"


class Flags:
    """Flags on their way to the CPU: which sentences are done, and which have a score that is not a number."""

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

    A batch shrinks to sizes that recur, because oneDNN keeps the kernels of such sizes. It shrinks only by a sixth or
    more, because every key and value is copied. A batch of at most `fewest` sentences does not shrink.
    """
    num_kept = min(len(active_B), round_up(int(active_B.sum()), _SIZES_PER_OCTAVE))
    if num_kept > largest_share * len(active_B) or len(active_B) <= fewest:
        return None
    return active_B.to(torch.uint8).argsort(descending=True, stable=True)[:num_kept]
