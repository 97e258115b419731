import copy
import json
import re

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mt_cli.config.loading import config_of_text, flat, load_config, parse_config, parse_yaml
from mt_cli.config.presets import PRESETS
from mt_cli.config.reference import schema
from mt_cli.config.sections import RUN_NAME, Config
from mt_cli.config.writing import on_one_line
from mt_cli.errors import ConfigError

SMALLEST = {
    "name": "tiny",
    "corpus": {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}},
}


def with_values(**dotted):
    tree = copy.deepcopy(SMALLEST)
    for key, value in dotted.items():
        section, _, name = key.partition("__")
        if name:
            tree.setdefault(section, {})[name] = value
        else:
            tree[section] = value
    return tree


def message_for(tree):
    with pytest.raises(ConfigError) as caught:
        parse_config(tree, "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize("word", ["no", "Yes", "ON", "off", "y", "N"])
def test_only_true_and_false_are_booleans(word):
    sides = f"{{source: {word}, target: en, train: {{file: a.tsv, columns: [{word}, en]}}, valid: {{fraction: 0.1}}}}"
    text = f"name: {word}\ncorpus: {sides}"
    config = config_of_text(text, "f.yaml", [f"corpus.target={word}"])
    assert (config.name, *config.corpus.languages, config.corpus.train[0].columns[0]) == (word,) * 4
    assert config_of_text(config.to_yaml(), "g.yaml") == config
    # Readers of YAML 1.1 read it back, too.
    assert yaml.safe_load(config.to_yaml())["corpus"]["source"] == word
    assert yaml.safe_load(on_one_line({word: word})) == {word: word}
    assert parse_yaml("[true, True, TRUE, false, False, FALSE]", "x.yaml") == [True] * 3 + [False] * 3


LIKE_NUMBERS = st.sampled_from(["1e3", "1E5", "0x1F", "1_000", "1:30", "2026-01-01", "yes", "null", "012", "1.5", "_"])
ODD_CHARACTERS = st.text(st.sampled_from("a1 e-.:#'\"\n\t\x85\u2028\u2029\ufeff\U0001f600,[]{}&*!|>%@`\\"), min_size=1)


@settings(max_examples=40)
@given(LIKE_NUMBERS.filter(RUN_NAME.fullmatch) | st.from_regex(RUN_NAME, fullmatch=True), LIKE_NUMBERS | ODD_CHARACTERS)
def test_any_name_is_read_back_as_it_was_written(name, path):
    tree = with_values(name=name)
    label = "t" + path.replace("\\", "")
    tree["corpus"] |= {"train": {"files": [path, "x"]}, "extra_tests": {label: {"file": path}}}
    config = parse_config(tree, "f.yaml")
    assert config_of_text(config.to_yaml(), "g.yaml") == config
    flow = "".join(f"{key}: {on_one_line(value)}  # why\n" for key, value in tree.items())
    assert flow.count("\n") == len(tree) and config_of_text(flow, "h.yaml") == config


STREAM = {"corpus__train": {"dataset": "d", "streaming": True}, "corpus__valid": {"file": "v"}}


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"model__d_model": "x", "model__dropout": 2.0}, "model.d_model model.dropout"),
        (
            STREAM | {"training__schedule": "cosine"},
            "training.validate_every_steps training.max_steps",
        ),
        ({"model__d_model": 63, "tokenizer__bpe_dropout": 0.1}, "tokenizer.bpe_dropout model.num_heads model.d_model"),
        (STREAM | {"corpus__valid": {"fraction": 0.1}, "corpus__temperature": 2.0}, "corpus.temperature corpus.valid"),
    ],
)
def test_all_problems_are_listed_at_once_each_with_its_key(changes, keys):
    text = message_for(with_values(**changes))
    assert text.startswith(f"f.yaml: {len(keys.split())} problems:\n")
    assert sorted(re.findall(r"^  (\S+): ", text, flags=re.MULTILINE)) == sorted(keys.split())


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"name": "../elsewhere"}, "name"),
        ({"corpus__train": {"flies": ["a", "b"]}}, "corpus.train"),
        ({"corpus__valid": [{"fraction": 0.1}, {"builtin": "reverse-words"}]}, "corpus.valid"),
        ({"corpus__extra_tests": {"../x": {"builtin": "reverse-words"}}}, "corpus.extra_tests"),
        ({"corpus__protect": ["/+39 [0-9]+/"]}, "corpus.protect"),
        ({"model": {"positions": "rotary", "d_model": 20}}, "model.positions"),
        ({"training": {"schedule": "linear", "max_epochs": None, "patience": 5}}, "training.schedule"),
        ({"training__max_steps": 10**4000}, "training.max_steps"),
    ],
)
def test_a_wrong_value_is_one_line_with_its_key(changes, key):
    text = message_for(with_values(**changes))
    assert text.startswith(f"f.yaml: {key}: ") and "\n" not in text and len(text) < 300


