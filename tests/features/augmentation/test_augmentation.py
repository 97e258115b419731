from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from mt_cli.batching.batches import MixedPairs
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.data.prepare import longest_source
from mt_cli.features.augmentation.pairs import AugmentedPairs, Words, made_up_words, words_of
from mt_cli.tokenizer.special_tokens import SPACE, UNK_ID
from mt_cli.tokenizer.training import train_tokenizer

TAG, FIRST_WORD = 2, 60_000
PLACES = 10
"""Ids of a text are 10 * the number of its pair + the place; even places begin a word."""


def corpus(num_pairs=400):
    """Pairs in two parts; the numbers of pairs in the second part are larger, and their sources begin with a tag."""
    random = np.random.default_rng(1)
    source, target = [], []
    for number in range(1, 2 * num_pairs + 1):
        ids = [PLACES * number + place for place in range(PLACES)]
        source.append([TAG] * (number > num_pairs) + ids[: random.integers(1, PLACES)])
        target.append(ids[: random.integers(1, PLACES)])
    pairs = EncodedPairs.from_ids(source, target)
    pairs.part_sizes = (num_pairs, num_pairs)
    return pairs


def some_words(number=50):
    """Words of one to three ids from FIRST_WORD on."""
    lengths = np.arange(number) % 3 + 1
    begins_word = (np.arange(70_000) % 2 == 0) & (np.arange(70_000) >= PLACES)
    ids = FIRST_WORD + np.arange(lengths.sum())
    return [Words(ids.astype(np.uint32), np.cumsum(lengths) - lengths, lengths, begins_word)] * 2


def ids_of(words):
    """The ids of each word."""
    places = zip(words.starts, words.lengths, strict=True)
    return [words.ids[start : start + length].tolist() for start, length in places]


def augmented(concatenated=0.0, inserted=0.0, max_tokens=50, seed=1, batch_tokens=10):
    pairs = MixedPairs(corpus(), [1.0, 1.0], batch_tokens, seed)
    return AugmentedPairs(pairs, concatenated, inserted, some_words(), [TAG], max_tokens, seed)


def pools_of(pairs, epoch=0, first=0):
    """Source, target and part of the pairs of each pool, in the order of training."""
    return [
        [
            (*(tuple(side.tolist()) for side in pool[index]), int(index >= pool.part_sizes[0]))
            for index in order.tolist()
        ]
        for pool, order in pairs.pools(epoch, first)
    ]


def epoch_of(pairs, epoch=0):
    return [pair for pool in pools_of(pairs, epoch) for pair in pool]


def numbers_of(ids):
    """The numbers of the pairs in a text, in order."""
    return list(dict.fromkeys(index // PLACES for index in ids if PLACES <= index < FIRST_WORD))


def word_of(ids):
    return tuple(index for index in ids if index >= FIRST_WORD)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_concatenation_keeps_each_pair_once_in_an_epoch_and_its_sides_together(share):
    pairs = augmented(concatenated=share)
    epoch = epoch_of(pairs)
    assert pairs.num_pools > 1
    assert sorted(number for source, _, _ in epoch for number in numbers_of(source)) == list(range(1, 801))
    assert all(numbers_of(source) == numbers_of(target) for source, target, _ in epoch)
    num_joined = sum(len(numbers_of(source)) == 2 for source, _, _ in epoch)
    assert num_joined == pytest.approx(800 * share / 2, abs=2 * pairs.num_pools)


def test_only_pairs_of_one_part_are_concatenated_and_a_tag_stands_at_the_beginning_alone():
    for source, _, part in epoch_of(augmented(concatenated=1.0)):
        assert {int(number > 400) for number in numbers_of(source)} == {part}
        assert (source[0] == TAG) == (part == 1) and TAG not in source[1:]


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)])
def test_no_side_becomes_longer_than_the_limit(shares):
    epoch = epoch_of(augmented(*shares, max_tokens=11))
    assert max(len(side) for source, target, _ in epoch for side in (source, target)) == 11
    assert sum(len(numbers_of(source)) for source, _, _ in epoch) == 800


def test_an_inserted_word_is_whole_and_the_same_on_both_sides_and_nothing_else_changes():
    before = {numbers_of(source)[0]: (source, target) for source, target, _ in epoch_of(augmented())}
    words = set(map(tuple, ids_of(some_words()[0])))
    pairs = epoch_of(augmented(inserted=0.5))
    for source, target, part in pairs:
        assert word_of(source) == word_of(target)
        for side, plain in zip((source, target), before[numbers_of(source)[0]], strict=True):
            assert tuple(index for index in side if index < FIRST_WORD) == plain
            if word := word_of(side):
                start = side.index(word[0])
                assert side[start : start + len(word)] == word and word in words
                assert side[start + len(word)] % 2 == 0 and (start or side is target or part == 0)
    num_inserted = sum(bool(word_of(source)) for source, _, _ in pairs)
    assert num_inserted == pytest.approx(400, abs=60)
    assert len({word_of(source) for source, _, _ in pairs}) > 40


