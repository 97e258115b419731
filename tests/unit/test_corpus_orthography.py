import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_corpus import corpora_of, table

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import STATUS_CODES
from mt_cli.corpus.orthography import divergence, find_stretches

SHARES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), min_size=1).map(
    lambda counts: {letter: count / sum(counts.values()) for letter, count in counts.items()}
)


@given(SHARES, SHARES)
def test_the_divergence_is_symmetric_between_0_and_1_and_0_for_equal_shares(one, other):
    assert divergence(one, other) == pytest.approx(divergence(other, one))
    assert -1e-12 <= divergence(one, other) <= 1 + 1e-12
    assert divergence(one, one) == 0
    assert divergence(one, {"x": 1.0}) == pytest.approx(1)


MODERN, OLD = "kwaeiosnt", "cuaeiosnq"
FILTERS = {"min_script_share": None, "max_length_ratio": None, "wrong_language": False}


def texts(number, letters, seed):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=12)) for _ in range(number)]


def settings_of(tmp_path, target, valid, **more):
    """A corpus from English with this target, and its validation text."""
    train = table(
        tmp_path / "train.tsv", [(f"sentence number {place} of it", text) for place, text in enumerate(target)]
    )
    other = table(tmp_path / "valid.tsv", [(f"another text, part {place}", text) for place, text in enumerate(valid)])
    return {"source": "en", "target": "shp", "train": [train], "valid": other, "filters": FILTERS} | more


def mixed():
    return [*texts(1000, MODERN, 1), *texts(700, OLD, 2), *texts(550, MODERN, 3), *texts(350, OLD, 4)]


def found_in(tmp_path, target, valid):
    settings = settings_of(tmp_path, target, valid)
    corpora = corpora_of(tmp_path, **settings)
    config = CorpusConfig.model_validate(settings, strict=False)
    return corpora["train"], list(find_stretches(corpora["train"], corpora["valid"], config, [0]))


def test_stretches_in_another_orthography_are_found_and_no_others(tmp_path):
    train, found = found_in(tmp_path, mixed(), texts(400, MODERN, 5))
    assert [(each.first, each.last, each.language) for each in found] == [(1001, 1750, "shp"), (2251, 2600, "shp")]
    assert found[1].rows[0] == 2250 and len(found[1].rows) == 350 and len(train) == 2600
    assert {letter for letter, *_ in found[0].letters} < set("kwcutq")
    letter, here, there = found[0].letters[0]
    assert abs(here - there) > 0.1 and (here < 0.02) == (letter in "kwt")
    assert f"{letter} {here:.1%} instead of {there:.1%}" in found[0].difference


def test_text_in_one_orthography_or_too_little_to_compare_is_not_reported(tmp_path):
    assert found_in(tmp_path, mixed()[:1000], texts(400, MODERN, 5))[1] == []
    (tmp_path / "b").mkdir()
    assert found_in(tmp_path / "b", mixed(), texts(20, MODERN, 5))[1] == []


def test_what_is_normalised_or_repeated_is_no_other_orthography(tmp_path):
    decomposed = [unicodedata.normalize("NFD", text) for text in texts(300, "ếộữàấkwnstʼ", 1)]
    apostrophes = [text.replace("ʼ", "'") for text in texts(300, "ếộữàấkwnstʼ", 2)]
    of_a_form = [f"{word} kakakakaka kakikakikaki" for word in texts(300, "ếộữàấkwnst", 3)]
    lines = [*decomposed, *apostrophes, *of_a_form]
    assert found_in(tmp_path, lines, texts(300, "ếộữàấkwnstʼ", 4))[1] == []


@pytest.mark.parametrize("both_directions", [False, True])
def test_the_filter_drops_them_in_every_direction_and_counts_them(tmp_path, both_directions):
    settings = settings_of(tmp_path, mixed(), texts(400, MODERN, 5), both_directions=both_directions, tag="to_target")
    assert set(corpora_of(tmp_path, **settings)["train"].counts()) == {"kept"}
    settings["filters"] = {**FILTERS, "other_orthography": True}
    train = corpora_of(tmp_path, **settings)["train"]
    for part in train.parts:
        assert train.counts(part) == {"kept": 1500, "other_orthography": 1100}
    kept = {text.split()[-1] for pair in train.pairs for text in pair}
    assert not kept & {*mixed()[1000:1750], *mixed()[2250:]}