@pytest.mark.parametrize(
    ("content", "place"),
    [(b"a: [1", "line 1"), (b"a: 1\na: 2", "line 2"), (b"a: &x [1]\nb: *x", "line 2"), (b"- 1", ""), (b"\xe9", "")],
)
def test_a_file_that_is_no_config_is_named(tmp_path, content, place):
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=f"c.yaml.*{place}"):
        load_config(tmp_path / "c.yaml")


def test_ten_epochs_are_the_length_where_no_other_is_given():
    lengths = (({}, 10), ({"patience": 3}, 10), ({"max_steps": 500}, None), ({"max_minutes": 30.0}, None))
    for training, expected in (*lengths, ({"max_minutes": 30.0, "max_epochs": 10}, 10)):
        config = parse_config(SMALLEST | {"training": training}, "f.yaml")
        assert config.training.max_epochs == expected
        assert parse_config(yaml.safe_load(config.to_yaml()), "g.yaml") == config
    stream = STREAM | {"training__validate_every_steps": 10, "training__schedule": "cosine"}
    assert parse_config(with_values(training__max_minutes=5, **stream), "f.yaml")
    assert "training.max_steps: " in message_for(with_values(**stream))


ODD_YAML = [
    *("a: !!timestamp abc", "a: !!int ''", "a: !!binary x", "a: !!python/name:os.x", 'a: "\\UFFFFFFFF"', "<<: 3"),
    *(f"a: {'9' * 5000}", f"a: 0x{'f' * 5000}", f"a: 1:1{':1' * 999}", "[" * 1200, "{a: " * 1200, "a: \0", "a: '"),
    *("? [a]\n: 1", "? {a: 1}\n: 1", "{? [a, b]: 1}", "{a: 1}: 3", "[1]: 3", "a: &a [*a]"),
]


def test_any_yaml_is_a_tree_or_one_message():
    for text in ODD_YAML:
        try:
            assert parse_yaml(text, "x.yaml")
        except ConfigError as error:
            assert re.match(r"x\.yaml(, line \d+, column \d+)?: .", str(error)) and "\n" not in str(error)
    assert parse_yaml("a: [1, 0x1f, 1e3, 12:30, .inf, 2001-01-01]", "x.yaml")["a"][1:3] == [31, 1000.0]


@pytest.mark.parametrize("value", [-1e300, float("inf"), float("nan"), 10**400])
def test_no_option_takes_a_number_that_fp32_cannot_hold(value):
    tree = parse_config(SMALLEST, "f.yaml").model_dump(mode="json")
    places = [(parent, key) for parent, key in places_in(tree) if key not in ("valid", "train")]
    for parent, key in places:
        kept, parent[key] = parent[key], value
        with pytest.raises(ConfigError, match=str(key) if isinstance(parent, dict) else None):
            parse_config(tree, "f.yaml")
        parent[key] = kept


