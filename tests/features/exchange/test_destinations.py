"""Which program can hold which model: one table for exporters, `mt init`, the start of a run, reports and cards."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import differences, load_config, parse_config
from mt_cli.config.presets import PRESETS
from mt_cli.errors import InputError
from mt_cli.features.exchange.card import model_card
from mt_cli.features.exchange.destinations import (
    DESTINATIONS,
    check_destination,
    describe_destinations,
    note_on_protection,
    obstacles,
)
from mt_cli.reporting.report import RunSummary

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}
MODELS = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["sinusoidal", "learned", "rotary"]),
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
        "byte_fallback": st.booleans(),
        "lowercase": st.booleans(),
        "normalize": st.sampled_from([[], ["nfc"]]),
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
def test_a_model_that_follows_the_advice_fits_and_one_that_fits_gets_none(model, tokenizer, program):
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
        for part in (f"--format {program}: ", f"mt init --for {program}", *(each.setting for each in problems)):
            assert part in str(caught.value)
        assert all(problem.advice in str(caught.value) for problem in problems)
        assert f"; not {program}: {', '.join(each.setting for each in problems)}" in describe_destinations(config)
    else:
        assert program in describe_destinations(config).partition(";")[0].split(", ")


@pytest.mark.parametrize(("both_directions", "advice"), [(False, "corpus.tag: null"), (True, "corpus.tag: to_target")])
def test_a_model_with_tags_of_directions_is_told_the_tag_that_argos_can_hold(both_directions, advice):
    valid = {"builtin": "phrasebook-en-it", "split": "valid"}
    corpus = {"tag": "direction", "both_directions": both_directions, "valid": valid}
    config = config_of(corpus, tokenizer={"algorithm": "bpe", "spacing": "sentencepiece"})
    with pytest.raises(InputError, match=f"cannot hold corpus.tag: direction; .* with {advice} "):
        check_destination(config, "argos")
    instead = advice.partition(": ")[2]
    fitted = corpus | {"tag": None if instead == "null" else instead}
    assert not obstacles(config_of(fitted, tokenizer={"algorithm": "bpe", "spacing": "sentencepiece"}), "argos")


def test_the_page_names_the_shipped_configs_that_transformers_holds(root):
    rows = re.findall(r"^\| (`.+) \| (yes|no: .+?) \| (.*?) ?\|$", (root / "docs/export.md").read_text("utf-8"), re.M)
    held = {name: value == "yes" for names, value, _ in rows for name in re.findall(r"`(\w+)`", names)}
    configs = {path.stem: load_config(path) for path in (root / "configs").glob("*.yaml")}
    configs |= {preset: config_of(preset=preset) for preset in PRESETS}
    assert {name: not obstacles(config, "huggingface") for name, config in configs.items()} == {
        name: held[name] for name in configs
    }
    num_held = sum(held[path.stem] for path in (root / "configs").glob("*.yaml"))
    assert all(obstacles(config, "argos") for config in configs.values())
    assert num_held == 2 and len(list((root / "configs").glob("*.yaml"))) == 6


def test_spans_are_protected_only_where_mt_runs_the_model():
    config = config_of({"protect": ["printf"]}, tokenizer={"algorithm": "bpe"})
    assert [problem.key for problem in obstacles(config, "argos")] == ["tokenizer.spacing", "corpus.protect"]
    for program, destination in DESTINATIONS.items():
        assert (note_on_protection(config, program) is None) == destination.protects_spans
        assert note_on_protection(config_of(), program) is None


def test_a_run_says_where_it_can_go_before_training_in_its_report_and_in_its_card(mt, trained, tmp_path):
    (tmp_path / "run").symlink_to(trained)
    config = TrainedRun.load(trained).config
    line = describe_destinations(config)
    assert "; not huggingface: " in line
    status, _, err = mt("train", "--config", "run/config.yaml", "--set", "name=new", "--set", "training.max_steps=1")
    assert status == 0 and f"  exports to  {line}\n" in err, err
    assert mt("report", "--run", "run", "--output", "page.html")[0] == 0
    assert line in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert line in model_card(RunSummary("run", config, [], [], None), None)


def test_an_export_that_cannot_be_is_refused_before_the_weights_are_read(mt, trained, tmp_path):
    run = tmp_path / "run/checkpoints"
    run.mkdir(parents=True)
    for name in ("config.yaml", "tokenizer.source.json", "tokenizer.target.json"):
        (tmp_path / "run" / name).write_bytes((trained / name).read_bytes())
    status, _, err = mt("export", "--run", "run", "--format", "huggingface", "--output", "new")
    assert status == 2 and len(err.splitlines()) == 1 and "mt init --for huggingface" in err
    assert not (tmp_path / "new").exists()
    for command in (("export", "--output", "new", "--format"), ("init", "--files", "a", "b", "--for")):
        status, _, err = mt(*command, "onnx")
        assert status == 2 and all(program in err for program in DESTINATIONS)
