import math
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.batching.batches import count_batches
from mt_cli.config import presets
from mt_cli.config.loading import flat, parse_config, with_values
from mt_cli.config.sections import may_change
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import scripts_in
from mt_cli.data.prepare import read
from mt_cli.errors import ConfigError, CorpusError
from mt_cli.features.exchange.huggingface import unsupported
from mt_cli.features.recipes.auto import (
    Epoch,
    _kept,
    choose,
    describe,
    expectation,
    level_of,
    resolve_preset,
    values_of,
)
from mt_cli.features.recipes.facts import _WORD, Facts, _diversity, find_facts
from mt_cli.features.training_pairs import training_pairs
from mt_cli.training.steps import count_steps

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
LATIN, GREEK, HAN = frozenset({"Latin"}), frozenset({"Greek"}), frozenset({"Han"})
FACTS = Facts(5_000, 60_000.0, 9_000, (LATIN, LATIN), "cpu", None)
AUTO = parse_config({"name": "t", "corpus": CORPUS, "preset": "auto"}, "f.yaml")
EPOCH = Epoch(40, TrainingConfig(batch_tokens=3072))


def tree(preset, **sections):
    return {"name": "t", "corpus": CORPUS, "preset": preset, **sections}


def chosen(facts, **sections):
    """The values that auto chooses, by dotted key, in a config with these sections."""
    epoch = None if facts.num_pairs is None else EPOCH
    return flat(with_values(parse_config(tree("auto", **sections), "f.yaml"), values_of(choose(facts, epoch))))


def test_values_of_the_config_that_do_not_fit_what_is_chosen_are_an_error_that_names_them():
    with pytest.raises(ConfigError, match=r"^preset auto: model.tie_embeddings: all needs one vocabulary"):
        chosen(FACTS, model={"tie_embeddings": "all"}, tokenizer={"shared": False})


def test_the_more_text_the_larger_vocabulary_and_model_and_the_less_regularisation():
    sizes = [
        replace(FACTS, num_target_words=10.0**power, device="gpu", num_distinct_words=10**6) for power in range(3, 10)
    ]
    keys = ("tokenizer.vocab_size", "model.d_model", "model.num_encoder_layers", "model.num_heads")
    for small, large in pairwise(map(chosen, sizes)):
        assert all(small[key] <= large[key] for key in keys)
        assert small["model.dropout"] >= large["model.dropout"]
        assert small["training.label_smoothing"] >= large["training.label_smoothing"]
        assert small["training.batch_tokens"] <= large["training.batch_tokens"]


@pytest.mark.parametrize(
    ("num_words", "smallest", "largest"),
    [(12e3, 500, 1000), (3e4, 1000, 8000), (61e3, 8000, 8000), (34e4, 4000, 10_000), (2e7, 32000, 32000)],
)
def test_the_vocabulary_follows_the_literature(num_words, smallest, largest):
    """Sennrich and Zhang 2019; Gowda and May 2020; for 61,000 and 340,000 words, `docs/recipes.md`."""
    facts = replace(FACTS, num_target_words=num_words, num_distinct_words=10**6, device="gpu")
    found = chosen(facts)["tokenizer.vocab_size"]
    assert smallest <= found <= largest * 1.05


FACTS_OF_ANY_CORPUS = st.builds(
    lambda size, *rest: Facts(*size, *rest),
    st.tuples(st.integers(1, 10**9), st.floats(0, 1e12)) | st.just((None, math.inf)),
    st.integers(0, 10**7),
    st.tuples(*[st.sampled_from([LATIN, GREEK, frozenset()])] * 2),
    st.sampled_from(["cpu", "gpu"]),
    st.none() | st.floats(0.01, 1e5),
    st.just(()),
    st.floats(0, 1),
)


@given(FACTS_OF_ANY_CORPUS, st.integers(0, 10**6))
def test_any_corpus_gets_values_that_fit_together_and_a_reason_for_each(facts, num_batches):
    choices = choose(facts, None if facts.num_pairs is None else Epoch(num_batches, TrainingConfig()))
    config = with_values(AUTO, values_of(choices))
    assert all(choice.why for chosen in choices.values() for choice in chosen.values())
    lines = list(describe(facts, choices, AUTO, config))
    assert "of the config" not in "".join(lines)
    for key, value in flat(config).items():
        if (
            any(key == f"{section}.{name}" for section, chosen in choices.items() for name in chosen)
            and value is not None
        ):
            shown = str(value).lower() if isinstance(value, bool) else value
            assert any(f"{key.partition('.')[2]} {shown}" in line for line in lines), key


