"""Training pairs that are concatenated two by two, anew in each epoch. Knows pools of ids and tags.

They teach a model to translate texts that are longer than its training pairs (Kondo et al. 2021, "Sentence
Concatenation Approach to Data Augmentation for Neural Machine Translation"; Nguyen et al. 2021, "Data Augmentation by
Concatenation for Low-Resource Translation: A Mystery and a Solution").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.data.batches import ChangedPairs, Pool, TrainingPairs, in_file_order
from mt_cli.data.encode import EncodedPairs, as_batch, ragged, starts_of

_END_OF_SEEDS = 0x41  # Gives other random numbers than other uses of the same pool.
_Rows = NDArray[np.int64]


def concatenated_pairs(pairs: TrainingPairs, tag_ids: Sequence[Sequence[int]], config: Config) -> ChangedPairs:
    """Training pairs, some of them concatenated: the share `training.concatenated_pairs` of each part of a pool.

    Only the first tag remains; `tag_ids` has, for each side, the ids of tags with which a text can begin. No side
    becomes longer than `max_tokens`, and each pair is still seen once. The result is a function of the seed, the epoch
    and the pool.
    """
    return ChangedPairs(pairs, _Concatenation(tag_ids, config))


class _Concatenation:
    def __init__(self, tag_ids: Sequence[Sequence[int]], config: Config) -> None:
        self._share, self._tag_ids = config.training.concatenated_pairs, tag_ids
        self._max_tokens, self._seed = config.corpus.max_tokens, config.training.seed

    def __call__(self, pool: Pool, epoch: int, number: int) -> Pool:
        if not len(pool[1]):
            return pool
        random = np.random.default_rng([self._seed, epoch, number, _END_OF_SEEDS])
        indices, order, part_sizes = in_file_order(*pool)
        sides = pool[0].take(indices)
        lengths = np.stack([lengths for _, lengths in sides]).astype(np.int64)
        parts = np.searchsorted(np.cumsum(part_sizes), order, side="right")
        chosen = [self._chosen(order[parts == part], lengths) for part in range(len(part_sizes))]
        first, second = (np.concatenate(rows) for rows in zip(*chosen, strict=True))
        joined = []
        for side, (ids, _) in enumerate(sides):
            ranges = np.stack([starts_of(lengths[side]), lengths[side]])[:, np.stack([first, second])]
            ranges[1, 1, second < 0] = 0
            is_tagged = (ranges[1, 1] > 0) & np.isin(ids[ranges[0, 1]], self._tag_ids[side])
            ranges[:, 1] += np.stack([is_tagged, -1 * is_tagged])
            starts, counts = ranges
            joined.append((ragged(ids, starts.T.ravel(), counts.T.ravel()), counts.sum(axis=0).astype(np.int32)))
        part_sizes = [len(rows) for rows, _ in chosen]
        return EncodedPairs([as_batch(joined)], part_sizes), random.permutation(sum(part_sizes))

    def _chosen(self, rows: _Rows, lengths: NDArray[np.int64]) -> tuple[_Rows, _Rows]:
        """Rows of a part whose texts come first in a pair, and the rows that follow them, -1 for none."""
        middle = int(len(rows) * self._share) // 2 * 2
        first, second = rows[:middle:2], rows[1:middle:2]
        fits = (lengths[:, first] + lengths[:, second]).max(axis=0) <= self._max_tokens
        single = np.concatenate([rows[middle:], first[~fits], second[~fits]])
        nothing = np.full(len(single), -1, dtype=np.int64)
        return np.concatenate([single, first[fits]]), np.concatenate([nothing, second[fits]])
