"""Options by the facts of a corpus, without a corpus."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config import presets
from mt_cli.config.loading import differences, flat, parse_config, with_values
from mt_cli.config.sections import may_change
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import ConfigError
from mt_cli.features.exchange.destinations import DESTINATIONS, obstacles
from mt_cli.features.recipes.auto import Decision, describe, for_destination
from mt_cli.features.recipes.choices import (
    Epoch,
    choose,
    expectation,
    is_limited_by_cpu,
    level_of,
    recipe_for,
    values_of,
)
from mt_cli.features.recipes.facts import Facts

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
LATIN, GREEK, HAN = frozenset({"Latin"}), frozenset({"Greek"}), frozenset({"Han"})
FACTS = Facts(5_000, 60_000.0, 9_000, (LATIN, LATIN), "cpu", None)
DIVERSE = replace(FACTS, diversity=0.9)
EPOCH = Epoch(40, TrainingConfig(batch_tokens=3072))
SPEED = presets.DATA["tokens_per_minute"]["cpu"]


def auto(**sections):
    return parse_config({"name": "t", "corpus": CORPUS, "preset": "auto", **sections}, "f.yaml")


def chosen(facts, **sections):
    """Values that auto chooses, by dotted key, in a config with these sections."""
    epoch = None if facts.num_pairs is None else EPOCH
    return flat(with_values(auto(**sections), values_of(choose(facts, epoch))))


def described(facts, choices, **sections):
    config = auto(**sections)
    decision = Decision(facts, choices, with_values(config, values_of(choices)), None)
    return list(describe(decision, config))


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
    """Sennrich and Zhang 2019; Gowda and May 2020."""
    facts = replace(FACTS, num_target_words=num_words, num_distinct_words=10**6, device="gpu")
    assert smallest <= chosen(facts)["tokenizer.vocab_size"] <= largest * 1.05


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
    assert all(choice.why for section in choices.values() for choice in section.values())
    text = "\n".join(described(facts, choices))
    assert "of the config" not in text
    for section in choices.values():
        for key, choice in section.items():
            shown = str(choice.value).lower() if isinstance(choice.value, bool) else choice.value
            assert choice.value is None or f"{key} {shown}" in text


@given(FACTS_OF_ANY_CORPUS)
def test_options_that_may_change_on_resuming_depend_on_the_corpus_and_the_model_alone(facts):
    here = chosen(facts)
    there = chosen(replace(facts, device="gpu", max_minutes=None, d_model=here["model.d_model"]))
    assert {key for key in here if here[key] != there[key] and may_change(key)} == set()


def test_a_cpu_and_little_time_give_a_smaller_model():
    large = replace(FACTS, num_target_words=3e7, device="gpu")
    smaller = replace(large, device="cpu"), replace(large, device="cpu", max_minutes=5.0)
    assert [chosen(facts)["model.d_model"] for facts in (large, *smaller)] == [512, 128, 128]


def test_on_a_cpu_a_run_is_planned_for_forty_minutes_a_direction_if_the_config_has_no_limit():
    many = replace(FACTS, num_target_words=2.6e6, num_distinct_words=10**6)
    epoch = Epoch(900, TrainingConfig(batch_tokens=4096))
    on_gpu, limited = replace(many, device="gpu"), replace(many, max_minutes=400.0)

    def planned(facts):
        choices = choose(facts, epoch)
        width = choices["model"]["d_model"].value
        num_tokens = choices["training"]["max_epochs"].value * 900 * 4096
        return width, num_tokens / SPEED["tiny" if width == 128 else "small"]

    width, minutes = planned(many)
    assert width == 128 and 20 < minutes < 40
    assert planned(on_gpu) == planned(limited) and planned(on_gpu)[0] == 256 and planned(on_gpu)[1] > 200
    assert planned(replace(many, num_directions=2))[1] == pytest.approx(2 * minutes, rel=0.1)
    stream = replace(many, num_pairs=None, num_target_words=math.inf)
    num_tokens = choose(stream)["training"]["max_steps"].value * presets.PRESETS["tiny"]["training"]["batch_tokens"]
    assert num_tokens == pytest.approx(26.7 * SPEED["tiny"], rel=0.01)
    # Resumed on a GPU, it keeps its model and its length.
    assert planned(replace(on_gpu, d_model=128)) == (width, minutes)


def test_a_model_smaller_than_the_pairs_allow_has_little_dropout_and_fewer_entries():
    many = replace(FACTS, num_target_words=2.6e6, num_distinct_words=10**6)
    for facts in (many, replace(many, num_target_words=2e7), replace(many, diversity=0.9)):
        assert chosen(facts)["model.dropout"] == 0.1
        assert chosen(facts)["tokenizer.vocab_size"] <= 16_000
    assert chosen(replace(many, device="gpu"))["model.dropout"] == 0.3


def test_a_model_smaller_than_the_pairs_allow_is_announced():
    many = replace(FACTS, num_target_words=50e6, device="gpu")
    assert "good translations" in expectation(many)
    on_cpu = replace(many, device="cpu", max_minutes=1e6)
    assert expectation(on_cpu) == "worse translations than these pairs allow: larger models need a GPU."
    assert "larger models need more than 40 minutes; or raise" in expectation(replace(many, device="cpu"))
    assert "larger models need more than 1 minutes" in expectation(replace(many, max_minutes=1.0))


def test_the_cpu_limits_a_model_only_if_a_gpu_could_train_a_larger_one():
    many = replace(FACTS, num_target_words=1e6)
    assert is_limited_by_cpu(many)
    for facts in (FACTS, replace(many, device="gpu"), replace(many, max_minutes=1.0)):
        assert not is_limited_by_cpu(facts)


def test_a_child_has_the_recipe_of_the_size_of_its_parent():
    large, small = replace(FACTS, num_target_words=1e6, device="gpu"), replace(FACTS, device="gpu")
    rates = [chosen(replace(facts, d_model=128))["training.learning_rate"] for facts in (large, small)]
    assert rates == [8e-3, 8e-3]
    # A larger model than the level's is not trained for less time.
    assert chosen(replace(small, d_model=512))["training.max_epochs"] == chosen(small)["training.max_epochs"]
    assert expectation(replace(small, d_model=1024)) == expectation(small)


def test_diverse_text_gets_less_dropout_a_smaller_vocabulary_and_another_metric():
    plain, diverse = chosen(FACTS), chosen(DIVERSE)
    assert diverse["model.dropout"] < plain["model.dropout"]
    assert diverse["tokenizer.vocab_size"] < plain["tokenizer.vocab_size"]
    assert plain["tokenizer.bpe_dropout"] == 0.1
    assert plain["training.tune_decoding"] and diverse["training.tune_decoding"]
    assert not chosen(replace(FACTS, num_target_words=1e6))["training.tune_decoding"]
    assert (plain["training.best_metric"], diverse["training.best_metric"]) == ("auto", "chrf")
    keys = "model.dropout", "training.best_metric", "training.inserted_words"
    for num_words in (4e5, 1e6, 5e6):
        more = chosen(replace(DIVERSE, num_target_words=num_words, num_distinct_words=10**6))
        assert [more[key] for key in keys] == [0.1, "chrf", 0.3]


@pytest.mark.parametrize("decoding", [{"length_penalty": 1.0}, {"length_penalty": 0.5}])
def test_a_length_penalty_of_the_config_is_not_tuned(decoding):
    assert chosen(DIVERSE, decoding={"beam_size": 8})["training.tune_decoding"]
    assert not chosen(DIVERSE, decoding=decoding)["training.tune_decoding"]


def test_diverse_text_is_augmented_where_that_is_of_use():
    diverse = replace(DIVERSE, length_ratio=2.0)
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
        values = chosen(facts, **sections)
        assert tuple(values[key] for key in keys) == expected


def test_diverse_text_of_several_languages_has_the_recipe_of_one_and_updates_for_each_direction():
    one = replace(DIVERSE, num_target_words=120_000)
    several = replace(one, num_target_words=4 * 120_000, num_language_pairs=4, num_directions=8)
    assert level_of(several) == level_of(one)
    assert recipe_for(several).num_updates == 8 * recipe_for(one).num_updates
    captions = replace(several, diversity=0.6)
    assert recipe_for(captions) == recipe_for(replace(captions, num_language_pairs=1, num_directions=1))


def test_languages_in_one_script_share_a_vocabulary():
    shared, separate = chosen(FACTS), chosen(replace(FACTS, scripts=(LATIN, GREEK)))
    assert (shared["tokenizer.shared"], shared["model.tie_embeddings"]) == (True, "all")
    assert (separate["tokenizer.shared"], separate["model.tie_embeddings"]) == (False, "target")
    assert separate["tokenizer.vocab_size"] < shared["tokenizer.vocab_size"]


def test_options_of_a_config_with_auto_are_checked_against_the_values_that_it_chooses():
    values = chosen(FACTS, tokenizer={"bpe_dropout": 0.1}, training={"muon_learning_rate": 0.01})
    assert (values["tokenizer.bpe_dropout"], values["training.optimizer"]) == (0.1, "muon")
    assert chosen(replace(FACTS, num_target_words=2e4), model={"d_model": 132})["model.num_heads"] == 2
    for sections, key in (
        ({"model": {"num_heads": 7}}, "num_heads: 7 heads"),
        ({"model": {"tie_embeddings": "all"}, "tokenizer": {"shared": False}}, r"^preset auto: model.tie_embeddings"),
        ({"model": {"d_model": "wide"}}, "d_model"),
    ):
        with pytest.raises(ConfigError, match=key):
            chosen(FACTS, **sections)


def test_spellings_are_left_out_where_the_tokenizer_of_the_config_cannot_change_them():
    facts = replace(FACTS, spellings=("nfc",), letters={"ã": "â"})
    assert chosen(facts)["tokenizer.letters.ã"] == "â"
    values = chosen(facts, tokenizer={"spacing": "sentencepiece"})
    assert values["tokenizer.normalize"] == [] and values["tokenizer.letters"] == {}
    choices = choose(for_destination(facts, with_values(auto(), values_of(choose(facts, EPOCH))), "argos"), EPOCH)
    assert choices["tokenizer"]["normalize"] == ([], "for argos; otherwise [nfc]")
    assert obstacles(with_values(auto(), values_of(choices)), "argos") == []


def test_values_of_the_config_are_kept_and_named():
    choices = choose(FACTS, EPOCH)
    for d_model in (64, 128):  # One of them is the value that would be chosen, too.
        lines = described(FACTS, choices, model={"d_model": d_model})
        assert f"  of the config  model.d_model {d_model}" in lines
        assert not any(line.startswith("  model ") and "d_model" in line for line in lines)
    text = "\n".join(described(FACTS, choices, training={"max_steps": 9}))
    assert "too short  training.max_steps 9" in text and "too short" not in "\n".join(described(FACTS, choices))
    assert "training.max_epochs null" in text and "shared true" in text
    assert not {"None", "True", "False"} & set(re.findall(r"\w+", text))


def test_a_run_that_begins_with_another_has_reasons_for_its_training_alone():
    lines = described(FACTS, choose(FACTS, EPOCH), init={"run": "runs/parent"})
    assert "  of runs/parent  tokenizer, model" in lines
    assert not any("d_model" in line or "vocab_size" in line or expectation(FACTS) in line for line in lines)
    assert any("learning_rate" in line for line in lines)
    assert any("compare    the scores of runs/parent" in line for line in lines)


@given(FACTS_OF_ANY_CORPUS, st.sampled_from(list(DESTINATIONS)))
def test_a_model_for_a_program_fits_it_and_differs_only_where_another_would_not(facts, program):
    config = with_values(auto(), values_of(choose(facts, EPOCH)))
    choices = choose(for_destination(facts, config, program), EPOCH)
    fitted = with_values(auto(), values_of(choices))
    assert obstacles(fitted, program) == []
    keys = {obstacle.key for obstacle in obstacles(config, program)}
    size = {"tokenizer.vocab_size"} if "tokenizer.shared" in keys else set()
    assert differences(fitted, config).keys() <= keys | size
    for section, key in (key.split(".") for key in keys):
        assert f"for {program}; otherwise " in choices[section][key].why


@given(st.integers(1, 10**5), st.integers(100, 10**5), st.integers(1, 4))
def test_the_planned_updates_train_on_the_planned_tokens(num_batches, batch_tokens, num_micro_batches):
    epoch = Epoch(num_batches, TrainingConfig(batch_tokens=batch_tokens, micro_batches_per_step=num_micro_batches))
    choices = choose(FACTS, epoch)["training"]
    num_epochs = choices["max_epochs"].value
    assert f"{epoch.num_steps(num_epochs):,} updates" in choices["max_epochs"].why
    if 3 < num_epochs < 200:
        assert abs(num_epochs - recipe_for(FACTS).num_tokens / (num_batches * batch_tokens)) <= 0.5


def test_there_are_fewer_validations_if_valid_is_large():
    def validations(num_valid_tokens):
        choices = choose(FACTS, replace(EPOCH, num_valid_tokens=num_valid_tokens))["training"]
        num_steps = EPOCH.num_steps(choices["max_epochs"].value)
        return round(num_steps / choices["validate_every_steps"].value), choices["patience"].value

    few, patience_of_few = validations(1_000_000)
    many, patience = validations(1_000)
    assert (round(few, -1), round(many, -1)) == (10, 40)
    assert patience_of_few < few / 2 and patience == 15
    assert few < validations(60_000)[0] < many
