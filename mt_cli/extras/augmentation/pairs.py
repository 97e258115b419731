"""Training pairs that are made of others in each epoch. Knows pools of ids, and which ids are tags; knows no text.

Concatenated pairs teach a model to translate texts that are longer than its training pairs (Kondo et al. 2021,
"Sentence Concatenation Approach to Data Augmentation for Neural Machine Translation"; Nguyen et al. 2021, "Data
Augmentation by Concatenation for Low-Resource Translation: A Mystery and a Solution"). A made-up word on both sides
teaches it to copy names and numbers that it has never seen, as words of the target language in the source do in Song et
al. 2019, "Code-Switching for Enhancing NMT with Pre-Specified Translation".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.batches import Indices, Pool, TrainingPairs
from mt_cli.batching.encoded import EncodedPairs, Ids, as_batch, ragged
from mt_cli.config.sections import Config
from mt_cli.extras.augmentation.words import Words, words_of
from mt_cli.tokenizer.tokenizer import TokenizerPair

_END_OF_SEEDS = 0x41  # Makes them differ from those of other random numbers of a pool.
_Integers = NDArray[np.int64]
_Ranges = NDArray[np.int64]
"""BxRx2: each of B texts is R ranges of ids, one after the other, each with its start and its length."""


def augmented(pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config) -> AugmentedPairs:
    """The pairs of a run as its config changes them."""
    training = config.training
    shares = training.concatenated_pairs, training.inserted_words
    words = words_of(tokenizers, training.seed)
    return AugmentedPairs(pairs, *shares, words, tokenizers[0].tag_ids, config.corpus.max_tokens, training.seed)


@dataclass(frozen=True)
class AugmentedPairs:
    """Other pairs of training, some of them with a made-up word, some of them concatenated.

    The share `inserted` of the pairs gets a word, on both sides before words that are equally far from the ends. Then
    the share `concatenated` of the pairs of each part of a pool is concatenated two by two, with the first tag only.
    No side becomes longer than `max_tokens`. Each pair is still seen once. What a pool becomes is a function of the
    seed, the epoch and the pool.
    """

    pairs: TrainingPairs
    concatenated: float
    inserted: float
    words: Sequence[Words]
    tag_ids: Sequence[int]
    max_tokens: int
    seed: int

    @property
    def num_pools(self) -> int | None:
        """Number of pools of an epoch; None if unknown."""
        return self.pairs.num_pools

    @property
    def counts(self) -> Sequence[Counter[str]]:
        """The counts of a stream."""
        return self.pairs.counts

    def first_place(self, pool: int) -> int:
        """The place of the first pair of a pool in the order of an epoch."""
        return self.pairs.first_place(pool)

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on."""
        for number, (pairs, order) in enumerate(self.pairs.pools(epoch, first), start=first):
            random = np.random.default_rng([self.seed, epoch, number, _END_OF_SEEDS])
            yield self._augmented(pairs, order, random) if len(order) else (pairs, order)

    def _augmented(self, pairs: EncodedPairs, order: Indices, random: np.random.Generator) -> Pool:
        texts = _Texts.of(pairs, order, self.words)
        ranges = texts.with_words(random.random((2, len(order))), self.inserted, self.max_tokens)
        bounds = np.cumsum(pairs.part_sizes)
        parts = np.searchsorted(bounds, order, side="right")
        made = [self._concatenated(texts, ranges, np.flatnonzero(parts == part)) for part in range(len(bounds))]
        part_sizes = [len(source) for source, _ in made]
        sides = [texts.joined(np.concatenate(side)) for side in zip(*made, strict=True)]
        return EncodedPairs([as_batch(sides)], part_sizes), random.permutation(sum(part_sizes))

    def _concatenated(self, texts: _Texts, ranges: Sequence[_Ranges], rows: Indices) -> tuple[_Ranges, _Ranges]:
        """The sources and the targets of some rows in random order, some of them concatenated."""
        middle = int(len(rows) * self.concatenated) // 2 * 2
        first, second = rows[:middle:2], rows[1:middle:2]
        lengths = np.stack([side[..., 1].sum(axis=1) for side in ranges])
        fits = (lengths[:, first] + lengths[:, second]).max(axis=0) <= self.max_tokens
        single = np.concatenate([rows[middle:], first[~fits], second[~fits]])
        first, second = first[fits], second[fits]
        second_ranges = texts.without_tags(ranges[0][second], self.tag_ids), ranges[1][second]
        source, target = (
            np.concatenate(
                [np.pad(side[single], ((0, 0), (0, 3), (0, 0))), np.concatenate([side[first], after], axis=1)]
            )
            for side, after in zip(ranges, second_ranges, strict=True)
        )
        return source, target


