"""Training pairs that are segmented anew in each epoch. Knows pools of pairs; does not know how words are segmented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.data.batches import ChangedPairs, Indices, Pool, TrainingPairs, in_file_order
from mt_cli.data.encode import EncodedPairs, Ids, as_batch, ragged, starts_of
from mt_cli.data.subword_sampling import Keys, Segmenter, numbered
from mt_cli.tokenizer.tokenizer import TokenizerPair

_TOKENS_AT_ONCE = 2**16
Lengths = NDArray[np.int32]


def resegmented(pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config) -> ChangedPairs:
    """Pairs of a run, segmented anew in each epoch with the options of its config."""
    seed = config.training.seed
    segmenters = {tokenizer: Segmenter(tokenizer, config.tokenizer.bpe_dropout, seed) for tokenizer in tokenizers}
    return resegmented_with(pairs, [segmenters[side] for side in tokenizers], config.corpus.max_tokens, seed)


def resegmented_with(pairs: TrainingPairs, segmenters: Sequence[Segmenter], max_tokens: int, seed: int) -> ChangedPairs:
    """Training pairs with ids that are drawn from the segmentations of their texts.

    The ids of a pair are a function of the pair, the seed, the epoch and the place of the pair in the order of the
    epoch. A side that would have more than `max_tokens` keeps its ids.
    """
    return ChangedPairs(pairs, _Resegmentation(pairs.first_place, segmenters, max_tokens, seed))


class _Resegmentation:
    def __init__(
        self, first_place: Callable[[int], int], segmenters: Sequence[Segmenter], max_tokens: int, seed: int
    ) -> None:
        self._first_place, self._segmenters, self._max_tokens, self._seed = first_place, segmenters, max_tokens, seed
        self._lock = Lock()

    def __call__(self, pool: Pool, epoch: int, number: int) -> Pool:
        with self._lock:
            return self._resegmented(*pool, epoch, self._first_place(number)) if len(pool[1]) else pool

    def _resegmented(self, pairs: EncodedPairs, order: Indices, epoch: int, first_place: int) -> Pool:
        """Pool with new ids, which begins at a place in the order of the epoch."""
        indices, order, part_sizes = in_file_order(pairs, order)
        places = first_place + order.argsort()
        num_tokens = np.cumsum(pairs.lengths(indices).sum(axis=0, dtype=np.int64))
        ends = np.flatnonzero(np.diff(num_tokens // _TOKENS_AT_ONCE)) + 1
        seeds = [
            np.random.default_rng([self._seed, epoch, side]).integers(2**64, size=1, dtype=np.uint64) for side in (0, 1)
        ]
        batches = []
        for rows, rows_places in zip(np.split(indices, ends), np.split(places, ends), strict=True):
            sides = []
            for side, segmenter, seed in zip(pairs.take(rows), self._segmenters, seeds, strict=True):
                sides.append(self._resegmented_side(*side, segmenter, numbered(seed, rows_places)))
            batches.append(as_batch(sides))
        return EncodedPairs(batches, part_sizes), order

    def _resegmented_side(self, ids: Ids, lengths: Lengths, segmenter: Segmenter, keys: Keys) -> tuple[Ids, Lengths]:
        drawn, counts = segmenter(ids, lengths, keys)
        is_long = counts > self._max_tokens
        if not is_long.any():
            return drawn, counts
        starts = np.where(is_long, len(drawn) + starts_of(lengths), starts_of(counts))
        counts = np.where(is_long, lengths, counts)
        return ragged(np.concatenate([drawn, ids]), starts, counts), counts