def test_a_word_is_inserted_at_about_the_same_place_on_both_sides():
    places = []
    for source, target, part in epoch_of(augmented(inserted=1.0)):
        starts = [side.index(word_of(side)[0]) for side in (source, target)]
        places.append((starts[0] - part, starts[1]))
    assert np.corrcoef(np.array(places).T)[0, 1] > 0.4
    assert len(set(places)) > 10


@pytest.mark.parametrize("shares", [(0.5, 0.0), (0.0, 0.5), (0.5, 0.5)])
def test_a_pool_is_a_function_of_seed_and_epoch_alone(shares):
    pairs = augmented(*shares)
    pools = pools_of(pairs, epoch=3)
    assert pools_of(augmented(*shares), epoch=3, first=1) == pools[1:]
    assert pools_of(pairs, epoch=4) != pools != pools_of(augmented(*shares, seed=2), epoch=3)


TEXTS = ["The cat sat on the mat.", 'A dog sleeps: "there".', "¿Qué es? (no)", 'Is it? Yes, "no"!']


def tokenizer(algorithm="bpe", texts=TEXTS):
    size = {} if algorithm == "word_level" else {"vocab_size": 400}
    return train_tokenizer(texts * 20, TokenizerConfig(algorithm=algorithm, **size))


@pytest.mark.parametrize("algorithm", ["word_level", "bpe", "unigram"])
def test_the_ids_of_two_texts_are_the_ids_of_the_texts_with_a_space_between(algorithm):
    trained = tokenizer(algorithm)
    for first, second in permutations(TEXTS, 2):
        joined = [index for ids in trained.encode([first, second]) for index in ids]
        assert trained.decode([joined]) == [f"{first} {second}"]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_words_can_be_inserted_where_a_word_of_the_text_begins(algorithm):
    trained = tokenizer(algorithm)
    (words, others) = words_of((trained, trained), seed=1)
    (ids,) = trained.encode([TEXTS[1]])
    rests = [trained.decode([ids[place:]])[0] for place in np.flatnonzero(words.begins_word[ids])]
    assert rests == [TEXTS[1], 'dog sleeps: "there".', 'sleeps: "there".', '"there".']
    assert (words.ids == others.ids).all()
    (first,) = trained.decode([words.ids[: words.lengths[0]].tolist()])
    assert first in made_up_words((trained, trained), seed=1)


NO_CAPITALS, RUSSIAN = ["日本語のテキスト。", "नमस्ते दुनिया"], ["Две кошки и собака", "Мышь и кот", "Окно в Windows"]


@pytest.mark.parametrize(("source", "target"), [(NO_CAPITALS, NO_CAPITALS), (TEXTS, RUSSIAN)])
def test_made_up_words_are_names_and_numbers_or_numbers_alone_with_two_scripts_or_no_capitals(source, target):
    names = made_up_words((tokenizer(),) * 2, seed=1)
    assert len(names) == 5_000 and names == made_up_words((tokenizer(),) * 2, seed=1)
    assert all(word[0].isupper() or word[0].isdigit() for word in names) and SPACE not in "".join(names)
    numbers = made_up_words((tokenizer(texts=source), tokenizer(texts=target)), seed=1)
    assert all(set(word) <= set("0123456789., ") for word in numbers)


def test_words_that_a_side_cannot_write_or_takes_for_a_tag_are_left_out():
    texts = ["anna bert carl"] * 20
    config = TokenizerConfig(algorithm="bpe", vocab_size=100, byte_fallback=False)
    assert len(words_of((train_tokenizer(texts, config),) * 2, seed=1)[0].lengths) == 0  # No capital letters.
    source = train_tokenizer(["Anna Bert Carl 0123456789 ANBTCRLE"] * 20, config, tags=["9", "<bt>"])
    target = train_tokenizer(["Anna Bert Carl 0123456789 ,."] * 20, config)
    sides = words_of((source, target), seed=1)
    assert 0 < len(sides[0].lengths) == len(sides[1].lengths) < 5_000
    for trained, words in zip((source, target), sides, strict=True):
        assert {UNK_ID, *trained.tag_ids}.isdisjoint(words.ids.tolist())
        assert not words.begins_word[trained.tag_ids].any()
    texts = [side.decode(ids_of(words)) for side, words in zip((source, target), sides, strict=True)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("share", "max_tokens", "longest"), [(0.0, 50, 3), (0.5, 50, 6), (0.5, 5, 5)])
def test_lines_as_long_as_two_concatenated_sources_are_not_split(share, max_tokens, longest):
    corpus = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
    tree = {"name": "t", "corpus": corpus | {"max_tokens": max_tokens}, "training": {"concatenated_pairs": share}}
    statistics = {"train": SimpleNamespace(source=SimpleNamespace(length_counts=(0, 2, 0, 5)))}
    assert longest_source(SimpleNamespace(statistics=statistics), parse_config(tree, "f.yaml"), None) == longest
