from collections import Counter
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.text_hashes import hashes_of
from mt_cli.data.batches import MixedPairs, count_batches, epoch_batches
from mt_cli.data.encode import EncodedPairs, encode_block
from mt_cli.data.streams import StreamedPairs
from mt_cli.data.subword_sampling import MergeDropout, Segmenter, numbered
from mt_cli.data.training_pairs import resegmented as resegmented_with
from mt_cli.tokenizer.special_tokens import BYTES
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

TEXTS = [
    "the cat sat on the other mat, then the cathedral's matter was settled: 14 cats!",
    "thermal matters there; a cat-like theatre (other than the catalogue) sat there",
    "Ist das Theater dort? Ja, das Theater. » Nein «  zwei  Leerzeichen",
    "日本語のテキスト。日本の本、日本語のテキスト。 日本 the テキスト",
    "ཀུན་དགའ་ ข้อความภาษาไทย ข้อความ",
]
LANGUAGES = ["eng_Latn", "jpn_Jpan", "tha_Thai", "hin_Deva"]


def trained(texts=TEXTS, tags=(), **options):
    config = TokenizerConfig(algorithm="bpe", **{"vocab_size": 600, "bpe_dropout": 0.3, **options})
    return train_tokenizer(texts, config, tags), config


@pytest.fixture(scope="module")
def tagged():
    return trained(tags=("<bt>", "the"))


def keys_of(number, seed=0):
    return numbered(np.full(number, seed, np.uint64), np.arange(number))


def resegment(segmenter, tokenizer, texts, seed=0):
    """Other ids of each text."""
    ids, lengths = segmenter(*tokenizer.encode_flat(texts), keys_of(len(texts), seed))
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


TEXT = st.text(max_size=30) | st.lists(st.sampled_from(" ".join(TEXTS).split()), max_size=8).map(" ".join)


@settings(deadline=None, max_examples=20)
@given(texts=st.lists(st.tuples(st.sampled_from(["", "<bt> ", "the "]), TEXT).map("".join), min_size=1), seed=...)
def test_drawn_segmentations_keep_text_and_tag(tagged, texts, seed: bool):
    tokenizer, config = tagged
    encoded = tokenizer.encode(texts)
    tags = {ids[0] for ids in tokenizer.encode(["<bt>", "the"])}
    fixed = {id for ids in tokenizer.encode(["\ue000\ue001☃"]) for id in ids} - set(tokenizer.subwords().values())
    drawn = resegment(Segmenter(tokenizer, config.bpe_dropout, int(seed)), tokenizer, texts)
    assert tokenizer.decode(drawn) == tokenizer.decode(encoded)
    for ids, new_ids in zip(encoded, drawn, strict=True):
        assert new_ids[:1] == ids[:1] or not {*ids[:1]} & tags
        assert [index for index in new_ids if index in fixed] == [index for index in ids if index in fixed]


@pytest.mark.parametrize("language", LANGUAGES)
def test_extreme_dropout_is_the_library_or_single_characters(texts, language):
    tokenizer, _ = trained(texts=texts[language][:-8] or texts[language], vocab_size=1500)
    lines = texts[language][-8:]

    def drawn(rate):
        return resegment(Segmenter(tokenizer, rate, 1), tokenizer, lines)

    assert drawn(0.0) == tokenizer.encode(lines) != drawn(0.3)
    tokens = [token for ids in drawn(1 - 1e-9) for token in tokenizer.tokens(ids)]
    assert {len(token) for token in tokens if token not in BYTES} == {1}


def dropout_probabilities(tokens, merges, rate):
    """The probability of each result of BPE-dropout, from all ways to skip possible merges."""
    possible = [at for at in range(len(tokens) - 1) if (tokens[at], tokens[at + 1]) in merges]
    probabilities = Counter()
    for skipped in product([False, True], repeat=len(possible)):
        probability = float(np.prod([rate if is_skipped else 1 - rate for is_skipped in skipped]))
        kept = [at for at, is_skipped in zip(possible, skipped, strict=True) if not is_skipped]
        if not kept:
            probabilities[tokens] += probability
            continue
        at = min(kept, key=lambda at: (merges[tokens[at], tokens[at + 1]], at))
        merged = (*tokens[:at], tokens[at] + tokens[at + 1], *tokens[at + 2 :])
        for result, share in dropout_probabilities(merged, merges, rate).items():
            probabilities[result] += probability * share
    return probabilities


def assert_distributed(samples, probabilities):
    """Compare the frequencies of samples with probabilities, by the chi-square of the frequent ones."""
    counts, number = Counter(samples), len(samples)
    assert set(counts) <= {sample for sample, probability in probabilities.items() if probability > 0}
    assert sum(probabilities.values()) == pytest.approx(1)
    frequent = [sample for sample, probability in probabilities.items() if probability * number >= 5]
    chi_square = sum(
        (counts[each] - probabilities[each] * number) ** 2 / (probabilities[each] * number) for each in frequent
    )
    assert len(frequent) > 3
    assert chi_square < len(frequent) + 4 * np.sqrt(2 * len(frequent))


