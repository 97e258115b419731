"""Random segmentations of words, for training: BPE-dropout. Knows ids, not texts.

A word is a part of a sequence of ids that can be segmented separately, because no entry of the vocabulary crosses its
ends. A special token, a tag or a byte is a word with only one segmentation.
"""

from __future__ import annotations

from itertools import count, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.data.encode import Ids, ragged, starts_of
from mt_cli.tokenizer.tokenizer import Tokenizer

Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]
Words = tuple[Integers, Integers]
"""Concatenated ids of words, and the length of each word."""
NUM_SAMPLES = 128
"""Number of segmentations that are drawn for a word. Each occurrence in training takes a random one of them."""
_STEP = np.uint64(0x9E3779B97F4A7C15)
_NEVER, _END = np.int64(2**62), 2**63 - 1
"""Rank of a merge that does not exist, and the last number of every ordered array."""


def numbered(keys: Keys, numbers: NDArray[np.integer[Any]] | int) -> Keys:
    """Random 64-bit numbers that are a function of each key and number (SplitMix64; Steele et al. 2014)."""
    mixed = keys + np.asarray([numbers] if isinstance(numbers, int) else numbers).astype(np.uint64) * _STEP + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class MergeDropout:
    """BPE-dropout (Provilkov et al. 2020, algorithm 1).

    In each round, each possible merge is skipped with probability `rate`, and the best remaining merge is made. The
    first round in which all merges are skipped is the last.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        model = tokenizer.model()
        ids, self._base = model["vocab"], tokenizer.vocab_size
        codes = np.array([ids[left] * self._base + ids[right] for left, right in model["merges"]] + [_END])
        self._ranks = codes.argsort()
        self._codes = codes[self._ranks]
        self._results = np.array([ids[left + right] for left, right in model["merges"]], dtype=np.int64)
        self._limit = np.uint64(int(rate * 2**64))

    def __call__(self, characters: Integers, lengths: Integers, keys: Keys) -> Words:
        """Segmentations of words, given as ids of characters; each depends only on its word and its key.

        In each round, one merge is made in every word in parallel.
        """
        ids, word = characters.copy(), np.repeat(np.arange(len(lengths)), lengths)
        random = numbered(keys[word], np.arange(len(ids)) - starts_of(lengths)[word])
        rank = self._ranks_at(np.arange(len(ids)), ids, word)
        finished: list[tuple[Integers, Integers]] = []
        for number in count():
            if not len(ids):
                break
            is_kept = (rank < _NEVER) & (numbered(random, number) >= self._limit)
            order = np.where(is_kept, (rank << 32) + np.arange(len(ids)), _NEVER)
            starts = np.flatnonzero(np.diff(word, prepend=-1))
            best = np.minimum.reduceat(order, starts)
            is_merged = best < _NEVER
            place = best[is_merged] & (2**32 - 1)
            ids[place] = self._results[rank[place]]
            remains = np.repeat(is_merged, np.diff(starts, append=len(ids)))
            finished.append((word[~remains], ids[~remains]))
            remains[place + 1] = False
            ids, word, random, rank = ids[remains], word[remains], random[remains], rank[remains]
            place = (np.cumsum(remains) - 1)[place]
            changed = np.concatenate([place, place[place > 0] - 1])
            rank[changed] = self._ranks_at(changed, ids, word)
        if not finished:
            return np.empty(0, np.int64), np.zeros(len(lengths), np.int64)
        words, ids = (np.concatenate(side) for side in zip(*finished, strict=True))
        return ids[words.argsort(kind="stable")], np.bincount(words, minlength=len(lengths))

    def _ranks_at(self, places: Integers, ids: Integers, word: Integers) -> Integers:
        """Rank of the merge of the ids at each place and after it; `_NEVER` if there is none."""
        following = np.minimum(places + 1, len(ids) - 1)
        codes = ids[places] * self._base + ids[following]
        rows, is_found = _find(self._codes, codes)
        is_found &= (word[places] == word[following]) & (places < following)
        return np.where(is_found, self._ranks[rows], _NEVER)


def _find(ordered: Integers, numbers: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Index of each number in an array that ends in `_END`, and mask of the numbers that the array contains."""
    places = np.searchsorted(ordered, numbers)
    return places, ordered[places] == numbers


