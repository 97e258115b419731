import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_corpus import corpora_of, table

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.mixed_orthography import divergence, find_stretches

MODERN, OLD = "kwaeiosnt", "cuaeiosnq"


SHARES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1).map(
    lambda counts: {letter: count / sum(counts.values()) for letter, count in counts.items()}
)


@given(SHARES, SHARES)
def test_the_divergence_is_symmetric_between_0_and_1_and_0_for_equal_shares(shares, other_shares):
    assert divergence(shares, other_shares) == pytest.approx(divergence(other_shares, shares))
    assert -1e-12 <= divergence(shares, other_shares) <= 1 + 1e-12
    assert divergence(shares, shares) == 0
    assert divergence(shares, {"x": 1.0}) == pytest.approx(1)


FILTERS = {"min_script_share": None, "max_length_ratio": None, "wrong_language": False}
DROPPING = FILTERS | {"other_orthography": True}


def texts(number, letters, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=12)) for _ in range(number)]


def mixed():
    return [*texts(1000, MODERN, 1), *texts(700, OLD, 2), *texts(550, MODERN, 3), *texts(350, OLD, 4)]


VALID = texts(400, MODERN, 5)


def settings_of(folder, target, valid=VALID, **more):
    """A corpus from English with this target, and its validation text."""
    train = table(folder / "train.tsv", [(f"sentence number {place} of it", text) for place, text in enumerate(target)])
    held_out = table(folder / "valid.tsv", [(f"another text, part {place}", text) for place, text in enumerate(valid)])
    return {"source": "en", "target": "shp", "train": [train], "valid": held_out, "filters": FILTERS} | more


def stretches_in(folder, settings):
    corpora = corpora_of(folder, **settings)
    config = CorpusConfig.model_validate(settings, strict=False)
    return list(find_stretches(corpora["train"], corpora["valid"], config, [0]))


def test_stretches_in_another_orthography_are_found_and_no_others(tmp_path):
    stretches = stretches_in(tmp_path, settings_of(tmp_path, mixed()))
    assert [(each.first, each.last, each.language) for each in stretches] == [(1001, 1750, "shp"), (2251, 2600, "shp")]
    assert stretches[1].rows[0] == 2250 and len(stretches[1].rows) == 350
    assert {letter for letter, *_ in stretches[0].letters} < set("kwcutq")
    letter, here, there = stretches[0].letters[0]
    assert abs(here - there) > 0.1 and (here < 0.02) == (letter in "kwt")
    assert f"{letter} {here:.1%} instead of {there:.1%}" in stretches[0].difference


DECOMPOSED = [unicodedata.normalize("NFD", text) for text in texts(300, "ếộữàấkwnstʼ", 1)]
APOSTROPHES = [text.replace("ʼ", "'") for text in texts(300, "ếộữàấkwnstʼ", 2)]
OF_A_FORM = [f"{word} kakakakaka kakikakikaki" for word in texts(300, "ếộữàấkwnst", 3)]
SYLLABLES = [chr(code) for code in range(0xAC00, 0xAC00 + 11172, 12)]


@pytest.mark.parametrize(
    ("target", "valid", "number"),
    [
        (mixed()[:1000], VALID, 0),
        (mixed(), VALID[:20], 0),  # There is too little to compare.
        (texts(249, OLD, 2), VALID, 0),
        (texts(250, OLD, 2), VALID, 1),
        ([*DECOMPOSED, *APOSTROPHES, *OF_A_FORM], texts(300, "ếộữàấkwnstʼ", 4), 0),  # It is normalised, or repeated.
        (texts(500, SYLLABLES, 1), texts(90, SYLLABLES, 2), 0),  # Two samples of a large alphabet.
        *((mixed(), [*texts(old, OLD, 8), *texts(500 - old, MODERN, 5)], 0) for old in (10, 50, 150, 250)),
    ],
)
def test_only_enough_text_that_valid_is_never_written_in_is_in_another_orthography(tmp_path, target, valid, number):
    assert len(stretches_in(tmp_path, settings_of(tmp_path, target, valid))) == number


@pytest.mark.parametrize("both_directions", [False, True])
def test_the_filter_drops_them_in_every_direction_and_counts_them(tmp_path, both_directions):
    settings = settings_of(tmp_path, mixed(), both_directions=both_directions, tag="to_target")
    assert set(corpora_of(tmp_path, **settings)["train"].counts()) == {"kept"}
    train = corpora_of(tmp_path, **settings | {"filters": DROPPING})["train"]
    for part in train.parts:
        assert train.counts(part) == {"kept": 1500, "other_orthography": 1100}
    kept = {text.split()[-1] for pair in train.pairs for text in pair}
    assert not kept & {*mixed()[1000:1750], *mixed()[2250:]}


def test_with_a_held_out_valid_the_text_of_test_is_compared(tmp_path):
    settings = settings_of(tmp_path, mixed(), filters=DROPPING)
    settings |= {"test": settings["valid"], "valid": {"fraction": 0.1}}
    counts = corpora_of(tmp_path, **settings)["train"].counts()
    assert counts["kept"] + counts["held_out"] == 1500 and counts["other_orthography"] == 1100
    assert 110 < counts["held_out"] < 190


def test_the_filter_needs_text_to_compare_with(tmp_path):
    settings = settings_of(tmp_path, mixed(), filters=DROPPING)
    streaming = [settings["train"][0] | {"streaming": True}]
    for changes in ({"valid": {"fraction": 0.1}}, {"train": streaming}):
        with pytest.raises(ValueError, match="other_orthography: it needs a `valid` or `test`"):
            CorpusConfig.model_validate(settings | changes, strict=False)
