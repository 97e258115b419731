"""`preset: auto` on corpora: the facts that it looks at, and runs with it."""

import re

import numpy as np
import pytest
import yaml

from mt_cli.batching.batches import count_batches
from mt_cli.config.loading import flat, load_config, parse_config
from mt_cli.config.sections import may_change
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import scripts_in, scripts_of
from mt_cli.data.prepare import read
from mt_cli.errors import CorpusError
from mt_cli.features.recipes.auto import PresetContext, resolve_preset
from mt_cli.features.recipes.choices import choose
from mt_cli.features.recipes.facts import _WORD, _diversity, find_facts
from mt_cli.features.training_pairs import training_pairs
from mt_cli.training.steps import count_steps

VALID = {"builtin": "reverse-words", "split": "valid"}


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A function that makes a config with `preset: auto` for the text of a table."""
    monkeypatch.chdir(tmp_path)

    def make(text, languages=("en", "it"), valid=VALID, train=(), training=(), **corpus):
        (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
        corpus |= {"train": {"file": "p.tsv", **dict(train)}, "valid": valid}
        corpus |= dict(zip(("source", "target"), languages, strict=True))
        tree = {"name": "t", "corpus": corpus, "preset": "auto", "training": {"device": "cpu", **dict(training)}}
        return parse_config(tree, "f.yaml")

    return make


@pytest.fixture
def facts(config, tmp_path):
    """A function that finds the facts of such a config."""

    def find(text, num_corpora=None, **options):
        made = config(text, **options)
        return find_facts(made, read(made, Cache(tmp_path / "cache")), num_corpora)

    return find


def test_facts_are_counted_after_cleaning(facts):
    found = facts("a b\tx y z\na b\tx y z\nc\t今日は\n \tq\n", languages=("en", "xx"))
    assert (found.num_pairs, found.num_target_words, found.num_distinct_words) == (2, 5, 8)
    assert found.scripts == ({"Latin"}, {"Latin", "Han", "Hiragana"})


def test_lines_in_capitals_are_translated_in_small_letters_if_there_are_few_and_the_source_has_capitals(facts):
    small, large = (f"{word * 2} {word * 3} {word * 4}\t{word}\n" for word in ("ab", "CD"))
    for text, is_in_capitals in ((small * 2 + large, False), (small + large, True)):
        options = {"filters": {"duplicates": False}}
        assert facts(text, **options).is_in_capitals == is_in_capitals
    assert chosen(facts(small)) == ("lower", "lines in capitals are other words to a model")
    assert chosen(facts(large)) is None and chosen(facts("今日は晴れです\tit rains\n", languages=("ja", "en"))) is None


def chosen(facts):
    return choose(facts).get("decoding", {}).get("capitals")


def test_the_diversity_is_distinct_2_of_train_in_the_less_diverse_language(facts):
    filters = {"overlap": False, "duplicates": False}
    found = facts("a b a b\ta b c d\na b c d\te f g h\n", valid={"file": "p.tsv"}, filters=filters)
    assert found.diversity == pytest.approx(4 / 6)


def test_the_diversity_depends_on_the_text_and_not_on_its_size():
    random = np.random.default_rng(1)
    few, many = ([" ".join(map(str, random.zipf(1.3, 10))) for _ in range(number)] for number in (1_000, 20_000))
    assert _diversity(many) == pytest.approx(_diversity(few), rel=0.05)
    # Of single words, different words count.
    assert _diversity(["one", "two", "one two three"] + ["one", "two"] * 100) < 0.05
    assert _diversity([f"w{number}" for number in range(300)]) == 1.0


@pytest.mark.parametrize("times", [1, 3])
def test_the_length_of_sentences_is_compared_with_valid(facts, tmp_path, times):
    lines = [f"en{n:03} words\tit{n:03} words" for n in range(50)]
    repeated = ("\t".join(" ".join([side] * times) for side in line.split("\t")) for line in lines)
    (tmp_path / "valid.tsv").write_text("".join(f"{line}\n" for line in repeated), encoding="utf-8")
    found = facts("\n".join(lines), valid={"file": "valid.tsv"}, filters={"overlap": False})
    assert found.length_ratio == pytest.approx((12 * times - 1) / 11)


def test_scripts_of_real_sentences_are_those_of_their_languages(texts):
    for language, lines in texts.items():
        assert scripts_in(" ".join(lines)) <= set(scripts_of(language)), language


def test_words_of_scripts_without_spaces_are_about_as_many_as_in_english():
    sentences = {
        "th": "ฉันชอบอ่านหนังสือในสวนสาธารณะทุกเย็นกับเพื่อนของฉัน",
        "my": "ကျွန်တော်သည်ညနေတိုင်းသူငယ်ချင်းနှင့်အတူပန်းခြံတွင်စာအုပ်ဖတ်ရတာကြိုက်သည်",
        "zh": "我喜欢每天晚上和朋友一起在公园里看书",
        "en": "I like to read books in the park every evening with my friend",
    }
    for language, sentence in sentences.items():
        assert 7 <= len(_WORD.findall(sentence)) <= 17, language


def test_replayed_pairs_do_not_count_as_pairs_of_the_run(config, tmp_path):
    for name, number in (("new", 20), ("old", 500)):
        lines = (f"{name} {n} a\t{name} {n} b\n" for n in range(number))
        (tmp_path / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    tree = config("").model_dump(mode="json", exclude_unset=True)
    tree["corpus"]["train"] = [{"file": "new.tsv"}, {"file": "old.tsv", "weight": 0.01}]
    made = parse_config(tree, "f.yaml")
    corpora = read(made, Cache(tmp_path / "cache"))
    found = find_facts(made, corpora, num_corpora=1)
    assert (found.num_pairs, found.num_target_words, found.num_replayed) == (20, 60, 500)
    assert find_facts(made, corpora).num_pairs == 520


def test_a_preset_counts_the_text_of_both_directions_once(facts):
    text = "".join(f"la casa {n} es muy grande\toga {n} tuicha\n" for n in range(900))
    options = {"languages": ("es", "gn"), "tag": "to_target", "valid": {"fraction": 0.1}}
    one, both = (facts(text, both_directions=value, **options) for value in (False, True))
    assert both.num_pairs < 1.1 * one.num_pairs and both.num_replayed == 0
    assert [(each.num_directions, each.num_language_pairs) for each in (one, both)] == [(1, 1), (2, 1)]


def test_mixed_spellings_are_normalised_and_others_are_not(config, tmp_path):
    text = "".join(f"casa {number}\tjach 'a uta {number}\n" for number in range(200))
    text += "".join(f"otra {number}\tjach’a uta {number}\n" for number in range(30))
    for content, expected in (
        (text, ("apostrophes", "joined_apostrophes")),
        (text.replace(" '", "'").replace("’", "'"), ()),
    ):
        made = config(content, languages=("es", "ay"), valid={"fraction": 0.1})
        resolved, _ = resolve_preset(made, Cache(tmp_path / "cache"))
        assert resolved.tokenizer.normalize == expected


def test_a_stream_trains_for_a_number_of_steps(config, tmp_path):
    stream = {"streaming": True}
    made = config("a b\tx y z\nc\td\n", train=stream, valid={"file": "p.tsv"})
    resolved, data = resolve_preset(made, Cache(tmp_path / "cache"))
    assert data is None and resolved.training.max_steps and resolved.training.max_epochs is None
    with pytest.raises(CorpusError, match=r"corpus.train: the corpus is empty"):
        resolve_preset(config("\t\n", train=stream), Cache(tmp_path / "cache"))


def test_the_plan_has_the_number_of_updates_that_the_run_has(config, tmp_path, capsys):
    words = [f"w{n % 7} x{n % 11} " * (1 + n % 13) + str(n) for n in range(300)]
    made = config("".join(f"{word}\t{word.upper()}\n" for word in words), valid={"fraction": 0.1})
    resolved, data = resolve_preset(made, Cache(tmp_path / "cache"))
    num_batches = count_batches(training_pairs(data, resolved), resolved.training.tokens_per_batch)
    num_steps = count_steps(resolved.training, 1, num_batches, resolved.training.max_epochs)
    assert f"max_epochs {resolved.training.max_epochs} ({num_steps:,} updates of" in capsys.readouterr().err


def test_a_run_that_resumes_with_other_text_keeps_what_may_not_change(config, tmp_path):
    few, many = ("".join(f"a {n} b {n % 7}\tA {n} B\n" for n in range(number)) for number in (60, 3_000))

    def resolved(text, **context):
        made = config(text, valid={"fraction": 0.1})
        return flat(resolve_preset(made, Cache(tmp_path / "cache"), PresetContext(**context))[0])

    before, fresh = resolved(few), resolved(many)
    previous, _ = resolve_preset(config(few, valid={"fraction": 0.1}), Cache(tmp_path / "cache"))
    resumed = resolved(many, previous=previous)
    fixed = [key for key in before if not may_change(key)]
    assert [key for key in fixed if resumed[key] != before[key]] == []
    assert "tokenizer.vocab_size" in [key for key in fixed if fresh[key] != before[key]]


@pytest.fixture
def auto(tiny_tree, corpus, tmp_path, monkeypatch):
    """A config file with `preset: auto`, of two epochs in small batches of 120 pairs, trained in fp32."""
    for module in ("machine.devices", "training.optimizer"):
        monkeypatch.setattr(f"mt_cli.{module}.has_fast_bf16", lambda device: False)
    for side in ("en", "xx"):
        lines = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)[:120]
        (tmp_path / f"train.{side}").write_text("".join(lines), encoding="utf-8")
    del tiny_tree["model"], tiny_tree["corpus"]["test"]
    tiny_tree["corpus"]["train"] = {"files": ["train.en", "train.xx"]}
    tiny_tree |= {"preset": "auto", "decoding": {"beam_size": 1, "max_length": 8}}
    tiny_tree["training"] = {"max_epochs": 2, "batch_tokens": 400, "log_every_steps": 1, "device": "cpu"}
    tiny_tree["training"]["num_pictures"] = 0
    (tmp_path / "auto.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return "auto.yaml"


def test_a_run_of_preset_auto_says_what_it_chose_and_has_plain_values(mt, auto, tmp_path):
    status, _, err = mt("train", "--config", auto)
    assert status == 0, err
    assert re.search(r"preset auto: 1\d\d pairs", err) and "\n  of the config  training.max_epochs 2" in err
    path = tmp_path / "runs/tiny/config.yaml"
    config = load_config(path)
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["preset"] is None
    assert (config.tokenizer.algorithm, config.tokenizer.shared, config.model.d_model) == ("bpe", True, 128)
    assert (config.training.max_epochs, config.training.batch_tokens) == (2, 400)
    status, _, err = mt("train", "--config", "runs/tiny/config.yaml")
    assert (status, "preset" in err, "This run is finished" in err) == (0, False, True)


def test_a_run_of_preset_auto_resumes_with_the_values_it_began_with(mt, auto, tmp_path, assert_same_run):
    common = ("train", "--config", auto, "--set", "training.schedule=constant")
    assert mt(*common)[0] == 0
    for name, stopped_by in (("epochs", "training.max_epochs=1"), ("minutes", "training.max_minutes=0.001")):
        assert mt(*common, "--set", f"name={name}", "--set", stopped_by)[0] == 0
        status, _, err = mt(*common, "--set", f"name={name}")
        assert status == 0, err
        assert "Resuming from step" in err and "preset" not in err
        assert_same_run(tmp_path / "runs" / name, tmp_path / "runs/tiny")


def test_every_command_with_a_config_reads_preset_auto(mt, auto):
    for command in (("tokenize",), ("data", "check"), ("data", "show")):
        status, out, err = mt(*command, "--config", auto)
        assert status == 0, err
        # Pairs are shown without the values that their preset stands for.
        assert ("preset auto: 1" in err) == (command != ("data", "show"))
        assert "preset" not in out