@given(FACTS_OF_ANY_CORPUS)
def test_options_that_may_change_on_resuming_depend_on_the_corpus_and_the_model_alone(facts):
    here = chosen(facts)
    there = chosen(replace(facts, device="gpu", max_minutes=None, d_model=here["model.d_model"]))
    assert {key for key in here if here[key] != there[key] and may_change(key)} == set()


def test_a_cpu_and_little_time_give_a_smaller_model():
    large = replace(FACTS, num_target_words=3e7, device="gpu")
    widths = [
        chosen(facts)["model.d_model"]
        for facts in (large, replace(large, device="cpu"), replace(large, device="cpu", max_minutes=5.0))
    ]
    assert widths == [512, 128, 128]


def test_on_a_cpu_a_run_is_planned_for_forty_minutes_a_direction_if_the_config_has_no_limit():
    many = replace(FACTS, num_target_words=2.6e6, num_distinct_words=10**6)
    epoch = Epoch(900, TrainingConfig(batch_tokens=4096))
    on_gpu, limited = replace(many, device="gpu"), replace(many, max_minutes=400.0)

    def planned(facts):
        choices = choose(facts, epoch)
        num_tokens = choices["training"]["max_epochs"].value * epoch.num_tokens
        width = choices["model"]["d_model"].value
        speed = presets.TOKENS_PER_MINUTE["cpu"]["tiny" if width == 128 else "small"]
        return width, num_tokens / speed

    width, minutes = planned(many)
    assert width == 128 and 20 < minutes < 40
    assert planned(on_gpu) == planned(limited) and planned(on_gpu)[0] == 256 and planned(on_gpu)[1] > 200
    assert planned(replace(many, num_directions=2))[1] == pytest.approx(2 * minutes, rel=0.1)
    stream = replace(many, num_pairs=None, num_target_words=math.inf)
    num_tokens = choose(stream)["training"]["max_steps"].value * presets.PRESETS["tiny"]["training"]["batch_tokens"]
    assert num_tokens == pytest.approx(26.7 * presets.TOKENS_PER_MINUTE["cpu"]["tiny"], rel=0.01)
    # Resumed on a GPU, it keeps its model and its length.
    assert planned(replace(on_gpu, d_model=128)) == (width, minutes)


def test_a_model_smaller_than_the_pairs_allow_has_little_dropout():
    many = replace(FACTS, num_target_words=2.6e6)
    for facts in (many, replace(many, num_target_words=2e7), replace(many, diversity=presets.DIVERSE)):
        assert chosen(facts)["model.dropout"] == 0.1
        assert chosen(replace(facts, num_distinct_words=10**6))["tokenizer.vocab_size"] <= 16_000
    assert chosen(replace(many, device="gpu"))["model.dropout"] == 0.3


def test_a_model_smaller_than_the_pairs_allow_is_announced():
    many = replace(FACTS, num_target_words=50e6, device="gpu")
    assert "good translations" in expectation(many)
    on_cpu = replace(many, device="cpu", max_minutes=1e6)
    assert expectation(on_cpu) == "worse translations than these pairs allow: larger models need a GPU."
    on_cpu = replace(many, device="cpu")
    assert "larger models need more than 40 minutes" in expectation(on_cpu)
    assert "larger models need more than 1 minutes" in expectation(replace(many, max_minutes=1.0))


@pytest.mark.parametrize("num_words", [1e6, 5e6, 5e7])
def test_the_minutes_named_for_a_larger_model_give_one(num_words):
    facts = replace(FACTS, num_target_words=num_words)
    minutes = re.search(r"training.max_minutes: (\d+)", expectation(facts))
    assert minutes and chosen(facts)["model.d_model"] == 128
    assert chosen(replace(facts, max_minutes=float(minutes[1])))["model.d_model"] > 128


def test_a_child_has_the_recipe_of_its_parents_size():
    large, small = replace(FACTS, num_target_words=1e6, device="gpu"), replace(FACTS, device="gpu")
    rates = [chosen(replace(facts, d_model=128))["training.learning_rate"] for facts in (large, small)]
    assert rates == [8e-3, 8e-3]
    # A larger model than the level's is not trained for less time.
    assert chosen(replace(small, d_model=512))["training.max_epochs"] == chosen(small)["training.max_epochs"]
    assert expectation(replace(small, d_model=1024)) == expectation(small)


