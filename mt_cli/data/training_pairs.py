"""Training pairs of a run, changed anew in each epoch if its config asks for it.

Each change maps a pool of pairs to another one and is a function of the seed, the epoch and the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.corpus.augmented_text import NUM_CHANCES, TextAugmentation
from mt_cli.corpus.rows import Languages
from mt_cli.data.batches import ChangedPairs, Pool, TrainingPairs, in_file_order
from mt_cli.data.encode import EncodedPairs, Ids, as_batch, ragged, starts_of, with_first_ids
from mt_cli.data.lexicon import Lexicon
from mt_cli.data.made_up_words import usable_words
from mt_cli.data.prepare import Data, SyntheticPairs, corpus_pairs
from mt_cli.data.subword_sampling import Segmenter, numbered
from mt_cli.data.term_pairs import TERM_SHARE, with_terms
from mt_cli.runtime.group import ALONE, Group
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

_SEEDS_OF_TEXTS, _SEEDS_OF_CONCATENATION = 0x54, 0x41
"""Last seeds of the random numbers of changes of one pool, which differ from those of other uses of the pool."""
_TOKENS_AT_ONCE = 2**16
_Side = tuple[Ids, NDArray[np.int32]]
"""Concatenated ids of texts, and the length of each text."""


def training_pairs(
    data: Data, config: Config, group: Group = ALONE, synthetic: SyntheticPairs | None = None
) -> TrainingPairs:
    """Pairs of `train`: changed, segmented anew and concatenated in every epoch if the config says so.

    Synthetic pairs are mixed with them, and treated in the same way.
    """
    pairs: TrainingPairs = corpus_pairs(data, config, group, synthetic)
    seed, max_tokens = config.training.seed, config.corpus.max_tokens
    if config.changes_texts:
        pairs = changed_texts(pairs, data.tokenizers, config, data.lexicons)
    if config.tokenizer.bpe_dropout:
        segmenters = {side: Segmenter(side, config.tokenizer.bpe_dropout, seed) for side in data.tokenizers}
        pairs = resegmented(pairs, [segmenters[side] for side in data.tokenizers], max_tokens, seed)
    if config.training.concatenated_pairs:
        source = data.tokenizers[0]
        pairs = concatenated_pairs(pairs, (source.tag_ids, source.target_tag_ids), config)
    return pairs


def changed_texts(
    pairs: TrainingPairs, tokenizers: TokenizerPair, config: Config, lexicons: Mapping[Languages, Lexicon]
) -> ChangedPairs:
    """Training pairs with the changes of `corpus.augment` and `training.inserted_words`, and with annotated terms.

    Terms are annotated in the share `TERM_SHARE` of the pairs with a lexicon. Tags stay. A pair stays as it is if a
    side has an unknown token, because its text is not known, or would have more than `max_tokens`.
    """
    seed, inserted = config.training.seed, config.training.inserted_words
    words = usable_words(tokenizers, seed) if inserted else []
    augmentation = TextAugmentation(config.corpus.augment, inserted, words)
    languages = [*config.corpus.languages_of("train"), *config.corpus.synthetic_directions.values()]
    tag_ids = [{*tokenizers[0].tag_ids}, {*tokenizers[0].target_tag_ids}]

    def change(pool: Pool, epoch: int, number: int) -> Pool:
        random = np.random.default_rng([seed, epoch, number, _SEEDS_OF_TEXTS])
        indices, order, part_sizes = in_file_order(*pool)
        sides = pool[0].take(indices)
        chances = random.random((NUM_CHANCES, len(indices)))
        has_terms = random.random(len(indices)) < TERM_SHARE * bool(lexicons)
        rows = np.flatnonzero(augmentation.is_changed(chances) | has_terms)
        rows = rows[~np.any([_has_unknown(side, rows) for side in sides], axis=0)]
        ids = [_ids_of(side, rows) for side in sides]
        tags = [
            [text[:1] if first.issuperset(text[:1]) else [] for text in side]
            for side, first in zip(ids, tag_ids, strict=True)
        ]
        texts = [
            tokenizer.decode([text[len(tag) :] for text, tag in zip(ids[side], tags[side], strict=True)])
            for side, tokenizer in enumerate(tokenizers)
        ]
        parts = np.searchsorted(np.cumsum(part_sizes), rows, side="right").tolist()
        changed = [
            augmentation.change(pair, numbers, languages[part], random)
            for pair, numbers, part in zip(zip(*texts, strict=True), chances[:, rows].T.tolist(), parts, strict=True)
        ]
        for number in np.flatnonzero(has_terms[rows]).tolist():
            if lexicon := lexicons.get(languages[parts[number]]):
                changed[number] = with_terms(changed[number], lexicon, random)
        encoded = [
            with_first_ids(*tokenizer.encode_flat([pair[side] for pair in changed]), tags[side])
            for side, tokenizer in enumerate(tokenizers)
        ]
        lengths = np.stack([lengths for _, lengths in encoded])
        fits = (lengths.max(axis=0) <= config.corpus.max_tokens) & (lengths.min(axis=0) > 0)
        replaced = [_replaced(side, new, rows, fits) for side, new in zip(sides, encoded, strict=True)]
        return EncodedPairs([as_batch(replaced)], part_sizes), order

    return ChangedPairs(pairs, change)


def _ids_of(side: _Side, rows: NDArray[np.int64]) -> list[list[int]]:
    ids, lengths = side
    starts = starts_of(lengths)[rows]
    return [ids[start:end].tolist() for start, end in zip(starts, starts + lengths[rows], strict=True)]


def _has_unknown(side: _Side, rows: NDArray[np.int64]) -> list[bool]:
    return [UNK_ID in text for text in _ids_of(side, rows)]


def _replaced(side: _Side, new: _Side, rows: NDArray[np.int64], is_replaced: NDArray[np.bool_]) -> _Side:
    """Texts of a side, those with the numbers `rows` replaced by new ones where `is_replaced` is True."""
    (ids, lengths), (new_ids, new_lengths) = side, new
    starts, lengths = starts_of(lengths), lengths.copy()
    starts[rows[is_replaced]] = len(ids) + starts_of(new_lengths)[is_replaced]
    lengths[rows[is_replaced]] = new_lengths[is_replaced]
    return ragged(np.concatenate([ids, new_ids]), starts, lengths), lengths


def resegmented(pairs: TrainingPairs, segmenters: Sequence[Segmenter], max_tokens: int, seed: int) -> ChangedPairs:
    """Training pairs with ids that are drawn from the segmentations of their texts.

    The ids of a pair are a function of the pair, the seed, the epoch and the place of the pair in the order of the
    epoch. A side that would have more than `max_tokens` keeps its ids.
    """
    lock = Lock()

    def change(pool: Pool, epoch: int, number: int) -> Pool:
        indices, order, part_sizes = in_file_order(*pool)
        places = pairs.first_place(number) + order.argsort()
        num_tokens = np.cumsum(pool[0].lengths(indices).sum(axis=0, dtype=np.int64))
        ends = np.flatnonzero(np.diff(num_tokens // _TOKENS_AT_ONCE)) + 1
        keys = [np.random.default_rng([seed, epoch, side]).integers(2**64, size=1, dtype=np.uint64) for side in (0, 1)]
        batches = []
        for rows, numbers in zip(np.split(indices, ends), np.split(places, ends), strict=True):
            sides = []
            for side, segmenter, key in zip(pool[0].take(rows), segmenters, keys, strict=True):
                with lock:
                    drawn = segmenter(*side, numbered(key, numbers))
                fits = drawn[1] <= max_tokens
                sides.append(drawn if fits.all() else _replaced(side, drawn, np.arange(len(rows)), fits))
            batches.append(as_batch(sides))
        return EncodedPairs(batches, part_sizes), order

    return ChangedPairs(pairs, change)


def concatenated_pairs(pairs: TrainingPairs, tag_ids: Sequence[Sequence[int]], config: Config) -> ChangedPairs:
    """Training pairs, some of them concatenated: the share `training.concatenated_pairs` of each part of a pool.

    They teach a model to translate texts that are longer than its training pairs (Kondo et al. 2021, "Sentence
    Concatenation Approach to Data Augmentation for Neural Machine Translation"; Nguyen et al. 2021, "Data Augmentation
    by Concatenation for Low-Resource Translation: A Mystery and a Solution").

    Only the first tag remains; `tag_ids` has, for each side, the ids of tags with which a text can begin. No side
    becomes longer than `max_tokens`, and each pair is still seen once.
    """
    seed, share, max_tokens = config.training.seed, config.training.concatenated_pairs, config.corpus.max_tokens

    def change(pool: Pool, epoch: int, number: int) -> Pool:
        indices, order, part_sizes = in_file_order(*pool)
        sides = pool[0].take(indices)
        lengths = np.stack([lengths for _, lengths in sides]).astype(np.int64)
        parts = np.searchsorted(np.cumsum(part_sizes), order, side="right")
        chosen = [_chosen(order[parts == part], lengths, share, max_tokens) for part in range(len(part_sizes))]
        first, second = np.concatenate(chosen, axis=1)
        joined = []
        for side, (ids, _) in enumerate(sides):
            ranges = np.stack([starts_of(lengths[side]), lengths[side]])[:, np.stack([first, second])]
            ranges[1, 1, second < 0] = 0
            is_tagged = (ranges[1, 1] > 0) & np.isin(ids[ranges[0, 1]], tag_ids[side])
            ranges[:, 1] += np.stack([is_tagged, -1 * is_tagged])
            starts, counts = ranges
            joined.append((ragged(ids, starts.T.ravel(), counts.T.ravel()), counts.sum(axis=0).astype(np.int32)))
        random = np.random.default_rng([seed, epoch, number, _SEEDS_OF_CONCATENATION])
        return EncodedPairs([as_batch(joined)], [rows.shape[1] for rows in chosen]), random.permutation(len(first))

    return ChangedPairs(pairs, change)


def _chosen(rows: NDArray[np.int64], lengths: NDArray[np.int64], share: float, max_tokens: int) -> NDArray[np.int64]:
    """Rows of a part whose texts come first in a pair, and the rows that follow them, -1 for none."""
    middle = int(len(rows) * share) // 2 * 2
    couples = np.stack([rows[:middle:2], rows[1:middle:2]])
    fits = lengths[:, couples].sum(axis=1).max(axis=0) <= max_tokens
    single = np.concatenate([rows[middle:], *couples[:, ~fits]])
    return np.concatenate([[single, np.full(len(single), -1)], couples[:, fits]], axis=1)
