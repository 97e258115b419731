"""Training pairs that are made of others in each epoch. Knows pools of ids, and which ids are tags; knows no text.

Concatenated pairs teach a model to translate texts that are longer than its training pairs (Kondo et al. 2021,
"Sentence Concatenation Approach to Data Augmentation for Neural Machine Translation"; Nguyen et al. 2021, "Data
Augmentation by Concatenation for Low-Resource Translation: A Mystery and a Solution"). A made-up word on both sides
teaches it to copy names and numbers that it has never seen, as words of the target language in the source do in Song et
al. 2019, "Code-Switching for Enhancing NMT with Pre-Specified Translation".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.batches import ChangedPairs, Indices, Pool, TrainingPairs
from mt_cli.batching.encoded import EncodedPairs, Ids, as_batch, ragged
from mt_cli.config.sections import Config
from mt_cli.features.augmentation.words import Words, words_of
from mt_cli.tokenizer.tokenizer import TokenizerPair

_END_OF_SEEDS = 0x41  # Makes them differ from those of other random numbers of a pool.
_Integers = NDArray[np.int64]
_Ranges = NDArray[np.int64]
"""BxRx2: each of B texts is R ranges of ids, one after the other, each with its start and its length."""


def augmented(pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config) -> AugmentedPairs:
    """The pairs of a run as its config changes them."""
    training = config.training
    shares = training.concatenated_pairs, training.inserted_words
    words = words_of(tokenizers, training.seed) if training.inserted_words else []
    return AugmentedPairs(pairs, *shares, words, tokenizers[0].tag_ids, config.corpus.max_tokens, training.seed)


@dataclass(frozen=True)
class AugmentedPairs(ChangedPairs):
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
    """The same words for each side; none if no word is inserted."""
    tag_ids: Sequence[int]
    max_tokens: int
    seed: int

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """The pools of an epoch from number `first` on."""
        for number, (pairs, order) in enumerate(self.pairs.pools(epoch, first), start=first):
            random = np.random.default_rng([self.seed, epoch, number, _END_OF_SEEDS])
            yield self._augmented(pairs, order, random) if len(order) else (pairs, order)

    def _augmented(self, pairs: EncodedPairs, order: Indices, random: np.random.Generator) -> Pool:
        texts = _Texts.of(pairs, order)
        ranges = texts.whole()
        if self.inserted and len(self.words[0].lengths):
            texts, ranges = texts.with_words(self.words, random.random((2, len(order))), self.inserted, self.max_tokens)
        bounds = np.cumsum(pairs.part_sizes)
        parts = np.searchsorted(bounds, order, side="right")
        made = [self._concatenated(texts, ranges, np.flatnonzero(parts == part)) for part in range(len(bounds))]
        part_sizes = [len(source) for source, _ in made]
        sides = [texts.joined(np.concatenate(side)) for side in zip(*made, strict=True)]
        return EncodedPairs([as_batch(sides)], part_sizes), random.permutation(sum(part_sizes))

    def _concatenated(self, texts: _Texts, ranges: Sequence[_Ranges], rows: Indices) -> list[_Ranges]:
        """The sources and the targets of some rows in random order, some of them concatenated."""
        middle = int(len(rows) * self.concatenated) // 2 * 2
        first, second = rows[:middle:2], rows[1:middle:2]
        lengths = np.stack([side[..., 1].sum(axis=1) for side in ranges])
        fits = (lengths[:, first] + lengths[:, second]).max(axis=0) <= self.max_tokens
        single = np.concatenate([rows[middle:], first[~fits], second[~fits]])
        first, second = first[fits], second[fits]
        after = texts.without_tags(ranges[0][second], self.tag_ids), ranges[1][second]
        found = []
        for side, second_side in zip(ranges, after, strict=True):
            nothing = np.zeros_like(side[single])
            found.append(np.concatenate([np.hstack([side[single], nothing]), np.hstack([side[first], second_side])]))
        return found


@dataclass(frozen=True)
class _Texts:
    """The ids of the pairs of a pool, and where they are."""

    ids: Ids  # Of all sources, then of all targets, then of words.
    starts: _Integers  # 2xN
    lengths: _Integers  # 2xN
    first_target: int
    """Where the ids of targets begin."""

    @classmethod
    def of(cls, pairs: EncodedPairs, order: Indices) -> _Texts:
        """The texts of the pairs with these indices, in this order."""
        indices, rows = np.unique(order, return_inverse=True)
        sides = pairs.take(indices)
        lengths = np.stack([lengths for _, lengths in sides]).astype(np.int64)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        ids = np.concatenate([ids for ids, _ in sides])
        return cls(ids, starts[:, rows], lengths[:, rows], len(sides[0][0]))

    def whole(self) -> list[_Ranges]:
        """The sources and the targets, each as one range."""
        return [np.stack(each, axis=1)[:, None] for each in zip(self.starts, self.lengths, strict=True)]

    def with_words(
        self, words: Sequence[Words], random_numbers: NDArray[np.float64], share: float, max_tokens: int
    ) -> tuple[_Texts, list[_Ranges]]:
        """The texts and words; the sources and the targets as three ranges: before a word, the word, after it.

        Of the two random numbers from 0 to 1 of each pair, the first one chooses whether it gets a word, and which; the
        second one chooses the place.
        """
        chance, place = random_numbers
        is_chosen = chance < share
        word = np.where(is_chosen, chance / share * len(words[0].lengths), 0).astype(np.int64)
        is_chosen &= (self.lengths + np.stack([side.lengths[word] for side in words]) <= max_tokens).all(axis=0)
        sides = self.ids[: self.first_target], self.ids[self.first_target :]
        places = [np.flatnonzero(each.begins_word[ids]) for ids, each in zip(sides, words, strict=True)]
        places[1] += self.first_target
        ends = self.starts + self.lengths
        first = np.stack([np.searchsorted(*each) for each in zip(places, self.starts, strict=True)])
        number = np.stack([np.searchsorted(*each) for each in zip(places, ends, strict=True)]) - first
        is_chosen &= number.all(axis=0)
        found, ids = [], self.ids
        for side in (0, 1):
            chosen = np.where(is_chosen, first[side] + (place * number[side]).astype(np.int64), -1)
            middle = np.where(is_chosen, np.append(places[side], 0)[chosen], ends[side])
            starts = np.stack([self.starts[side], len(ids) + words[side].starts[word], middle], axis=1)
            word_lengths = np.where(is_chosen, words[side].lengths[word], 0)
            lengths = np.stack([middle - self.starts[side], word_lengths, ends[side] - middle], axis=1)
            found.append(np.stack([starts, lengths], axis=2))
            ids = np.concatenate([ids, words[side].ids])
        return replace(self, ids=ids), found

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