def test_values_are_shown_as_in_a_config():
    config = parse_config(tree("auto", training={"max_steps": 9}), "f.yaml")
    choices = choose(FACTS, EPOCH)
    shown = "\n".join(describe(FACTS, choices, config, with_values(config, values_of(choices))))
    assert "training.max_epochs null" in shown
    assert "shared true" in shown
    assert not {"None", "True", "False"} & set(re.findall(r"\w+", shown))


def test_diverse_text_gets_less_dropout_a_smaller_vocabulary_and_another_metric():
    plain, diverse = chosen(FACTS), chosen(replace(FACTS, diversity=presets.DIVERSE))
    assert diverse["model.dropout"] < plain["model.dropout"]
    assert diverse["tokenizer.vocab_size"] < plain["tokenizer.vocab_size"]
    assert plain["training.tune_decoding"] and diverse["training.tune_decoding"]
    assert not chosen(replace(FACTS, num_target_words=1e6))["training.tune_decoding"]
    assert (plain["training.best_metric"], diverse["training.best_metric"]) == ("auto", "chrf")
    for num_words in (4e5, 1e6, 5e6):
        more = chosen(replace(FACTS, num_target_words=num_words, diversity=presets.DIVERSE, num_distinct_words=10**6))
        assert (more["model.dropout"], more["training.best_metric"], more["training.inserted_words"]) == (
            0.1,
            "chrf",
            0.3,
        )


@pytest.mark.parametrize("decoding", [{"length_penalty": 1.0}, {"length_penalty": 0.5}])
def test_a_length_penalty_of_the_config_is_not_tuned(decoding):
    diverse = replace(FACTS, diversity=presets.DIVERSE)
    assert chosen(diverse, decoding={"beam_size": 8})["training.tune_decoding"]
    assert not chosen(diverse, decoding=decoding)["training.tune_decoding"]