COMPLETE = parse_config(
    with_values(
        corpus__train=[
            {"dataset": "d"},
            {"files": ["a", "b"], "filters": {}},
            {"file": "c"},
            {"builtin": "reverse-words"},
        ],
        corpus__valid={"file": "v"},
        corpus__extra_tests={"more": [{"file": "t", "languages": ["fr", "it"]}]},
    ),
    "f.yaml",
).model_dump(mode="json")
# JSON has one type of numbers: 1.0 is an integer for a schema, and none for the loader.
VALUES = [
    *(None, True, False, -1, 0, 1, 7, 0.5, 1.5, 3000.5, "", "x", "x y", "a" * 60, "auto", "bpe", "post", "char", "mps"),
    *([], ["a"], ["a", "b"], ["a", "b", "c"], [1, 2], [0.5, 0.9], [1.5, 0.5], [{}], [{"file": "f"}], {"fraction": 0.5}),
    *({}, {"fraction": 2}, {"x": {"file": "f"}}, {"x": []}, {"file": "f", "files": ["a", "b"]}, {"builtin": "x"}),
]
SCHEMA = jsonschema.Draft202012Validator(json.loads(schema()))


def places_in(tree):
    """Each mapping and list of a tree with each of its keys or indices."""
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(child, dict | list):
            yield from places_in(child)


@settings(max_examples=50)
@given(
    st.integers(0, len(list(places_in(COMPLETE))) - 1),
    st.sampled_from(["change", "remove", "add"]),
    st.sampled_from(VALUES),
)
def test_the_schema_and_the_loader_accept_the_same_trees(place, what, value):
    tree = copy.deepcopy(COMPLETE)
    parent, key = list(places_in(tree))[place]
    if what == "change":
        parent[key] = value
    elif what == "remove":
        del parent[key]
    elif isinstance(parent, dict):
        parent["other"] = value
    try:
        Config.model_validate(tree)
    except ValidationError as error:
        problems = {problem["type"] for problem in error.errors()}
        # Rules about names and between options ("value_error") are not in the schema.
        assert problems == {"value_error"} or not SCHEMA.is_valid(tree)
    else:
        assert SCHEMA.is_valid(tree)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_above_defaults_and_below_yaml(tmp_path, name):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(with_values(preset=name, model__dropout=0.25)), encoding="utf-8")
    config = load_config(path, ["training.warmup_steps=7"])
    own = {f"{section}.{key}": value for section, values in PRESETS[name].items() for key, value in values.items()}
    defaults = flat(parse_config(SMALLEST, "f.yaml"))
    assert flat(config) == defaults | own | {"model.dropout": 0.25, "training.warmup_steps": 7}
    assert config.preset is None


def test_base_and_big_have_the_sizes_of_the_paper():
    # Vaswani et al. 2017, table 3.
    sizes = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
    assert [PRESETS["base"]["model"][key] for key in sizes] == [512, 2048, 8, 6, 6]
    assert [PRESETS["big"]["model"][key] for key in sizes] == [1024, 4096, 16, 6, 6]


def test_a_preset_yields_to_what_contradicts_it():
    for preset in ("tiny", "base"):
        config = parse_config(with_values(preset=preset, tokenizer__algorithm="word_level"), "f.yaml")
        assert config.tokenizer.vocab_size is None
        config = parse_config(with_values(preset=preset, tokenizer__shared=False), "f.yaml")
        assert config.model.tie_embeddings == "target"
        for limit, expected in {"max_steps": (70, None), "max_epochs": (None, 70), "max_minutes": (None, None)}.items():
            training = parse_config(with_values(preset=preset, training={limit: 70}), "f.yaml").training
            assert (training.max_steps, training.max_epochs) == expected
    for preset, optimizer, rate in (("tiny", "adamw", 1e-3), ("tiny", "muon", 8e-3), ("base", "adamw", 7e-4)):
        config = parse_config(with_values(preset=preset, training={"optimizer": optimizer}), "f.yaml")
        assert config.training.learning_rate == rate
    assert "3 heads" in message_for(with_values(preset="tiny", model={"num_heads": 3, "d_model": 128}))
    assert message_for(with_values(preset="huge")).startswith("f.yaml: preset: ")
