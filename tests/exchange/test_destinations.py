"""Which program can hold which model: one table for exporters, `mt init`, the start of a run, reports and cards."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.loading import differences, parse_config
from mt_cli.errors import InputError
from mt_cli.exchange.destinations import (
    DESTINATIONS,
    check_destination,
    describe_destinations,
    obstacles,
)

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
MODELS = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["sinusoidal", "rotary"]),
        "activation": st.sampled_from(["relu", "gelu", "silu", "swiglu"]),
        "norm_order": st.sampled_from(["pre", "post"]),
        "tie_embeddings": st.sampled_from(["none", "target"]),
        "qkv_bias": st.booleans(),
        "output_bias": st.booleans(),
    }
)
TOKENIZERS = st.fixed_dictionaries(
    {
        "algorithm": st.sampled_from(["word_level", "bpe", "unigram", "char"]),
        "shared": st.booleans(),
        "normalize": st.sampled_from([[], ["nfkc"]]),
        "letters": st.sampled_from([{}, {"ã": "â"}]),
    }
)


def config_of(corpus=(), **sections):
    return parse_config({"name": "t", "corpus": CORPUS | dict(corpus), **sections}, "t.yaml")


def with_advice(config, problems):
    tree = config.model_dump(mode="json", exclude_unset=True)
    for problem in problems:
        section, _, key = problem.key.partition(".")
        tree.setdefault(section, {})[key] = problem.instead
    return parse_config(tree, "t.yaml")


@given(MODELS, TOKENIZERS, st.sampled_from(list(DESTINATIONS)))
def test_a_model_that_follows_the_advice_fits(model, tokenizer, program):
    config = config_of(model=model, tokenizer=tokenizer)
    problems = obstacles(config, program)
    fitted = with_advice(config, problems)
    assert obstacles(fitted, program) == []
    changed = {re.match(r"\w+\.\w+", key)[0] for key in differences(fitted, config)}
    assert changed == {problem.key for problem in problems}
    check_destination(fitted, program)
    if problems:
        with pytest.raises(InputError) as caught:
            check_destination(config, program)
        for problem in problems:
            assert problem.setting in str(caught.value) and problem.advice in str(caught.value)
        assert f"; not {program}: {', '.join(each.setting for each in problems)}" in describe_destinations(config)
    else:
        assert program in describe_destinations(config).partition(";")[0].split(", ")


@pytest.mark.parametrize(
    ("corpus", "key", "instead"),
    [
        ({"tag": "direction"}, "corpus.tag", None),
        ({"tag": "direction", "both_directions": True}, "corpus.tag", "to_target"),
        ({"train": CORPUS["train"] | {"tag": "formal"}}, "tag", "<formal>"),
        ({"train": CORPUS["train"] | {"tag": "<formal>"}}, None, None),
        ({"protect": ["printf"]}, "corpus.protect", []),
    ],
)
def test_argos_is_advised_what_it_can_hold(corpus, key, instead):
    corpus = {"valid": {"files": ["a.en", "a.it"]}} | corpus
    problems = obstacles(config_of(corpus, tokenizer={"algorithm": "bpe", "spacing": "sentencepiece"}), "argos")
    assert [(problem.key, problem.instead) for problem in problems] == ([(key, instead)] if key else [])


def test_an_impossible_export_is_refused_before_the_weights_are_read(mt, trained, tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "tokenizer.source.json", "tokenizer.target.json"):
        (tmp_path / "run" / name).write_bytes((trained / name).read_bytes())
    status, _, err = mt("export", "--run", "run", "--format", "huggingface", "--output", "new")
    assert status == 2 and len(err.splitlines()) == 1 and "mt init --for huggingface" in err
    assert not (tmp_path / "new").exists()
