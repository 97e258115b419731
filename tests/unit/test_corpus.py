"""Laws of the pairs that are trained on, validated with and held out."""

import random
import unicodedata

import numpy as np
import pytest

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.augmented_text import with_typos
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import words_of
from mt_cli.corpus.misalignment import features_of
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.reading import read_corpora
from mt_cli.corpus.text_hashes import loose
from mt_cli.errors import CorpusError


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def table(path, pairs):
    return {"file": write(path, [f"{source}\t{target}" for source, target in pairs])}


def corpora_of(tmp_path, **corpus):
    tmp_path.mkdir(exist_ok=True)
    valid = table(tmp_path / "default.tsv", [("a valid text", "its translation")])
    tree = {"source": "xx", "target": "yy", "valid": valid, **corpus}
    config = CorpusConfig.model_validate(tree, strict=False)
    return read_corpora(config, Cache(tmp_path / "cache"))


def some_pairs(first, last):
    return [(f"source {number}", f"target {number}") for number in range(first, last)]


def test_the_held_out_share_depends_on_the_pairs_alone(tmp_path):
    train = table(tmp_path / "a.tsv", some_pairs(0, 500))
    first, second = (corpora_of(tmp_path / run, train=train, valid={"fraction": 0.2}) for run in "ab")
    assert {*first["valid"].pairs, *first["train"].pairs} == {*some_pairs(0, 500)}
    assert first["valid"].pairs == second["valid"].pairs
    assert 75 < len(first["valid"].pairs) < 125, "a share of 0.2 of 500, by the content of each pair"


def test_a_held_out_pair_stays_so_when_a_corpus_grows(tmp_path):
    old, new = some_pairs(0, 400), some_pairs(400, 900)
    rows = {"old": old, "before": [*new, *old], "between": sorted([*old, *new])}

    def held_out(name, fraction):
        train, valid = table(tmp_path / f"{name}.tsv", rows[name]), {"fraction": fraction}
        return {*corpora_of(tmp_path / f"{name}{fraction}", train=train, valid=valid)["valid"].pairs}

    assert held_out("old", 0.2) <= held_out("before", 0.2) == held_out("between", 0.2)
    assert held_out("between", 0.1) < held_out("between", 0.2), "a smaller share is a part of a larger one"


@pytest.mark.parametrize("options", [{"tag": "<bt>"}, {"weight": 5.0}])
def test_only_pairs_that_people_wrote_are_held_out(tmp_path, options):
    """If all sources are alike, from all of them."""
    natural, other = (table(tmp_path / f"{first}.tsv", some_pairs(first, first + 200)) for first in (0, 200))
    corpora = corpora_of(tmp_path / "a", train=[natural, {**other, **options}], valid={"fraction": 0.2})
    assert 20 < len(corpora["valid"].pairs) < 60 and {*corpora["valid"].pairs} < {*some_pairs(0, 200)}
    all_alike = corpora_of(
        tmp_path / "b", train=[{**natural, **options}, {**other, **options}], valid={"fraction": 0.2}
    )
    assert 50 < len(all_alike["valid"].pairs) < 110


def test_held_out_pairs_do_not_depend_on_spelling(tmp_path):
    pairs = [(f"Perché {number} l'età", f"Why {number} age") for number in range(300)]
    other = [(unicodedata.normalize("NFD", one).replace("'", "’").upper(), two) for one, two in pairs]
    held_out = []
    for rows in (pairs, other):
        train, valid = table(tmp_path / "a.tsv", rows), {"fraction": 0.2}
        corpora = corpora_of(tmp_path, train=train, valid=valid)
        held_out.append([target for _, target in corpora["valid"].pairs])
    assert held_out[0] == held_out[1]


def test_duplicates_are_found_in_composed_text(tmp_path):
    text, same, other = "perché no", "perche\u0301 no", "perche no"
    train = [(text, "a"), (same, "a"), (other, "a"), ("held", text), ("x", "y")]
    test = table(tmp_path / "test.tsv", [("t", same)])
    filters = {"identical": False}
    corpora = corpora_of(tmp_path, train=table(tmp_path / "train.tsv", train), test=test, filters=filters)
    assert [source for source, _ in corpora["train"].pairs] == [text, other, "x"]


@pytest.mark.parametrize("duplicates", [True, False])
def test_a_held_out_share_never_leaks(tmp_path, duplicates):
    generator = random.Random(3)
    pairs = [(f"s {generator.randrange(300)}", f"t {generator.randrange(300)}") for _ in range(600)]
    test, extra = ([(f"s {number}", f"t {number + 250}") for number in range(first, first + 20)] for first in (0, 20))
    settings = {
        "train": table(tmp_path / "a.tsv", pairs + pairs[:100]),
        "valid": {"fraction": 0.1},
        "test": table(tmp_path / "t.tsv", test),
        "extra_tests": {"extra": table(tmp_path / "e.tsv", extra)},
        "filters": {"duplicates": duplicates},
    }
    corpora = corpora_of(tmp_path, **settings)
    for name in ("valid", "test", "extra"):
        for side in (0, 1):
            assert not {pair[side] for pair in corpora["train"].pairs} & {pair[side] for pair in corpora[name].pairs}
    assert corpora["train"].counts()["overlap"] > 20
    with_overlap = corpora_of(tmp_path, **settings | {"filters": {"duplicates": duplicates, "overlap": False}})
    assert len(with_overlap["train"]) > len(corpora["train"])
    # Resuming reads the same again, from the cache or, where it was deleted, from the text.
    for cache in (tmp_path, tmp_path / "elsewhere"):
        again = corpora_of(cache, **settings)
        assert all(again[name].pairs == corpora[name].pairs for name in corpora)


