"""Options by the facts of a corpus, without a corpus."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.loading import differences, flat, parse_config, with_values
from mt_cli.config.training import TrainingConfig
from mt_cli.features.exchange.destinations import DESTINATIONS, obstacles
from mt_cli.features.recipes.choices import Epoch, choose, expectation, is_limited_by_cpu, recipe_for, values_of
from mt_cli.features.recipes.decisions import Decision, describe, for_destination
from mt_cli.features.recipes.facts import Facts

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
CONFIG = parse_config({"name": "t", "corpus": CORPUS}, "f.yaml")
LATIN, GREEK, HAN = frozenset({"Latin"}), frozenset({"Greek"}), frozenset({"Han"})
FACTS = Facts(5_000, 60_000.0, 9_000, (LATIN, LATIN), "cpu")
DIVERSE = replace(FACTS, diversity=0.9)
MANY = replace(FACTS, num_target_words=2.6e6, num_distinct_words=10**6)
EPOCH = Epoch(40, TrainingConfig(batch_tokens=3072))


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


def test_the_vocabulary_follows_the_literature():
    """Sennrich and Zhang 2019; Gowda and May 2020."""
    for num_words, smallest, largest in ((12e3, 500, 1000), (61e3, 8000, 8000), (34e4, 4000, 10_000)):
        facts = replace(FACTS, num_target_words=num_words, num_distinct_words=10**6, device="gpu")
        assert smallest <= chosen(facts)["tokenizer.vocab_size"] <= largest * 1.05


FACTS_OF_ANY_CORPUS = st.builds(
    Facts,
    st.integers(1, 10**9),
    st.floats(0, 1e12),
    st.integers(0, 10**7),
    st.tuples(*[st.sampled_from([LATIN, GREEK, frozenset()])] * 2),
    st.sampled_from(["cpu", "gpu"]),
    st.sampled_from([(), ("nfc",)]),
    st.floats(0, 1),
)


@given(FACTS_OF_ANY_CORPUS, st.integers(0, 10**6))
def test_any_corpus_gets_values_that_fit_each_with_reason(facts, num_batches):
    choices = choose(facts, Epoch(num_batches, TrainingConfig()))
    assert all(choice.why for section in choices.values() for choice in section.values())
    config = config_with(choices)
    text, tree = "\n".join(describe(Decision(facts, choices, config))), config.model_dump(mode="json")
    for section, values in values_of(choices).items():
        assert tree[section] == tree[section] | values
        assert all(value is None or f"{key} " in text for key, value in values.items())


def test_a_cpu_trains_smaller_models_for_at_most_forty_minutes():
    assert is_limited_by_cpu(MANY)
    assert not is_limited_by_cpu(FACTS) and not is_limited_by_cpu(replace(MANY, device="gpu"))
    assert [chosen(replace(MANY, device=device))["model.d_model"] for device in ("cpu", "gpu")] == [128, 256]
    assert 20 < recipe_for(MANY).num_tokens / 1_300_000 < 40  # Tokens a minute of the smallest model.
    assert "worse translations" in expectation(MANY)
    assert "good translations" in expectation(replace(MANY, num_target_words=50e6, device="gpu"))


def test_a_model_below_its_level_has_little_dropout_and_fewer_entries():
    for facts in (MANY, replace(MANY, num_target_words=2e7), replace(MANY, diversity=0.9)):
        assert chosen(facts)["model.dropout"] == 0.1
        assert chosen(facts)["tokenizer.vocab_size"] <= 16_000
    assert chosen(replace(MANY, device="gpu"))["model.dropout"] == 0.3


def test_a_child_has_the_recipe_of_its_parents_size():
    large, small = replace(FACTS, num_target_words=1e6, device="gpu"), replace(FACTS, device="gpu")
    rates = [chosen(replace(facts, d_model=128))["training.learning_rate"] for facts in (large, small)]
    assert rates == [8e-3, 8e-3]
    # A larger model than the level's is not trained for less time.
    assert chosen(replace(small, d_model=512))["training.max_epochs"] == chosen(small)["training.max_epochs"]
    assert expectation(replace(small, d_model=1024)) == expectation(small)
    assert chosen(replace(FACTS, algorithm="sentencepiece"))["training.optimizer"] == "adamw"


def test_diverse_text_gets_less_dropout_fewer_entries_and_another_metric():
    plain, diverse = chosen(FACTS), chosen(DIVERSE)
    assert diverse["model.dropout"] < plain["model.dropout"]
    assert diverse["tokenizer.vocab_size"] < plain["tokenizer.vocab_size"]
    assert plain["training.tune_decoding"] and diverse["training.tune_decoding"]
    assert not chosen(replace(FACTS, num_target_words=1e6))["training.tune_decoding"]
    assert (plain["training.best_metric"], diverse["training.best_metric"]) == ("auto", "chrf")
    assert chosen(replace(FACTS, is_short=True))["training.best_metric"] == "chrf"
    keys = "model.dropout", "training.best_metric", "training.inserted_words"
    for num_words in (4e5, 1e6, 5e6):
        more = chosen(replace(DIVERSE, num_target_words=num_words, num_distinct_words=10**6))
        assert [more[key] for key in keys] == [0.1, "chrf", 0.3]


def test_diverse_text_is_augmented_where_that_is_of_use():
    diverse = replace(DIVERSE, length_ratio=2.0)
    for facts, expected in (
        (diverse, (0.5, 0.3)),
        (FACTS, (0.0, 0.0)),
        (replace(diverse, length_ratio=1.0), (0.0, 0.3)),
        (replace(diverse, scripts=(LATIN, GREEK)), (0.5, 0.0)),
        (replace(diverse, scripts=(HAN, HAN)), (0.5, 0.0)),
        (replace(diverse, algorithm="char"), (0.0, 0.0)),
        (replace(diverse, algorithm="word_level"), (0.5, 0.0)),
    ):
        values = chosen(facts)
        assert (values["training.concatenated_pairs"], values["training.inserted_words"]) == expected


def test_languages_in_one_script_share_a_vocabulary():
    shared, separate = chosen(FACTS), chosen(replace(FACTS, scripts=(LATIN, GREEK)))
    assert (shared["tokenizer.shared"], shared["model.tie_embeddings"]) == (True, "all")
    assert (separate["tokenizer.shared"], separate["model.tie_embeddings"]) == (False, "target")
    assert separate["tokenizer.vocab_size"] < shared["tokenizer.vocab_size"]


def test_few_lines_in_capitals_are_translated_in_small_letters():
    assert chosen(FACTS)["decoding.capitals"] == "lower"
    for facts in (replace(FACTS, is_in_capitals=True), replace(FACTS, scripts=(HAN, LATIN))):
        assert "decoding" not in choose(facts)


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


def test_a_large_valid_has_fewer_validations():
    def validations(num_valid_tokens):
        choices = choose(FACTS, replace(EPOCH, num_valid_tokens=num_valid_tokens))["training"]
        num_steps = EPOCH.num_steps(choices["max_epochs"].value)
        return round(num_steps / choices["validate_every_steps"].value), choices["patience"].value

    few, patience_of_few = validations(1_000_000)
    many, patience = validations(1_000)
    assert (round(few, -1), round(many, -1)) == (10, 40)
    assert patience_of_few < few / 2 and patience == 15