def test_the_diversity_is_distinct_2_of_train_in_the_less_diverse_language(tmp_path):
    sides = "a b a b\na b c d\n", "a b c d\ne f g h\n"
    for name, text in zip(("train.en", "train.it"), sides, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = {"files": [str(tmp_path / "train.en"), str(tmp_path / "train.it")]}
    config = parse_config(tree("auto") | {"corpus": CORPUS | {"train": files, "valid": files}}, "f.yaml")
    filters = {"overlap": False, "duplicates": False}
    config = config.model_copy(
        update={
            "corpus": config.corpus.model_copy(update={"filters": config.corpus.filters.model_copy(update=filters)})
        }
    )
    assert find_facts(config, read(config, Cache(tmp_path, print))).diversity == pytest.approx(4 / 6)


def test_the_diversity_depends_on_the_text_and_not_on_its_size():
    random = np.random.default_rng(1)
    few, many = ([" ".join(map(str, random.zipf(1.3, 10))) for _ in range(number)] for number in (1_000, 20_000))
    assert _diversity(many) == pytest.approx(_diversity(few), rel=0.05)


def test_the_diversity_of_single_words_is_that_of_words():
    assert _diversity(["one", "two", "one two three"] + ["one", "two"] * 100) < 0.05
    assert _diversity([f"w{number}" for number in range(300)]) == 1.0


def test_sampled_segmentations_are_chosen_for_few_pairs():
    assert chosen(FACTS)["tokenizer.bpe_dropout"] == 0.1


def test_diverse_text_is_augmented_where_that_is_of_use():
    diverse = replace(FACTS, diversity=presets.DIVERSE, length_ratio=2.0)
    keys = "training.concatenated_pairs", "training.inserted_words"
    for facts, sections, expected in (
        (diverse, {}, (0.5, 0.3)),
        (FACTS, {}, (0.0, 0.0)),
        (replace(diverse, length_ratio=1.0), {}, (0.0, 0.3)),
        (replace(diverse, scripts=(LATIN, GREEK)), {}, (0.5, 0.0)),
        (replace(diverse, scripts=(HAN, HAN)), {}, (0.5, 0.0)),
        (replace(diverse, algorithm="char"), {"tokenizer": {"algorithm": "char"}}, (0.0, 0.0)),
        (replace(diverse, algorithm="word_level"), {"tokenizer": {"algorithm": "word_level"}}, (0.5, 0.0)),
        (diverse, {"training": {"inserted_words": 0.0}}, (0.5, 0.0)),
    ):
        found = chosen(facts, **sections)
        assert tuple(found[key] for key in keys) == expected


@pytest.mark.parametrize("repeated", [1, 3])
def test_the_length_of_sentences_is_compared_with_that_of_valid(tmp_path, repeated):
    for name, times in (("train", 1), ("valid", repeated)):
        for side in ("en", "it"):
            lines = [" ".join([f"{side}{number:03} words"] * times) for number in range(50)]
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpora = {
        name: {"files": [str(tmp_path / f"{name}.{side}") for side in ("en", "it")]} for name in ("train", "valid")
    }
    filters = {"overlap": False}
    config = parse_config(tree("auto") | {"corpus": CORPUS | corpora | {"filters": filters}}, "f.yaml")
    ratio = find_facts(config, read(config, Cache(tmp_path, print))).length_ratio
    assert ratio == pytest.approx((12 * repeated - 1) / 11)


def test_languages_in_one_script_share_a_vocabulary():
    shared, separate = chosen(FACTS), chosen(replace(FACTS, scripts=(LATIN, GREEK)))
    assert (shared["tokenizer.shared"], shared["model.tie_embeddings"]) == (True, "all")
    assert (separate["tokenizer.shared"], separate["model.tie_embeddings"]) == (False, "target")
    assert separate["tokenizer.vocab_size"] < shared["tokenizer.vocab_size"]


def test_scripts_of_real_sentences_are_those_of_their_languages(texts):
    from mt_cli.corpus.languages import scripts_of

    for language, lines in texts.items():
        assert scripts_in(" ".join(lines)) <= set(scripts_of(language)), language


def test_what_the_config_sets_is_kept_and_named():
    choices = choose(FACTS, EPOCH)
    for d_model in (64, 128):  # One of them is the value that would be chosen, too.
        given = parse_config(tree("auto", model={"d_model": d_model}), "f.yaml")
        config = with_values(given, values_of(choices))
        assert config.model.d_model == d_model
        lines = list(describe(FACTS, choices, given, config))
        assert f"  of the config  model.d_model {d_model}" in lines
        assert not any(line.startswith("  model ") and "d_model" in line for line in lines)


def test_a_run_that_begins_with_another_has_reasons_for_its_training_alone():
    choices = choose(FACTS, EPOCH)
    given = parse_config(tree("auto", init={"run": "runs/parent"}), "f.yaml")
    lines = list(describe(FACTS, choices, given, with_values(given, values_of(choices))))
    assert "  of runs/parent  tokenizer, model" in lines
    assert not any("d_model" in line or "vocab_size" in line or expectation(FACTS) in line for line in lines)
    assert any("learning_rate" in line for line in lines)
    assert any("compare    the scores of runs/parent" in line for line in lines)


def test_facts_are_counted_after_cleaning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.tsv").write_text("a b\tx y z\na b\tx y z\nc\t今日は\n \tq\n", encoding="utf-8")
    changes = {"train": {"file": "p.tsv"}, "valid": {"builtin": "reverse-words", "split": "valid"}, "target": "xx"}
    config = parse_config(tree("auto", training={"device": "cpu"}) | {"corpus": CORPUS | changes}, "f.yaml")
    facts = find_facts(config, read(config, Cache(tmp_path / "cache")))
    assert (facts.num_pairs, facts.num_target_words, facts.num_distinct_words) == (2, 5, 8)
    assert facts.scripts == ({"Latin"}, {"Latin", "Han", "Hiragana"})


def test_preset_auto_refuses_an_empty_stream(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.tsv").write_text("\t\n", encoding="utf-8")
    changes = {"train": {"file": "p.tsv", "streaming": True}, "valid": {"builtin": "reverse-words", "split": "valid"}}
    config = parse_config(tree("auto", training={"device": "cpu"}) | {"corpus": CORPUS | changes}, "f.yaml")
    with pytest.raises(CorpusError, match=r"corpus.train: the corpus is empty"):
        resolve_preset(config, Cache(tmp_path / "cache"))


def test_a_stream_trains_for_a_number_of_steps(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.tsv").write_text("a b\tx y z\nc\td\n", encoding="utf-8")
    changes = {"train": {"file": "p.tsv", "streaming": True}, "valid": {"file": "p.tsv"}}
    config = parse_config(tree("auto", training={"device": "cpu"}) | {"corpus": CORPUS | changes}, "f.yaml")
    resolved, data = resolve_preset(config, Cache(tmp_path / "cache"))
    assert data is None and resolved.training.max_steps and resolved.training.max_epochs is None
    assert "preset auto: a stream of unknown size, cpu" in capsys.readouterr().err


def test_options_of_a_config_with_auto_are_checked_against_the_values_that_it_chooses():
    values = chosen(FACTS, tokenizer={"bpe_dropout": 0.1}, training={"muon_learning_rate": 0.01})
    assert (values["tokenizer.bpe_dropout"], values["training.optimizer"]) == (0.1, "muon")
    assert chosen(replace(FACTS, num_target_words=2e4), model={"d_model": 132})["model.num_heads"] == 2
    with pytest.raises(ConfigError, match=r"7 heads do not divide d_model 128"):
        chosen(FACTS, model={"num_heads": 7})
    with pytest.raises(ConfigError, match="d_model"):
        parse_config(tree("auto", model={"d_model": "wide"}), "f.yaml")


@pytest.mark.parametrize(("before", "after"), [((10e6, 10.0), (10e6, 100.0)), ((1e9, None), (1e9, 10.0))])
def test_a_run_on_a_gpu_that_resumes_with_another_limit_keeps_what_may_not_change(before, after):
    facts = [replace(FACTS, num_target_words=w, device="gpu", max_minutes=m) for w, m in (before, after)]
    old, other = (with_values(parse_config(tree("auto"), "f.yaml"), values_of(choose(each))) for each in facts)
    kept = with_values(parse_config(tree("auto"), "f.yaml"), _kept(values_of(choose(facts[1])), old))
    assert [key for key, value in flat(kept).items() if value != flat(old)[key] and not may_change(key)] == []
    assert [key for key, value in flat(other).items() if value != flat(old)[key] and not may_change(key)]


def test_words_of_scripts_without_spaces_are_about_as_many_as_in_english():
    sentences = {
        "th": "ฉันชอบอ่านหนังสือในสวนสาธารณะทุกเย็นกับเพื่อนของฉัน",
        "my": "ကျွန်တော်သည်ညနေတိုင်းသူငယ်ချင်းနှင့်အတူပန်းခြံတွင်စာအုပ်ဖတ်ရတာကြိုက်သည်",
        "zh": "我喜欢每天晚上和朋友一起在公园里看书",
        "en": "I like to read books in the park every evening with my friend",
    }
    for language, sentence in sentences.items():
        assert 7 <= len(_WORD.findall(sentence)) <= 17, language


def test_a_limit_of_steps_that_ends_in_the_warm_up_is_said():
    config = parse_config(tree("auto", training={"max_steps": 3}), "f.yaml")
    choices = choose(FACTS, EPOCH)
    lines = list(describe(FACTS, choices, config, with_values(config, values_of(choices))))
    assert any("too short  training.max_steps 3" in line for line in lines)
    lines = list(describe(FACTS, choices, AUTO, with_values(AUTO, values_of(choices))))
    assert not any("too short" in line for line in lines)


@given(st.integers(1, 10**5), st.integers(100, 10**5), st.integers(1, 4))
def test_the_planned_updates_are_those_of_the_tokens(num_batches, batch_tokens, num_micro_batches):
    epoch = Epoch(num_batches, TrainingConfig(batch_tokens=batch_tokens, micro_batches_per_step=num_micro_batches))
    choices = choose(FACTS, epoch)["training"]
    num_epochs = choices["max_epochs"].value
    assert f"{epoch.num_steps(num_epochs):,} updates" in choices["max_epochs"].why
    level = level_of(FACTS)
    if 3 < num_epochs < 200:
        num_tokens = level.num_updates * level.changes["training"]["batch_tokens"]
        assert abs(num_epochs - num_tokens / (num_batches * batch_tokens)) <= 0.5


def test_the_plan_has_the_number_of_updates_that_the_run_has(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [f"w{n % 7} x{n % 11} " * (1 + n % 13) + str(n) for n in range(300)]
    (tmp_path / "p.tsv").write_text("".join(f"{word}\t{word.upper()}\n" for word in words), encoding="utf-8")
    corpus = CORPUS | {"train": {"file": "p.tsv"}}
    config = parse_config(tree("auto", training={"device": "cpu"}) | {"corpus": corpus}, "f.yaml")
    resolved, data = resolve_preset(config, Cache(tmp_path / "cache"))
    num_batches = count_batches(training_pairs(data, resolved), resolved.training.tokens_per_batch)
    num_steps = count_steps(resolved.training, 1, num_batches, resolved.training.max_epochs)
    assert f"max_epochs {resolved.training.max_epochs} ({num_steps:,} updates of" in capsys.readouterr().err


def test_replayed_pairs_are_not_counted_as_those_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, number in (("own", 20), ("old", 500)):
        lines = (f"{name} {n} a\t{name} {n} b\n" for n in range(number))
        (tmp_path / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    train = [{"file": "own.tsv"}, {"file": "old.tsv", "weight": 0.01}]
    corpus = CORPUS | {"train": train, "valid": {"builtin": "reverse-words", "split": "valid"}, "target": "xx"}
    config = parse_config(tree("auto", training={"device": "cpu"}) | {"corpus": corpus}, "f.yaml")
    facts = find_facts(config, read(config, Cache(tmp_path / "cache")), num_own=1)
    assert (facts.num_pairs, facts.num_target_words, facts.num_replayed) == (20, 60, 500)
    assert str(facts).startswith("20 pairs, ") and str(facts).endswith("besides 500 replayed pairs")
    assert find_facts(config, read(config, Cache(tmp_path / "cache"))).num_pairs == 520


def test_what_cannot_be_exported_to_transformers_is_said_before_the_training():
    choices = choose(FACTS, EPOCH)
    lines = "\n".join(describe(FACTS, choices, AUTO, with_values(AUTO, values_of(choices))))
    assert "huggingface will refuse model.positions: rotary; if you need it, set model.positions: sinusoidal" in lines
    given = parse_config(tree("auto", model={"positions": "sinusoidal"}), "f.yaml")
    config = with_values(given, values_of(choices))
    assert unsupported(config) == [] and "  export " not in "\n".join(describe(FACTS, choices, given, config))


def test_mixed_spellings_are_normalised_and_others_are_not(tmp_path):
    lines = [f"casa {number}\tjach 'a uta {number}\n" for number in range(200)]
    lines += [f"otra {number}\tjach’a uta {number}\n" for number in range(30)]
    for name, text in (("mixed", "".join(lines)), ("one", "".join(lines).replace(" '", "'").replace("’", "'"))):
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
        corpus = {"source": "es", "target": "ay", "train": {"file": str(tmp_path / f"{name}.tsv")}}
        given = parse_config({"name": "x", "preset": "auto", "corpus": corpus | {"valid": {"fraction": 0.1}}}, "f.yaml")
        config, _ = resolve_preset(given, Cache(tmp_path / "cache"))
        expected = ("apostrophes", "joined_apostrophes") if name == "mixed" else ()
        assert config.tokenizer.normalize == expected


def test_a_preset_counts_the_text_of_both_directions_once(tmp_path):
    lines = "".join(f"la casa {n} es muy grande\toga {n} tuicha\n" for n in range(900))
    (tmp_path / "all.tsv").write_text(lines, encoding="utf-8")
    corpus = {"source": "es", "target": "gn", "tag": "to_target", "train": {"file": str(tmp_path / "all.tsv")}}
    corpus["valid"] = {"fraction": 0.1}
    found = []
    for both in (False, True):
        config = parse_config({"name": "x", "preset": "auto", "corpus": corpus | {"both_directions": both}}, "f.yaml")
        found.append(find_facts(config, read(config, Cache(tmp_path / "cache"))))
    assert found[1].num_pairs < 1.1 * found[0].num_pairs and found[1].num_replayed == 0
    assert [(each.num_directions, each.num_language_pairs) for each in found] == [(1, 1), (2, 1)]
    assert ", 2 directions, " in str(found[1])


def test_there_are_fewer_validations_if_valid_is_large():
    def of(num_valid_tokens):
        choices = choose(FACTS, replace(EPOCH, num_valid_tokens=num_valid_tokens))["training"]
        num_steps = EPOCH.num_steps(choices["max_epochs"].value)
        return round(num_steps / choices["validate_every_steps"].value), choices["patience"].value

    few, patience_of_few = of(1_000_000)
    many, patience = of(1_000)
    assert (round(few, -1), round(many, -1)) == (10, 40)
    assert patience_of_few < few / 2 and patience == 15
    assert few < of(60_000)[0] < many


def test_diverse_text_of_several_languages_has_the_recipe_of_one_and_updates_for_each_direction():
    one = replace(FACTS, diversity=presets.DIVERSE, num_target_words=120_000)
    several = replace(one, num_target_words=4 * 120_000, num_language_pairs=4, num_directions=8)
    assert level_of(several) == replace(level_of(one), num_updates=8 * level_of(one).num_updates)
    assert chosen(several)["model.dropout"] == chosen(one)["model.dropout"]
    captions = replace(several, diversity=0.6)
    assert level_of(captions) == level_of(replace(captions, num_language_pairs=1, num_directions=1))