def samples_of(sampler, tokenizer, word, number=20_000):
    characters = np.array([tokenizer.subwords()[character] for character in word])
    ids, lengths = sampler(np.tile(characters, number), np.full(number, len(characters)), keys_of(number))
    return [tuple(tokenizer.tokens(part)) for part in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize(("word", "rate"), [("▁theatre", 0.1), ("thethe", 0.5)])
def test_bpe_dropout_has_the_distribution_of_the_paper(word, rate):
    tokenizer, _ = trained()
    merges = {tuple(pair): rank for rank, pair in enumerate(tokenizer.model()["merges"])}
    samples = samples_of(MergeDropout(tokenizer, rate), tokenizer, word)
    assert_distributed(samples, dropout_probabilities(tuple(word), merges, rate))


def resegmented(number=600, batch_tokens=20, max_tokens=256, seed=1, part_sizes=None, times=None, **limits):
    tokenizer, config = trained()
    words = sorted({word for text in TEXTS[:3] for word in text.split()})
    random = np.random.default_rng(0)
    texts = [[" ".join(random.choice(words, random.integers(1, 9))) for _ in range(number)] for _ in range(2)]
    batch, _ = encode_block(texts, [tokenizer] * 2, 256)
    half = number // 2
    parts = part_sizes or [number]
    pairs = EncodedPairs([batch.slice(0, half), batch.slice(half)], parts)
    mixed = MixedPairs(pairs, times or [1.0] * len(parts), batch_tokens, seed)
    segmenter = Segmenter(tokenizer, config.bpe_dropout, seed, **limits)
    return mixed, resegmented_with(mixed, [segmenter] * 2, max_tokens, seed), tokenizer


def content(pools):
    return [[tuple(tuple(side.tolist()) for side in pairs[int(index)]) for index in order] for pairs, order in pools]


def texts_of(tokenizer, pools):
    return [[tuple(tokenizer.decode(pair)) for pair in pool] for pool in content(pools)]


def test_every_pair_appears_in_the_same_order_as_without_sampling():
    mixed, sampled, tokenizer = resegmented(1_500, part_sizes=[300, 1_200], times=[2.0, 0.5])
    assert texts_of(tokenizer, sampled.pools(1, 0)) == texts_of(tokenizer, mixed.pools(1, 0))
    assert content(sampled.pools(1, 0)) != content(mixed.pools(1, 0))
    batches = list(epoch_batches(sampled, 20, 1, 1))
    assert np.sum([placed.num_pairs for placed in batches], axis=0).tolist() == [600, 600]
    assert count_batches(sampled, 20, 1) == pytest.approx(len(batches), rel=0.05)


def test_segmentations_are_a_function_of_seed_epoch_and_pair():
    _, sampled, _ = resegmented(1_500)
    pools = content(sampled.pools(1, 0))
    assert len(pools) > 2
    again = resegmented(1_500, num_slots=7, max_remembered_ids=500)[1]  # Whatever is remembered.
    assert content(again.pools(1, 2)) == pools[2:]
    assert content(again.pools(1, 0)) == pools
    assert content(again.pools(2, 0)) != pools
    assert content(resegmented(1_500, seed=2)[1].pools(1, 0)) != pools
    larger = content(resegmented(1_500, batch_tokens=200)[1].pools(1, 0))
    assert len(larger) < len(pools) and [*chain(*larger)] == [*chain(*pools)]


def test_copies_of_a_pair_are_segmented_differently_within_an_epoch():
    _, sampled, tokenizer = resegmented(10, times=[100.0])
    copies = Counter(pair for pool in content(sampled.pools(0, 0)) for pair in pool)
    texts = {tuple(tokenizer.decode(pair)) for pair in copies}
    assert len(texts) <= 10 and len(copies) > 100


def test_a_side_that_would_be_too_long_keeps_its_ids():
    mixed, free, _ = resegmented()
    longest = int(mixed.pairs.lengths().max())
    _, limited, _ = resegmented(max_tokens=longest)
    canonical, sampled, kept = (
        [side for pool in content(pairs.pools(0, 0)) for pair in pool for side in pair]
        for pairs in (mixed, free, limited)
    )
    assert max(map(len, sampled)) > longest
    for before, other, after in zip(canonical, sampled, kept, strict=True):
        assert after == (other if len(other) <= longest else before)


def test_a_stream_is_segmented_anew_and_resumes_from_any_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr("mt_cli.data.streams.SHUFFLE_BUFFER", 16)
    lines = [f"the other cat number {index} sat there\tthe matter {index} of the theatre" for index in range(100)]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    file = {"file": str(tmp_path / "a.tsv")}
    languages = {"source": "en", "target": "xx"}
    corpus = CorpusConfig.model_validate(languages | {"train": file | {"streaming": True}, "valid": file}, strict=False)
    tokenizer, config = trained()

    def pairs():
        streamed = StreamedPairs(corpus, [tokenizer] * 2, hashes_of([], "en"), 1)
        return streamed, resegmented_with(streamed, [Segmenter(tokenizer, config.bpe_dropout, 1)] * 2, 256, 1)

    streamed, sampled = pairs()
    pools = content(sampled.pools(1, 0))
    assert texts_of(tokenizer, sampled.pools(1, 0)) == texts_of(tokenizer, streamed.pools(1, 0))
    assert content(pairs()[1].pools(1, 2)) == pools[2:]
    assert len(set(chain(*content(sampled.pools(2, 0)))) & set(chain(*pools))) < 50
    assert sampled.num_pools is None and count_batches(sampled, 64) is None
    assert sampled.counts[0]["kept"] == 400