def test_rows_that_are_dropped_by_themselves_do_not_count_but_copies_of_rows_do(tmp_path):
    settings = settings_of(tmp_path, mixed(), texts(400, MODERN, 5))
    lines = (tmp_path / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[90:180] = ["\t\n"] * 90
    (tmp_path / "train.tsv").write_text("".join([*lines, *lines[2000:2100]]), encoding="utf-8")
    found = find_lines(tmp_path, settings)
    assert found[0] == (1091, 1590)
    train = corpora_of(tmp_path, **settings | {"filters": {**FILTERS, "other_orthography": True}})["train"]
    assert train.counts()["blank_pair"] == 90
    dropped = {number for number, *_ in train.rows(train.statuses == STATUS_CODES["other_orthography"])}
    assert dropped == {line for first, last in found for line in range(first, last + 1)}


def find_lines(tmp_path, settings):
    corpora = corpora_of(tmp_path, **settings)
    config = CorpusConfig.model_validate(settings, strict=False)
    return [(each.first, each.last) for each in find_stretches(corpora["train"], corpora["valid"], config, [0])]


def test_a_pair_whose_earlier_copy_is_in_a_dropped_stretch_is_kept(tmp_path):
    settings = settings_of(tmp_path, [*texts(80, MODERN, 1), *texts(420, OLD, 2)], texts(400, MODERN, 5))
    lines = (tmp_path / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "more.tsv").write_text("".join(lines[:80]), encoding="utf-8")
    settings["train"].append({"file": str(tmp_path / "more.tsv")})
    train = corpora_of(tmp_path, **settings | {"filters": {**FILTERS, "other_orthography": True}})["train"]
    assert train.counts(train.parts[0]) == {"other_orthography": 500} and train.counts(train.parts[1]) == {"kept": 80}


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5])
def test_what_valid_is_also_written_in_is_no_other_orthography(tmp_path, share):
    number = round(500 * share)
    valid = [*texts(number, OLD, 8), *texts(500 - number, MODERN, 5)]
    assert found_in(tmp_path, mixed(), valid)[1] == []


def test_fewer_than_250_rows_are_not_judged(tmp_path):
    assert found_in(tmp_path, texts(249, OLD, 2), texts(400, MODERN, 5))[1] == []
    (tmp_path / "b").mkdir()
    assert len(found_in(tmp_path / "b", texts(250, OLD, 2), texts(400, MODERN, 5))[1]) == 1


def test_two_samples_of_a_large_alphabet_are_not_unlike(tmp_path):
    syllables = [chr(code) for code in range(0xAC00, 0xAC00 + 11172, 12)]
    assert found_in(tmp_path, texts(500, syllables, 1), texts(90, syllables, 2))[1] == []


def test_with_a_held_out_valid_the_text_of_test_is_compared(tmp_path):
    settings = settings_of(tmp_path, mixed(), texts(400, MODERN, 5))
    settings |= {"test": settings["valid"], "valid": {"fraction": 0.1}}
    settings["filters"] = {**FILTERS, "other_orthography": True}
    corpora = corpora_of(tmp_path, **settings)
    counts = corpora["train"].counts()
    assert counts["kept"] + counts["held_out"] == 1500 and counts["other_orthography"] == 1100
    assert 110 < counts["held_out"] < 190


@pytest.mark.parametrize("other", [{"valid": {"fraction": 0.1}}, {"streaming": True}])
def test_the_filter_needs_text_to_compare_with(tmp_path, other):
    settings = settings_of(tmp_path, mixed(), texts(400, MODERN, 5))
    if "streaming" in other:
        settings["train"][0]["streaming"] = True
    else:
        settings |= other
    settings["filters"] = {"other_orthography": True}
    with pytest.raises(ValueError, match="other_orthography: it needs a `valid` or `test` of other text"):
        CorpusConfig.model_validate(settings, strict=False)
