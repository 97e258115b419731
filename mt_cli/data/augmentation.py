"""Training pairs whose texts are changed anew in each epoch. Knows pools of pairs, and decodes and encodes texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.corpus.augmented_text import NUM_CHANCES, TextAugmentation
from mt_cli.data.batches import ChangedPairs, Pool, TrainingPairs, in_file_order
from mt_cli.data.encode import EncodedPairs, Ids, as_batch, ragged, starts_of, with_first_ids
from mt_cli.data.made_up_words import usable_words
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

_END_OF_SEEDS = 0x54  # Gives other random numbers than other uses of the same pool.
_Side = tuple[Ids, NDArray[np.int32]]
"""Concatenated ids of texts, and the length of each text."""


def changed_texts(pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config) -> ChangedPairs:
    """Training pairs with the changes of `corpus.augment` and `training.inserted_words`.

    The result is a function of the seed, the epoch and the pool. Tags stay. A pair stays as it is if a side has an
    unknown token, because its text is not known, or would have more than `max_tokens`.
    """
    return ChangedPairs(pairs, _ChangeOfTexts(tokenizers, config))


class _ChangeOfTexts:
    def __init__(self, tokenizers: TokenizerPair, config: Config) -> None:
        self._tokenizers, self._max_tokens, self._seed = tokenizers, config.corpus.max_tokens, config.training.seed
        self._languages = config.corpus.languages_of("train")
        self._tag_ids = [{*tokenizers[0].tag_ids}, {*tokenizers[0].target_tag_ids}]
        inserted = config.training.inserted_words
        words = usable_words(tokenizers, self._seed) if inserted else []
        self._augmentation = TextAugmentation(config.corpus.augment, inserted, words)

    def __call__(self, pool: Pool, epoch: int, number: int) -> Pool:
        if not len(pool[1]):
            return pool
        random = np.random.default_rng([self._seed, epoch, number, _END_OF_SEEDS])
        indices, order, part_sizes = in_file_order(*pool)
        sides = pool[0].take(indices)
        chances = random.random((NUM_CHANCES, len(indices)))
        rows = np.flatnonzero(self._augmentation.is_changed(chances))
        ids = [_ids_of(side, rows) for side in sides]
        known = [place for place, pair in enumerate(zip(*ids, strict=True)) if all(UNK_ID not in text for text in pair)]
        rows, ids = rows[known], [[side[place] for place in known] for side in ids]
        tags = [[_tag_of(text, tag_ids) for text in side] for side, tag_ids in zip(ids, self._tag_ids, strict=True)]
        texts = [
            tokenizer.decode([text[len(tag) :] for text, tag in zip(ids[side], tags[side], strict=True)])
            for side, tokenizer in enumerate(self._tokenizers)
        ]
        parts = np.searchsorted(np.cumsum(part_sizes), rows, side="right").tolist()
        changed = [
            self._augmentation.change(pair, numbers, self._languages[part], random)
            for pair, numbers, part in zip(zip(*texts, strict=True), chances[:, rows].T.tolist(), parts, strict=True)
        ]
        encoded = [
            with_first_ids(*tokenizer.encode_flat([pair[side] for pair in changed]), tags[side])
            for side, tokenizer in enumerate(self._tokenizers)
        ]
        lengths = np.stack([lengths for _, lengths in encoded])
        fits = (lengths.max(axis=0) <= self._max_tokens) & (lengths.min(axis=0) > 0)
        replaced = [_replaced(side, rows, new, fits) for side, new in zip(sides, encoded, strict=True)]
        return EncodedPairs([as_batch(replaced)], part_sizes), order


def _ids_of(side: _Side, rows: NDArray[np.int64]) -> list[list[int]]:
    """Ids of the texts with these numbers."""
    ids, lengths = side
    starts = starts_of(lengths)[rows]
    return [ids[start:end].tolist() for start, end in zip(starts, starts + lengths[rows], strict=True)]


def _tag_of(ids: list[int], tag_ids: set[int]) -> list[int]:
    """The tag with which a text begins, if it has one."""
    return ids[:1] if tag_ids.issuperset(ids[:1]) else []


def _replaced(side: _Side, rows: NDArray[np.int64], new: _Side, fits: NDArray[np.bool_]) -> _Side:
    """Texts of a side, those with the numbers `rows` replaced where `fits` is True."""
    (ids, lengths), (new_ids, new_lengths) = side, new
    starts = starts_of(lengths)
    starts[rows[fits]] = len(ids) + starts_of(new_lengths)[fits]
    lengths = lengths.copy()
    lengths[rows[fits]] = new_lengths[fits]
    return ragged(np.concatenate([ids, new_ids]), starts, lengths), lengths
