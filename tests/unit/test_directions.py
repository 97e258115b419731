import pytest

from mt_cli.config.loading import parse_config
from mt_cli.config.tags import Tagging, direction_of
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.reading import read_corpora
from mt_cli.corpus.rows import tagged_text
from mt_cli.data.prepare import notes_on_tags
from mt_cli.errors import ConfigError, InputError
from mt_cli.evaluation.scores import (
    Scorer,
    best_metric_of,
    metric_id_of,
    rows_by_direction,
    score_directions,
    scorer_of,
)


def config(**corpus):
    train = [{"file": "gn.tsv", "name": "own"}, {"file": "shp.tsv", "languages": ["es", "shp"], "weight": 2.0}]
    options = {"source": "es", "target": "gn", "train": train, "valid": {"file": "dev.tsv"}, **corpus}
    return parse_config({"name": "x", "corpus": options}, "test")


def directions(sources):
    return [("-".join(source.languages or ("es", "gn")), source.tag, source.reverse) for source in sources]


def test_both_directions_are_one_source_for_each():
    options = {"tag": "to_target", "test": {"file": "t.tsv"}, "extra_tests": {"e": {"file": "e.tsv"}}}
    both = config(both_directions=True, **options)
    assert both == parse_config(both.model_dump(mode="json"), "again")
    corpus = both.corpus
    forward = [("es-gn", "<2gn>", False), ("es-shp", "<2shp>", False)]
    assert directions(corpus.train) == [*forward, ("gn-es", "<2es>", True), ("shp-es", "<2es>", True)]
    assert [source.name for source in corpus.train] == ["own", None, "own reversed", None]
    assert [source.weight for source in corpus.train] == [None, 2.0, None, 2.0]
    for group in (corpus.valid, corpus.test, corpus.extra_tests["e"]):
        assert directions(group) == [("es-gn", "<2gn>", False), ("gn-es", "<2es>", True)]
    assert corpus.once("train") == [0, 1] and corpus.once("valid") == [0], "a text is read once"


def test_a_tag_of_its_own_goes_before_that_of_the_target():
    train = [{"file": "a.tsv", "tag": "<bt>"}, {"file": "b.tsv", "tag": "to_target"}, {"file": "c.tsv"}]
    train.append({"file": "d.tsv", "tag": "<2gn>"})
    tags = ["<bt><2gn>", "<2gn>", "<2gn>", "<2gn>"]
    assert [source.tag for source in config(train=train).corpus.train] == ["<bt>", "<2gn>", None, "<2gn>"]
    assert [source.tag for source in config(train=train, tag="to_target").corpus.train] == tags
    both = config(train=train, tag="to_target", both_directions=True).corpus
    assert [source.tag for source in both.train] == [*tags, "<bt><2es>", "<2es>", "<2es>", "<2es>"]
    assert both.tagging.into("es") == "<2es>" and both.tagging.default == "<2gn>"


def test_the_direction_of_a_tag_has_its_target_and_another_source():
    tagging, languages = Tagging(("<2en>", "<2de>", "<2fr>", "<de>fr>", "<bt>")), ("en", "de")
    tags = [None, "<2de>", "<2en>", "<2fr>", "<de>fr>", "<bt>"]
    expected = [languages, languages, ("de", "en"), ("en", "fr"), ("de", "fr"), languages]
    assert [tagging.direction(tag, languages) for tag in tags] == expected


def test_the_languages_of_tags_are_in_the_order_of_the_config():
    """So that all processes describe a model with the same text, by which `mt translate` continues an output."""
    targets = ["gn", "it", "fr", "de", "ru", "ja"]
    train = [{"file": f"{target}.tsv", "languages": ["es", target], "tag": f"<{target}>"} for target in targets]
    assert [*config(train=train, tag=None).corpus.tagging.languages.values()] == targets


def test_a_tag_of_a_direction_names_both_languages():
    corpus = config(both_directions=True, tag="direction").corpus
    assert [source.tag for source in corpus.train] == ["<es>gn>", "<es>shp>", "<gn>es>", "<shp>es>"]
    tagging = corpus.tagging
    assert tagging.targets == ["gn", "shp", "es"] and tagging.default == "<es>gn>"
    assert (tagging.into("shp"), tagging.into("es"), tagging.into("it")) == ("<es>shp>", "<gn>es>", None)
    assert [direction_of(tag) for tag in ("<es>gn>", "<2gn>", ">>gn<<", "<es>>gn>")] == [("es", "gn"), None, None, None]


