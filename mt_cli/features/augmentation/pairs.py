"""Training pairs derived from other pairs, anew in each epoch. Knows pools of ids, tags and vocabularies.

Concatenated pairs teach a model to translate texts that are longer than its training pairs (Kondo et al. 2021,
"Sentence Concatenation Approach to Data Augmentation for Neural Machine Translation"; Nguyen et al. 2021, "Data
Augmentation by Concatenation for Low-Resource Translation: A Mystery and a Solution"). A made-up word on both sides
teaches it to copy unknown names and numbers (compare Song et al. 2019, "Code-Switching for Enhancing NMT with
Pre-Specified Translation").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.batches import ChangedPairs, Indices, Pool, TrainingPairs
from mt_cli.batching.encoded import EncodedPairs, Ids, as_batch, ragged
from mt_cli.config.sections import Config
from mt_cli.corpus.languages import scripts_in
from mt_cli.tokenizer.special_tokens import BYTES, SPACE, UNK
from mt_cli.tokenizer.tokenizer import TokenizerPair

_END_OF_SEEDS = 0x41  # Gives other random numbers than other uses of the same pool.
_Integers = NDArray[np.int64]
_Ranges = NDArray[np.int64]
"""BxRx2: start and length of the R ranges of ids that form each of B texts."""
_NUM_WORDS = 5_000
_MAX_PIECE_CHARACTERS = 5
"""Maximum length of a piece of a made-up name; longer pieces are words that a model may know."""
_UNREADABLE = frozenset({UNK, *BYTES})
_SHARE_OF_NUMBERS, _SHARE_OF_ACRONYMS, _SHARE_OF_TWO_WORDS = 0.3, 0.1, 0.2


def augmented(pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config) -> AugmentedPairs:
    """Pairs of a run with the augmentation that its config asks for."""
    training = config.training
    shares = training.concatenated_pairs, training.inserted_words
    words = words_of(tokenizers, training.seed) if training.inserted_words else []
    source, most_tokens = tokenizers[0], config.corpus.max_tokens
    return AugmentedPairs(pairs, *shares, words, source.tag_ids, most_tokens, training.seed, source.target_tag_ids)


@dataclass
class AugmentedPairs(ChangedPairs):
    """Training pairs, some of them with a made-up word, some of them concatenated.

    The share `inserted` of the pairs gets a word, at about the same relative place on both sides. Then the share
    `concatenated` of the pairs of each part of a pool is concatenated two by two, with only the first tag. No side
    becomes longer than `max_tokens`, and each pair is still seen once. The result depends only on the seed, the epoch
    and the pool.
    """

    pairs: TrainingPairs
    concatenated: float
    inserted: float
    words: Sequence[Words]
    """Made-up words for each side, in the same order; empty if no word is inserted."""
    tag_ids: Sequence[int]
    max_tokens: int
    seed: int
    target_tag_ids: Sequence[int] = ()

    def __post_init__(self) -> None:
        super().__init__(self.pairs)

    def pools(self, epoch: int, first: int) -> Iterator[Pool]:
        """Pools of an epoch from number `first` on."""
        for number, (pairs, order) in enumerate(self.pairs.pools(epoch, first), start=first):
            random = np.random.default_rng([self.seed, epoch, number, _END_OF_SEEDS])
            yield self._augmented(pairs, order, random) if len(order) else (pairs, order)

    def _augmented(self, pairs: EncodedPairs, order: Indices, random: np.random.Generator) -> Pool:
        texts = _Texts.of(pairs, order)
        ranges = [np.stack(side, axis=1)[:, None] for side in zip(texts.starts, texts.lengths, strict=True)]
        if self.inserted and len(self.words[0].lengths):
            texts, ranges = texts.with_words(self.words, random.random((2, len(order))), self.inserted, self.max_tokens)
        bounds = np.cumsum(pairs.part_sizes)
        parts = np.searchsorted(bounds, order, side="right")
        augmented = [self._concatenated(texts, ranges, np.flatnonzero(parts == part)) for part in range(len(bounds))]
        part_sizes = [len(source) for source, _ in augmented]
        sides = [texts.joined(np.concatenate(side)) for side in zip(*augmented, strict=True)]
        return EncodedPairs([as_batch(sides)], part_sizes), random.permutation(sum(part_sizes))

    def _concatenated(self, texts: _Texts, ranges: Sequence[_Ranges], rows: Indices) -> list[_Ranges]:
        """Sources and targets of the rows, some of them concatenated, in another order."""
        middle = int(len(rows) * self.concatenated) // 2 * 2
        first, second = rows[:middle:2], rows[1:middle:2]
        lengths = np.stack([side[..., 1].sum(axis=1) for side in ranges])
        fits = (lengths[:, first] + lengths[:, second]).max(axis=0) <= self.max_tokens
        single = np.concatenate([rows[middle:], first[~fits], second[~fits]])
        first, second = first[fits], second[fits]
        tag_ids = self.tag_ids, self.target_tag_ids
        after = [texts.without_tags(side[second], ids) for side, ids in zip(ranges, tag_ids, strict=True)]
        sides = []
        for side, second_side in zip(ranges, after, strict=True):
            nothing = np.zeros_like(side[single])
            sides.append(np.concatenate([np.hstack([side[single], nothing]), np.hstack([side[first], second_side])]))
        return sides


@dataclass(frozen=True)
class _Texts:
    """Ids of the pairs of a pool, and their places."""

    ids: Ids  # Of all sources, then of all targets, then of words.
    starts: _Integers  # 2xN
    lengths: _Integers  # 2xN
    first_target: int
    """Place where the ids of targets begin."""

    @classmethod
    def of(cls, pairs: EncodedPairs, order: Indices) -> _Texts:
        """Texts of the pairs with these indices, in this order."""
        indices, rows = np.unique(order, return_inverse=True)
        sides = pairs.take(indices)
        lengths = np.stack([lengths for _, lengths in sides]).astype(np.int64)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        ids = np.concatenate([ids for ids, _ in sides])
        return cls(ids, starts[:, rows], lengths[:, rows], len(sides[0][0]))

    def with_words(
        self, words: Sequence[Words], random_numbers: NDArray[np.float64], share: float, max_tokens: int
    ) -> tuple[_Texts, list[_Ranges]]:
        """Texts extended by words, and three ranges for each source and target: before, in and after an inserted word.

        Each pair has two random numbers from 0 to 1. The first one chooses whether it gets a word, and which; the
        second one chooses the place.
        """
        chance, place = random_numbers
        is_chosen = chance < share
        word = np.where(is_chosen, chance / share * len(words[0].lengths), 0).astype(np.int64)
        is_chosen &= (self.lengths + np.stack([side.lengths[word] for side in words]) <= max_tokens).all(axis=0)
        sides = self.ids[: self.first_target], self.ids[self.first_target :]
        places = [np.flatnonzero(side.begins_word[ids]) for ids, side in zip(sides, words, strict=True)]
        places[1] += self.first_target
        ends = self.starts + self.lengths
        first = np.stack([np.searchsorted(*side) for side in zip(places, self.starts, strict=True)])
        number = np.stack([np.searchsorted(*side) for side in zip(places, ends, strict=True)]) - first
        is_chosen &= number.all(axis=0)
        ranges, ids = [], self.ids
        for side in (0, 1):
            chosen = np.where(is_chosen, first[side] + (place * number[side]).astype(np.int64), -1)
            middle = np.where(is_chosen, np.append(places[side], 0)[chosen], ends[side])
            starts = np.stack([self.starts[side], len(ids) + words[side].starts[word], middle], axis=1)
            word_lengths = np.where(is_chosen, words[side].lengths[word], 0)
            lengths = np.stack([middle - self.starts[side], word_lengths, ends[side] - middle], axis=1)
            ranges.append(np.stack([starts, lengths], axis=2))
            ids = np.concatenate([ids, words[side].ids])
        return replace(self, ids=ids), ranges

    def without_tags(self, ranges: _Ranges, tag_ids: Sequence[int]) -> _Ranges:
        """Remove tags at the beginning of texts."""
        starts, lengths = ranges[:, 0, 0], ranges[:, 0, 1]
        is_tagged = np.isin(self.ids[starts], tag_ids) & (lengths > 0)
        ranges = ranges.copy()
        ranges[:, 0, 0] += is_tagged
        ranges[:, 0, 1] -= is_tagged
        return ranges

    def joined(self, ranges: _Ranges) -> tuple[Ids, NDArray[np.int32]]:
        """Concatenated ids of texts, and the lengths of the texts."""
        starts, lengths = ranges[..., 0], ranges[..., 1]
        return ragged(self.ids, starts.ravel(), lengths.ravel()), lengths.sum(axis=1).astype(np.int32)


def made_up_words(tokenizers: TokenizerPair, seed: int) -> list[str]:
    """Names of one or two words, acronyms and numbers.

    Names consist of subwords of the target side that can begin with a capital letter. If there are none, or the
    subwords of both sides have several scripts, the result has only numbers.
    """
    random = np.random.default_rng([seed, _NUM_WORDS])
    source, target = (sorted({entry.removeprefix(SPACE).lower() for entry in side.subwords()}) for side in tokenizers)
    scripts = scripts_in("".join(source)) | scripts_in("".join(target))
    pieces = [
        piece
        for piece in target
        if piece.isalpha()
        and len(piece) <= _MAX_PIECE_CHARACTERS
        and piece.title() != piece  # Georgian has capital letters, but no title case.
        and len(scripts) == 1
        and scripts_in(piece) == scripts
    ]
    letters = [piece for piece in pieces if len(piece) == 1]

    def sample(texts: list[str], fewest: int, most: int) -> str:
        return "".join(texts[index] for index in random.integers(len(texts), size=random.integers(fewest, most + 1)))

    def word() -> str:
        if not letters or random.random() < _SHARE_OF_NUMBERS:
            number = int(random.integers(1, 10 ** random.integers(1, 7)))
            return f"{number:,}".replace(",", ("", ".", ",", " ")[random.integers(4)])
        return sample(letters, 2, 4).upper() if random.random() < _SHARE_OF_ACRONYMS else sample(pieces, 1, 3).title()

    return [f"{word()} {word()}" if random.random() < _SHARE_OF_TWO_WORDS else word() for _ in range(_NUM_WORDS)]


@dataclass(frozen=True)
class Words:
    """Words as ids of one side, and the entries of that side before which a word can be inserted."""

    ids: Ids  # Concatenated words.
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    begins_word: NDArray[np.bool_]
    """For each entry of the vocabulary, whether it begins with a space."""


def words_of(tokenizers: TokenizerPair, seed: int) -> list[Words]:
    """Made-up words as ids of each side; both sides have the same words in the same order.

    Leaves out words that a side encodes as bytes or [UNK], or recognises as a tag. The result is empty for a tokenizer
    that puts no space before a text.
    """
    words, sides = made_up_words(tokenizers, seed), []
    vocabularies = [tokenizer.tokens(range(tokenizer.vocab_size)) for tokenizer in tokenizers]
    for tokenizer, entries in zip(tokenizers, vocabularies, strict=True):
        unusable = {index for index, entry in enumerate(entries) if entry in _UNREADABLE} | {*tokenizer.tag_ids}
        encoded = zip(words, tokenizer.encode(words), strict=True)
        words = [
            word for word, ids in encoded if ids and unusable.isdisjoint(ids) and entries[ids[0]].startswith(SPACE)
        ]
    for tokenizer, entries in zip(tokenizers, vocabularies, strict=True):
        ids, lengths = tokenizer.encode_flat(words)
        counts = lengths.astype(np.int64)
        begins_word = np.array([entry.startswith(SPACE) for entry in entries])
        begins_word[tokenizer.tag_ids] = False
        sides.append(Words(ids, np.cumsum(counts) - counts, counts, begins_word))
    return sides