class Segmenter:
    """Draws segmentations with one tokenizer and rate of BPE-dropout, and remembers them.

    The samples of a word are numbered. Sample k is a function of the word, k and the seed. Samples are kept in a table
    of fixed size, in which newer samples overwrite older ones; results do not depend on the content of the table. Words
    are compared by 64-bit hashes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rate: float,
        seed: int,
        num_slots: int = 2**20,
        max_remembered_ids: int = 2**22,
    ) -> None:
        self._max_remembered_ids = max_remembered_ids
        self._sampler = MergeDropout(tokenizer, rate)
        subwords, size = tokenizer.subwords(), tokenizer.vocab_size
        rows = [[index] for index in range(size)]  # Ids of the characters of each subword.
        self._first, self._last = ends = np.full((2, size), -1, dtype=np.int64)
        for text, index in subwords.items():
            rows[index] = [subwords[character] for character in text]
            ends[:, index] = rows[index][0], rows[index][-1]
        self._num_characters = np.array([len(row) for row in rows], dtype=np.int64)
        self._characters = np.array([character for row in rows for character in row], dtype=np.int64)
        neighbours = {left * size + right for row in rows for left, right in pairwise(row)}
        self._neighbours = np.array([*sorted(neighbours), _END], dtype=np.int64)
        self._is_second = np.isin(self._first, self._neighbours[:-1] % size)
        self._hashes = np.random.default_rng(seed).integers(2**64, size=size, dtype=np.uint64)
        self._keys, self._places = np.zeros(num_slots, np.uint64), np.zeros((2, num_slots), np.int32)
        self._remembered, self._num_remembered = np.empty(0, np.int32), 0

    def __call__(self, ids: Ids, lengths: NDArray[np.int32], keys: Keys) -> tuple[Ids, NDArray[np.int32]]:
        """New ids of the same texts, and their lengths; a function of each sentence and its key."""
        starts, sentences = self._words(ids, lengths)
        first_words = np.searchsorted(sentences, np.arange(len(lengths)))
        number = np.arange(len(starts)) - first_words[sentences]
        sample = numbered(keys[sentences], number) % np.uint64(NUM_SAMPLES)
        places, counts = self._samples(ids, starts, sample)
        new_lengths = np.bincount(sentences, counts, len(lengths)).astype(np.int32)
        return ragged(self._remembered, places, counts).astype(ids.dtype), new_lengths

    def _words(self, ids: Ids, lengths: NDArray[np.int32]) -> tuple[Integers, Integers]:
        sentences = np.repeat(np.arange(len(lengths)), lengths)
        is_start = np.ones(len(ids), bool)
        may_join = np.flatnonzero(self._is_second[ids[1:]] & (sentences[1:] == sentences[:-1]))
        last, first = self._last[ids[may_join]], self._first[ids[may_join + 1]]
        _, joins = _find(self._neighbours, np.where(last < 0, -1, last * len(self._first) + first))
        is_start[may_join[joins] + 1] = False
        starts = np.flatnonzero(is_start)
        return starts, sentences[starts]

    def _samples(self, ids: Ids, starts: Integers, sample: Keys) -> tuple[Integers, Integers]:
        """Start of a sample of each word in `_remembered`, and its length."""
        if not len(starts):
            return starts, starts
        lengths = np.diff(starts, append=len(ids))
        powers = np.cumprod(np.full(int(lengths.max()), _STEP))
        place = np.arange(len(ids)) - np.repeat(starts, lengths)
        keys = numbered(np.add.reduceat(self._hashes[ids] * powers[place], starts), sample)
        if self._num_remembered > self._max_remembered_ids:
            self._keys[:], self._num_remembered = 0, 0
        slots = (keys % np.uint64(len(self._keys))).astype(np.int64)
        is_new = self._keys[slots] != keys
        places = self._places[:, slots].astype(np.int64)
        new, chosen, inverse = np.unique(keys[is_new], return_index=True, return_inverse=True)
        chosen = np.flatnonzero(is_new)[chosen]
        drawn = self._drawn(ragged(ids, starts[chosen], lengths[chosen]), lengths[chosen], new)
        places[:, is_new] = drawn[:, inverse]
        slots = slots[chosen]
        self._keys[slots] = new
        is_kept = self._keys[slots] == new  # If several have the same slot, only one is kept.
        self._places[:, slots[is_kept]] = drawn[:, is_kept]
        return places[0], places[1]

    def _drawn(self, ids: Ids, lengths: Integers, keys: Keys) -> Integers:
        """Draw a sample for each word; return the starts of the samples in `_remembered`, and their lengths."""
        num_characters = self._num_characters[ids]
        first = starts_of(self._num_characters)[ids]
        characters = ragged(self._characters, first, num_characters)
        words = np.repeat(np.arange(len(lengths)), lengths)
        num_characters = np.bincount(words, num_characters, len(lengths)).astype(np.int64)
        drawn, counts = self._sampler(characters, num_characters, keys)
        kept = self._remembered[: self._num_remembered]
        if len(kept) + len(drawn) > len(self._remembered):
            self._remembered = np.resize(kept, 2 * (len(kept) + len(drawn)))
        self._remembered[len(kept) : len(kept) + len(drawn)] = drawn
        self._num_remembered += len(drawn)
        return np.stack([len(kept) + starts_of(counts), counts])