def test_a_held_out_share_of_both_directions_never_leaks(tmp_path):
    lines = [f"uno {n}\tpetei {n}" for n in range(200)]
    (tmp_path / "gn.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train = {"file": str(tmp_path / "gn.tsv"), "filters": {"wrong_language": False}}
    corpus = config(train=train, valid={"fraction": 0.2}, both_directions=True, tag="to_target").corpus
    corpora = read_corpora(corpus, Cache(tmp_path / "cache"))
    known, learned = (
        {text for pair in corpora[name].pairs for text in (pair[0].partition(" ")[2], pair[1])}
        for name in ("valid", "train")
    )
    assert known and learned and not known & learned
    languages = corpora["valid"].languages
    for (source, target), both in zip(corpora["valid"].pairs, languages, strict=True):
        assert both == (("es", "gn") if source.startswith("<2gn> uno") else ("gn", "es"))
        assert target.startswith("petei" if both == ("es", "gn") else "uno")


def test_wrong_values_and_directions_without_a_tag_are_refused():
    own = {"both_directions": True, "train": {"file": "a.tsv", "tag": "<x>"}, "valid": {"fraction": 0.1}}
    for corpus in ({"both_directions": True}, {"both_directions": "both"}, {"tag": "gn"}, {"train": 3}, own):
        with pytest.raises(ConfigError, match="corpus"):
            config(**corpus)
    with pytest.raises(ConfigError, match="tag"):
        config(**own, tag="direction")


def test_scores_of_directions_are_those_of_their_pairs_alone():
    languages = [("es", "gn"), ("gn", "es"), ("es", "gn"), ("es", "ja")]
    hypotheses, references = ["a b c d", "una casa roja", "x y", "猫がいる"], ["a b c e", "una casa", "x y", "犬がいる"]
    scorer = Scorer.of("gn")
    mean, scores = score_directions(scorer, languages, (hypotheses, references), Scorer.score)
    assert list(scores) == ["es-gn", "gn-es", "es-ja"]
    assert scores["es-gn"] == scorer.score([hypotheses[0], hypotheses[2]], [references[0], references[2]])
    assert scores["es-ja"] == Scorer.of("ja").score(hypotheses[3:], references[3:])
    assert mean["chrf"].score == pytest.approx(sum(each["chrf"].score for each in scores.values()) / 3, abs=1e-4)
    assert mean["chrf"].signature.startswith("mean:3|") and "wer" not in mean
    assert not rows_by_direction(languages[:1])
    assert score_directions(scorer, [], (["a"], ["a"]), Scorer.score) == (scorer.score(["a"], ["a"]), {})


def test_the_best_checkpoint_of_several_directions_has_the_best_mean():
    several, one = config(both_directions=True, tag="to_target"), config()
    assert best_metric_of(several, scorer_of(several, "valid")) == "chrf"
    assert metric_id_of(several, scorer_of(several, "valid")) == "chrf/mean"
    assert metric_id_of(one, scorer_of(one, "valid")) == "bleu/13a"


TAGGED = [{"file": f"{name}.tsv", "tag": f"<{name}>"} for name in "ab"]
INTO_ONE, INTO_TWO = (
    [{"file": f"{one}.tsv", "languages": [one, two]} for one, two in pairs]
    for pairs in ((("de", "en"), ("fr", "en")), (("de", "en"), ("en", "fr")))
)
SHARE = {"valid": {"fraction": 0.1}}


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ({}, (None, False)),
        ({"tag": "to_target", "both_directions": True}, ("<2gn>", True)),
        # Back-translated text beside real text: sentences have no tag.
        ({"train": [{"file": "a.tsv"}, TAGGED[1]]} | SHARE, (None, False)),
        # The subject of a text: that of the evaluation sets.
        ({"train": TAGGED, "valid": {"file": "v.tsv", "tag": "<b>"}}, ("<b>", True)),
        ({"train": TAGGED} | SHARE, (None, True)),
        ({"train": TAGGED[:1], "valid": TAGGED[0], "test": {"file": "t.tsv"}}, (None, True)),
        # From several languages into one, or into several.
        ({"source": "mul", "target": "en", "tag": "to_target", "train": INTO_ONE} | SHARE, ("<2en>", True)),
        ({"source": "mul", "target": "mul", "tag": "to_target", "train": INTO_TWO} | SHARE, (None, True)),
    ],
)
def test_the_default_tag_is_that_of_the_evaluation_sets(corpus, expected):
    tagging = config(**corpus).corpus.tagging
    assert (tagging.default, tagging.is_required) == expected


def test_tags_of_any_name_may_stand_for_target_languages():
    train = [{"file": "a.tsv", "tag": "<to_gn>"}, {"file": "b.tsv", "languages": ["gn", "es"], "tag": "<to_es>"}]
    tagging = config(train=train, **SHARE).corpus.tagging
    assert (tagging.targets, tagging.into("es"), tagging.default) == (["gn", "es"], "<to_es>", "<to_gn>")
    assert config(train=TAGGED, **SHARE).corpus.tagging.targets == []
    marian = Tagging((">>deu<<", ">>fra<<"))
    assert (marian.targets, marian.into("fra"), marian.into("es")) == (["deu", "fra"], ">>fra<<", None)


def test_an_evaluation_set_without_the_tags_of_training_is_named():
    sources = {name: {"file": f"{name}.tsv", "tag": "<2gn>"} for name in ("train", "valid")}
    (note,) = notes_on_tags(config(**sources, test={"file": "t.tsv"}))
    assert note.startswith("corpus.test ")
    assert not notes_on_tags(config(tag="to_target")) and not notes_on_tags(config())


def test_a_sentence_that_needs_a_tag_is_refused_without_one():
    tagging = Tagging(("<2de>", "<2fr>"), None, True)
    with pytest.raises(InputError, match=r"de, fr \(--to\)"):
        tagged_text("one", tagging)
    assert tagged_text("one", tagging, "<2fr>") == tagged_text("<2fr> one", tagging, "<2de>") == "<2fr> one"
    assert tagged_text("", tagging) == "" and tagged_text("one", tagging.of_corpora) == "one"
    with pytest.raises(InputError, match="<2de>, <2fr>"):
        tagged_text("one", tagging, "<2es>")
    with pytest.raises(InputError, match=r"<a>, <b> \(--to\)"):
        tagged_text("one", Tagging(("<a>", "<b>"), None, True))
