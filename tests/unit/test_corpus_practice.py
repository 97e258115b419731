"""Laws of the practice corpora."""

import re
from functools import cache
from itertools import pairwise

import pytest

from mt_cli.config.sources import BuiltinSource
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import CorpusError

SPLITS = ("train", "valid", "test", "test_compositional")


def pairs_in(name, split):
    return [pair for _, *pair in read_rows(BuiltinSource(builtin=name, split=split), ("en", "it"))]


@cache
def phrasebook_pairs(split):
    return pairs_in("phrasebook-en-it", split)


def tokens(text):
    return re.findall(r"\w+(?:[':]\w+)*", text)


def word_pairs(split):
    """Adjacent English words of each sentence."""
    return [set(pairwise(tokens(english.lower()))) for english, _ in phrasebook_pairs(split)]


def test_each_sentence_is_in_one_split_once_and_has_one_translation():
    assert [len(phrasebook_pairs(split)) for split in SPLITS] == [48_000, 1_000, 1_000, 1_000]
    pairs = [pair for split in SPLITS for pair in phrasebook_pairs(split)]
    for side in (0, 1):
        assert len({pair[side] for pair in pairs}) == len(pairs)
    with pytest.raises(CorpusError, match="no split 'dev'"):
        phrasebook_pairs("dev")


def test_the_compositional_test_combines_known_words_in_new_ways():
    trained = set().union(*word_pairs("train"))
    new = {split: sum(not pairs <= trained for pairs in word_pairs(split)) for split in ("test", "test_compositional")}
    assert new["test_compositional"] > 2 * new["test"]


def test_reversed_words_are_reversed_distinct_and_apart():
    splits = [pairs_in("reverse-words", split) for split in ("train", "valid", "test")]
    assert [len(pairs) for pairs in splits] == [20_000, 500, 1_000]
    assert all(target == source[::-1] for pairs in splits for source, target in pairs)
    assert len({source for pairs in splits for source, _ in pairs}) == 21_500


def test_the_example_of_the_readme_is_no_training_pair_but_its_words_are_known():
    example = "The old doctor does not see the red house."
    sentences = [english for english, _ in phrasebook_pairs("train")]
    assert example not in sentences
    assert set(tokens(example)) <= {word for english in sentences for word in tokens(english)}