@dataclass(frozen=True)
class _Texts:
    """The ids of the pairs of a pool and of words, and where they are."""

    ids: Ids  # Of sources, targets, and the words of each side.
    starts: _Integers  # 2xN, of the texts.
    lengths: _Integers  # 2xN
    word_starts: _Integers  # 2xW
    word_lengths: _Integers  # 2xW
    insertions: Sequence[_Integers]
    """For each side, where a word can be inserted, in ascending order."""

    @classmethod
    def of(cls, pairs: EncodedPairs, order: Indices, words: Sequence[Words]) -> _Texts:
        """The texts of the pairs with these indices, in this order."""
        indices, rows = np.unique(order, return_inverse=True)
        sides = pairs.take(indices)
        lengths = np.stack([lengths for _, lengths in sides]).astype(np.int64)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        ends = np.cumsum([0] + [len(ids) for ids, _ in sides] + [len(each.ids) for each in words])
        insertions = [
            np.flatnonzero(each.begins_word[ids]) + end for (ids, _), each, end in zip(sides, words, ends, strict=False)
        ]
        word_starts = np.stack([each.starts + end for each, end in zip(words, ends[2:], strict=False)])
        word_lengths = np.stack([each.lengths for each in words])
        ids = np.concatenate([*(ids for ids, _ in sides), *(each.ids for each in words)])
        return cls(ids, starts[:, rows], lengths[:, rows], word_starts, word_lengths, insertions)

    def with_words(self, random_numbers: NDArray[np.float64], share: float, max_tokens: int) -> list[_Ranges]:
        """The sources and the targets, each as three ranges: before a word, the word, after it.

        Of the two random numbers from 0 to 1 of each pair, the first one chooses whether it gets a word, and which; the
        second one chooses the place.
        """
        chance, place = random_numbers
        word = (chance / max(share, 1e-9) * self.word_starts.shape[1]).astype(np.int64)
        is_chosen = chance < share
        word[~is_chosen] = 0
        first, last = (
            np.stack([np.searchsorted(*each) for each in zip(self.insertions, bounds, strict=True)])
            for bounds in (self.starts, self.starts + self.lengths)
        )
        is_chosen &= (first < last).all(axis=0)
        is_chosen &= (self.lengths + self.word_lengths[:, word] <= max_tokens).all(axis=0)
        found = []
        for side in (0, 1):
            number = first[side] + (place * (last[side] - first[side])).astype(np.int64)
            end = self.starts[side] + self.lengths[side]
            middle = np.where(is_chosen, np.append(self.insertions[side], 0)[np.where(is_chosen, number, -1)], end)
            word_length = np.where(is_chosen, self.word_lengths[side, word], 0)
            starts = np.stack([self.starts[side], self.word_starts[side, word], middle], axis=1)
            lengths = np.stack([middle - self.starts[side], word_length, end - middle], axis=1)
            found.append(np.stack([starts, lengths], axis=2))
        return found

    def without_tags(self, ranges: _Ranges, tag_ids: Sequence[int]) -> _Ranges:
        """Texts without the tags that they begin with."""
        starts, lengths = ranges[:, 0, 0], ranges[:, 0, 1]
        is_tagged = np.isin(self.ids[starts], tag_ids) & (lengths > 0)
        ranges = ranges.copy()
        ranges[:, 0, 0] += is_tagged
        ranges[:, 0, 1] -= is_tagged
        return ranges

    def joined(self, ranges: _Ranges) -> tuple[Ids, NDArray[np.int32]]:
        """The ids of texts, one after the other, and their lengths."""
        starts, lengths = ranges[..., 0], ranges[..., 1]
        return ragged(self.ids, starts.ravel(), lengths.ravel()), lengths.sum(axis=1).astype(np.int32)