def test_a_share_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="`valid`"):
        corpora_of(tmp_path, train=table(tmp_path / "a.tsv", some_pairs(0, 99)), valid={"fraction": 0.0001})


def test_duplicates_are_dropped_by_the_filters_of_each_corpus(tmp_path):
    first = table(tmp_path / "a.tsv", [("a", "b"), ("a", "b"), ("a", "c")])
    second = table(tmp_path / "b.tsv", [("a", "b"), ("d", "e"), ("d", "e")])
    pairs = corpora_of(tmp_path, train=[first, second])["train"].pairs
    assert pairs == [("a", "b"), ("a", "c"), ("d", "e")]
    second["filters"] = {"duplicates": False}
    assert len(corpora_of(tmp_path, train=[first, second])["train"]) == 5


def test_a_pair_of_another_direction_or_tag_is_no_duplicate(tmp_path):
    file = table(tmp_path / "a.tsv", [("Hello", "Hallo"), ("Hello", "Hallo"), ("Yes", "Ja")])
    changes = ({}, {"languages": ["xx", "zz"]}, {"tag": "<polite>"}, {"languages": ["yy", "xx"]})
    train = corpora_of(tmp_path, train=[file | change for change in changes])["train"]
    assert [train.counts(part) for part in train.parts] == [{"kept": 2, "duplicates": 1}] * 4


def test_only_a_sentence_of_the_same_language_overlaps(tmp_path):
    train = [table(tmp_path / "a.tsv", [("one", "Hallo"), ("Hallo", "two")])]
    train += [train[0] | {"languages": languages} for languages in (["zz", "xx"], ["yy-YY", "ww"])]
    corpora = corpora_of(tmp_path, train=train, valid=table(tmp_path / "v.tsv", [("x", "Hallo")]))
    assert corpora["train"].pairs == [("Hallo", "two"), *[("one", "Hallo"), ("Hallo", "two")], ("one", "Hallo")]


def test_marks_are_part_of_words():
    assert words_of("काला कुत्ता") == {"काला", "कुत्ता"} and words_of("Ẹ́ dáa") == words_of("ẹ́ dáa")
    assert features_of(["यह काली बिल्ली", "यह काली"])[2].tolist() == features_of(["a cat", "a"])[2].tolist()
    assert with_typos("कुत्ता", np.random.default_rng(1)) != "कुत्ता"
    urls = Protection(("urls",)).protect("http://a.b/की अब")
    assert urls.restore(f"{urls.text[0]}अब").text == "http://a.b/की अब"


def test_marks_are_part_of_words_in_compared_texts():
    different = [("काल", "कल"), ("ก็กี่", "กก"), ("மொழி", "மழ")]
    assert all(loose(one) != loose(two) for one, two in different)
    assert all(loose(f"«{text}» ❤️…") == loose(text) == text for pair in different for text in pair)
    assert loose("مُدَرِّس") == loose("مدرس") and loose("Déjà-vu!") == loose("DE\u0301JÀ VU")


def test_validation_and_test_sets_are_not_filtered(tmp_path):
    odd = [("same", "same"), ("same", "same"), ("bell\x07", "x")]
    settings = {name: table(tmp_path / f"{name}.tsv", odd) for name in ("valid", "test")}
    corpora = corpora_of(tmp_path, train=table(tmp_path / "a.tsv", some_pairs(0, 9)), **settings)
    assert len(corpora["valid"]) == len(corpora["test"]) == 3


def test_the_cache_is_used_until_the_data_changes(tmp_path):
    settings = {"train": table(tmp_path / "a.tsv", some_pairs(0, 50)), "valid": {"fraction": 0.1}}
    first = corpora_of(tmp_path, **settings)["train"].fingerprint
    (tmp_path / "a.tsv").touch()
    assert corpora_of(tmp_path, **settings)["train"].fingerprint == first
    changed = [
        corpora_of(tmp_path, **settings, filters={"identical": False}),
        corpora_of(tmp_path, **{**settings, "valid": {"fraction": 0.2}}),
        corpora_of(tmp_path, **settings, source="zz"),
    ]
    table(tmp_path / "a.tsv", some_pairs(1, 51))
    changed.append(corpora_of(tmp_path, **settings))
    assert len({first, *(corpora["train"].fingerprint for corpora in changed)}) == 5


def test_a_corpus_that_cannot_be_read_leaves_nothing_behind(tmp_path):
    train = {"file": write(tmp_path / "a.tsv", ["a\tb", "c"])}
    with pytest.raises(CorpusError, match="line 2"):
        corpora_of(tmp_path, train=train, valid={"fraction": 0.1})
    assert not any((tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize(("source", "target"), [("en", "eng"), ("eng_Latn", "en"), ("xx", "xx")])
def test_two_sides_in_one_language_are_refused(tmp_path, source, target):
    train = [{"builtin": "reverse-words"}, {"builtin": "reverse-words", "languages": [source, target]}]
    with pytest.raises(CorpusError, match=rf"^corpus.source, corpus.target: {source} and {target}"):
        corpora_of(tmp_path, source=source, target=target, train=train[0])
    with pytest.raises(CorpusError, match=rf"^corpus.train\[1\].languages: {source} and {target}"):
        corpora_of(tmp_path, train=train)
