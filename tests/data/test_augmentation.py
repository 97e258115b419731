from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.protected_text import RESERVED
from mt_cli.data.batches import MixedPairs
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.made_up_words import made_up_words, usable_words
from mt_cli.data.prepare import longest_source, read, tokenizer_pairs
from mt_cli.data.training_pairs import changed_texts, concatenated_pairs
from mt_cli.tokenizer.special_tokens import SPACE, UNK_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

TAG = 2
PLACES = 10
"""Ids of a text are 10 * the number of its pair + the place."""
CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}


def config_of(max_tokens=50, seed=1, augment=None, **training):
    corpus = CORPUS | {"max_tokens": max_tokens, "augment": augment or {}}
    tokenizer = {"algorithm": "bpe", "vocab_size": 400}
    return parse_config(
        {"name": "t", "corpus": corpus, "tokenizer": tokenizer, "training": training | {"seed": seed}}, "f.yaml"
    )


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


def concatenated(share, max_tokens=50, seed=1):
    pairs = MixedPairs(corpus(), [1.0, 1.0], batch_tokens=10, seed=seed)
    return concatenated_pairs(pairs, ([TAG], []), config_of(max_tokens, seed, concatenated_pairs=share))


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
    return list(dict.fromkeys(index // PLACES for index in ids if index >= PLACES))


def test_concatenation_keeps_each_pair_once_in_an_epoch():
    pairs = concatenated(0.5)
    epoch = epoch_of(pairs)
    assert pairs.num_pools > 1
    assert sorted(number for source, _, _ in epoch for number in numbers_of(source)) == list(range(1, 801))
    assert all(numbers_of(source) == numbers_of(target) for source, target, _ in epoch)
    num_joined = sum(len(numbers_of(source)) == 2 for source, _, _ in epoch)
    assert num_joined == pytest.approx(800 * 0.5 / 2, abs=2 * pairs.num_pools)


def test_concatenated_pairs_share_part_tag_and_limit():
    epoch = epoch_of(concatenated(1.0, max_tokens=11))
    for source, _, part in epoch:
        assert {int(number > 400) for number in numbers_of(source)} == {part}
        assert (source[0] == TAG) == (part == 1) and TAG not in source[1:]
    assert max(len(side) for source, target, _ in epoch for side in (source, target)) == 11
    assert sum(len(numbers_of(source)) for source, _, _ in epoch) == 800


def test_concatenated_pairs_are_a_function_of_seed_and_epoch():
    pairs = concatenated(0.5)
    pools = pools_of(pairs, epoch=3)
    assert pools_of(concatenated(0.5), epoch=3, first=1) == pools[1:]
    assert pools_of(pairs, epoch=4) != pools != pools_of(concatenated(0.5, seed=2), epoch=3)


TEXTS = ["The cat sat on the mat.", 'A dog sleeps: "there".', "¿Qué es? (no)", 'Is it? Yes, "no"!']


def tokenizer(algorithm="bpe", texts=TEXTS):
    size = {} if algorithm == "word_level" else {"vocab_size": 400}
    return train_tokenizer(texts * 20, TokenizerConfig(algorithm=algorithm, **size))


@pytest.mark.parametrize("algorithm", ["word_level", "bpe", "unigram"])
def test_joined_ids_are_the_text_with_a_space_between(algorithm):
    trained = tokenizer(algorithm)
    for first, second in permutations(TEXTS, 2):
        joined = [index for ids in trained.encode([first, second]) for index in ids]
        assert trained.decode([joined]) == [f"{first} {second}"]


def test_made_up_words_can_be_written_in_both_languages():
    names = made_up_words((tokenizer(),) * 2, seed=1)
    assert names == made_up_words((tokenizer(),) * 2, seed=1)
    assert all(word[0].isupper() or word[0].isdigit() for word in names) and SPACE not in "".join(names)
    numbers = made_up_words((tokenizer(), tokenizer(texts=["Две кошки и собака", "Окно в Windows"])), seed=1)
    assert all(set(word) <= set("0123456789., ") for word in numbers)
    config = TokenizerConfig(algorithm="bpe", vocab_size=340)
    source = train_tokenizer(["Anna Bert Carl 0123456789 ANBTCRLE"] * 20, config, tags=["9", "<bt>"])
    target = train_tokenizer(["Anna Bert Carl 0123456789 ,."] * 20, config)
    words = usable_words((source, target), seed=1)
    assert 0 < len(words) < 5_000
    for side in (source, target):
        assert all({UNK_ID, *side.tag_ids}.isdisjoint(ids) for ids in side.encode(words))


LINES = [
    f"{subject} {verb} {thing}{mark}"
    for subject in ("The cat", "A dog", "My friend Anna", RESERVED[3] + " of it")
    for verb in ("sees", "carries", "is not there without")
    for thing in ("the mat", "3 old chairs", "nothing")
    for mark in (".", "!", "")
]


def texts_of(pools, trained):
    return [
        tuple(trained.decode([pool[index][side].tolist()])[0] for side in (0, 1))
        for pool, order in pools
        for index in order.tolist()
    ]


def pairs_of_lines(trained, max_tokens=200, seed=1, augment=None, **training):
    """Training pairs from LINES to LINES in two parts, the sources of the second with a tag, changed and unchanged."""
    source = trained.encode([*LINES, *(f"<bt> {line}" for line in LINES)])
    pairs = EncodedPairs.from_ids(source, trained.encode([*LINES, *LINES]))
    pairs.part_sizes = (len(LINES), len(LINES))
    plain = MixedPairs(pairs, [1.0, 2.0], batch_tokens=1, seed=seed)
    config = config_of(max_tokens, seed, augment, **training)
    config.corpus.__dict__["train"] = config.corpus.train * 2
    return changed_texts(plain, (trained, trained), config, {}), plain


@pytest.fixture(scope="module")
def trained():
    config = TokenizerConfig(algorithm="bpe", vocab_size=500)
    lines = [*LINES, *map(str.upper, LINES)] * 5
    return train_tokenizer(lines, config, tags=["<bt>"], reserved="".join(RESERVED))


def test_changed_pairs_depend_on_seed_and_epoch_alone(trained):
    shares = {"augment": {"upper_case": 0.2, "typos": 0.3}, "inserted_words": 0.5}
    changed, plain = pairs_of_lines(trained, **shares)
    assert changed.num_pools == plain.num_pools > 1
    texts = texts_of(changed.pools(3, 0), trained)
    assert texts_of(changed.pools(3, 1), trained) == texts[changed.first_place(1) :]
    assert texts_of(changed.pools(4, 0), trained) != texts
    assert texts_of(pairs_of_lines(trained, **shares)[0].pools(3, 0), trained) == texts
    before = texts_of(plain.pools(3, 0), trained)
    assert len(texts) == len(before) == 3 * len(LINES)
    assert [source.startswith("<bt> ") for source, _ in texts] == [source.startswith("<bt> ") for source, _ in before]
    assert 0.2 < np.mean([pair != other for pair, other in zip(texts, before, strict=True)]) < 0.9
    assert [RESERVED[3] in source for source, _ in texts] == [RESERVED[3] in source for source, _ in before]


def changed_and_before(trained, **options):
    """Changed pairs, and the sources before, without their tags."""
    changed, plain = (texts_of(pairs.pools(0, 0), trained) for pairs in pairs_of_lines(trained, **options))
    for (source, target), (before, _) in zip(changed, plain, strict=True):
        assert source.startswith("<bt> ") == before.startswith("<bt> ")
        yield source.removeprefix("<bt> "), target, before.removeprefix("<bt> ")


@pytest.mark.parametrize(
    ("augment", "change"),
    [
        ({"upper_case": 1.0}, str.upper),
        ({"no_final_punctuation": 1.0}, lambda text: text.rstrip(".!")),
        ({"title_case": 1.0}, str.title),
    ],
)
def test_a_share_of_one_changes_every_text_but_no_tag(trained, augment, change):
    for source, target, before in changed_and_before(trained, augment=augment):
        assert source == target == change(before)
    for source, target, before in changed_and_before(trained, augment={"typos": 1.0}):
        assert source != before == target


def test_inserted_words_are_the_same_on_both_sides(trained):
    names = set(made_up_words((trained, trained), seed=1))
    for source, target, before in changed_and_before(trained, inserted_words=1.0):
        assert source == target
        words, kept = target.split(), before.split()
        count = len(words) - len(kept)
        found = [place for place in range(len(kept) + 1) if words[:place] + words[place + count :] == kept]
        assert any(" ".join(words[place : place + count]) in names for place in found)


def test_a_pair_too_long_or_with_unknown_tokens_stays(trained):
    changed, plain = pairs_of_lines(trained, max_tokens=1, augment={"upper_case": 1.0})
    assert epoch_of(changed) == epoch_of(plain)
    unknown = EncodedPairs.from_ids([[UNK_ID, *ids] for ids in trained.encode(LINES)], trained.encode(LINES))
    plain = MixedPairs(unknown, [1.0], batch_tokens=1, seed=1)
    changed = changed_texts(plain, (trained, trained), config_of(augment={"upper_case": 1.0}), {})
    assert epoch_of(changed) == epoch_of(plain)


@pytest.mark.parametrize(("share", "max_tokens", "longest"), [(0.0, 50, 3), (0.5, 5, 5)])
def test_lines_as_long_as_two_concatenated_sources_are_kept(share, max_tokens, longest):
    statistics = {"train": SimpleNamespace(longest_source=3)}
    config = config_of(max_tokens, concatenated_pairs=share)
    assert longest_source(SimpleNamespace(statistics=statistics), config, None) == longest


def test_capitals_of_vocabularies_are_those_of_each_direction(tmp_path):
    for name in ("train", "valid"):
        (tmp_path / f"{name}.tsv").write_text("bir ki\u015fi\tthis is his\n", encoding="utf-8")
    files = {name: {"file": str(tmp_path / f"{name}.tsv")} for name in ("train", "valid")}
    options = {"both_directions": True, "tag": "to_target", "augment": {"upper_case": 1.0}}
    corpus = {"source": "tr", "target": "en", **files, **options, "filters": {"overlap": False}}
    config = parse_config({"name": "x", "corpus": corpus}, "x")
    pairs = tokenizer_pairs(read(config, Cache(tmp_path / "cache")), config)
    turkish = "B\u0130R K\u0130\u015e\u0130"
    assert [*pairs()] == [(turkish, "THIS IS HIS"), ("THIS IS HIS", turkish)]
