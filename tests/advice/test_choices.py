"""Options by the facts of a corpus, without a corpus."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.advice.choices import Epoch, choose, forecast, recipe_for, values_of
from mt_cli.advice.decisions import for_destination
from mt_cli.advice.facts import Facts
from mt_cli.config.loading import differences, flat, parse_config, with_values
from mt_cli.config.training import TrainingConfig
from mt_cli.exchange.destinations import DESTINATIONS, obstacles

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
CONFIG = parse_config({"name": "t", "corpus": CORPUS}, "f.yaml")
LATIN, GREEK, HAN = frozenset({"Latin"}), frozenset({"Greek"}), frozenset({"Han"})
FACTS = Facts(5_000, 60_000.0, 9_000, (LATIN, LATIN), "cpu")
DIVERSE = replace(FACTS, diversity=0.9)
MANY = replace(FACTS, num_target_words=2.6e6, num_distinct_words=10**6)
EPOCH = Epoch(40, TrainingConfig(batch_tokens=3072))


OF_SIZE = {"model.d_model", "model.d_ff", "training.learning_rate", "training.warmup_steps", "training.ema_decay"}


def config_with(choices):
    return with_values(CONFIG, values_of(choices))


def chosen(facts):
    """Chosen values by dotted key."""
    return flat(config_with(choose(facts, EPOCH)))


def test_more_text_has_a_larger_model_and_less_regularisation():
    sizes = [
        replace(FACTS, num_target_words=10.0**power, device="gpu", num_distinct_words=10**6) for power in range(3, 10)
    ]
    keys = ("tokenizer.vocab_size", "model.d_model", "model.num_encoder_layers", "model.num_heads")
    for small, large in pairwise(map(chosen, sizes)):
        assert all(small[key] <= large[key] for key in keys)
        assert small["model.dropout"] >= large["model.dropout"]
        assert small["training.label_smoothing"] >= large["training.label_smoothing"]
        assert small["training.batch_tokens"] <= large["training.batch_tokens"]


FACTS_OF_ANY_CORPUS = st.builds(
    Facts,
    st.integers(1, 10**9),
    st.floats(0, 1e12),
    st.integers(0, 10**7),
    st.tuples(*[st.sampled_from([LATIN, GREEK, frozenset()])] * 2),
    st.sampled_from(["cpu", "gpu"]),
    st.sampled_from([(), ("nfkc",)]),
    st.floats(0, 1),
)


@given(FACTS_OF_ANY_CORPUS, st.integers(0, 10**6))
def test_any_corpus_gets_values_that_fit_each_with_reason(facts, num_batches):
    choices = choose(facts, Epoch(num_batches, TrainingConfig()))
    assert all(choice.why for section in choices.values() for choice in section.values())
    tree = config_with(choices).model_dump(mode="json")
    for section, values in values_of(choices).items():
        assert tree[section] == tree[section] | values


@given(st.floats(2, 8), st.sampled_from([0.5, 0.9]), st.sampled_from(["cpu", "gpu"]))
def test_a_hundredth_more_text_changes_no_choice_by_more_than_a_twentieth(power, diversity, device):
    """But for small integers, and for what belongs to the size of the model, which is one of few."""
    text = [
        replace(FACTS, num_target_words=words, num_distinct_words=10**7, diversity=diversity, device=device)
        for words in (10**power, 1.01 * 10**power)
    ]
    recipe, larger = map(recipe_for, text)
    assert recipe.num_tokens / recipe.step_tokens == pytest.approx(larger.num_tokens / larger.step_tokens, rel=0.05)
    one, other = map(chosen, text)
    for values in (one, other):
        values["training.batch_tokens"] *= values["training.micro_batches_per_step"]
    for key in one:
        is_large = type(one[key]) is float or (type(one[key]) is int and one[key] >= 20)
        if is_large and (recipe.size == larger.size or key not in OF_SIZE):
            assert one[key] == pytest.approx(other[key], rel=0.05, abs=0.005), key


@given(st.lists(st.floats(0.06, 2), min_size=2, max_size=5))
def test_a_forecast_rises_with_the_updates_up_to_that_of_the_text(shares):
    num_tokens = recipe_for(DIVERSE).num_tokens
    scores = [forecast(DIVERSE, share * num_tokens) for share in sorted(shares)]
    assert all(one.low <= other.low and one.high <= other.high for one, other in pairwise(scores))
    assert all(score.low <= score.high for score in scores)
    assert forecast(DIVERSE, num_tokens) == forecast(DIVERSE)
    assert forecast(DIVERSE, 0.04 * num_tokens) is None


def test_a_cpu_trains_smaller_models_with_less_dropout():
    on_cpu, on_gpu = (chosen(replace(MANY, device=device)) for device in ("cpu", "gpu"))
    for key in ("model.d_model", "model.dropout"):
        assert on_cpu[key] < on_gpu[key]


def test_a_child_has_the_recipe_of_its_parents_size():
    large, small = (replace(FACTS, num_target_words=number, device="gpu") for number in (1e6, 3e5))
    one, other = (chosen(replace(facts, d_model=128))["training.learning_rate"] for facts in (large, small))
    assert one == other
    # A larger model than the level's is not trained for less time.
    assert chosen(replace(small, d_model=512))["training.max_epochs"] == chosen(small)["training.max_epochs"]


def test_lines_in_capitals_are_translated_in_small_letters_if_rare():
    assert chosen(FACTS)["decoding.capitals"] == "lower"
    assert "decoding" not in choose(replace(FACTS, is_in_capitals=True))


def test_diverse_text_is_augmented_where_that_is_of_use():
    diverse = replace(DIVERSE, length_ratio=2.0)
    for facts, expected in (
        (diverse, (0.5, 0.3)),
        (FACTS, (0.0, 0.0)),
        (replace(diverse, length_ratio=1.0), (0.0, 0.3)),
        (replace(diverse, scripts=(LATIN, GREEK)), (0.5, 0.0)),
        (replace(diverse, scripts=(HAN, HAN)), (0.5, 0.0)),
        (replace(diverse, algorithm="char"), (0.0, 0.0)),
    ):
        values = chosen(facts)
        assert (values["training.concatenated_pairs"], values["training.inserted_words"]) == expected


def test_languages_in_one_script_share_a_vocabulary():
    shared, separate = chosen(FACTS), chosen(replace(FACTS, scripts=(LATIN, GREEK)))
    assert (shared["tokenizer.shared"], shared["model.tie_embeddings"]) == (True, "all")
    assert (separate["tokenizer.shared"], separate["model.tie_embeddings"]) == (False, "target")
    assert separate["tokenizer.vocab_size"] < shared["tokenizer.vocab_size"]
    both = chosen(replace(FACTS, scripts=(LATIN, GREEK), num_directions=1.5))
    assert both["tokenizer.shared"] and both["tokenizer.vocab_size"] == shared["tokenizer.vocab_size"]


@given(FACTS_OF_ANY_CORPUS, st.sampled_from(list(DESTINATIONS)))
def test_a_model_for_a_program_differs_only_where_it_must(facts, program):
    config = config_with(choose(facts, EPOCH))
    choices = choose(for_destination(facts, config, program), EPOCH)
    fitted = config_with(choices)
    assert obstacles(fitted, program) == []
    keys = {obstacle.key for obstacle in obstacles(config, program)}
    size = {"tokenizer.vocab_size"} if "tokenizer.shared" in keys else set()
    assert {key.partition("[")[0] for key in differences(fitted, config)} <= keys | size
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
