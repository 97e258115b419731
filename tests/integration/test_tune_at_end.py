import json
import shutil
from typing import Any

import pytest
import yaml

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import load_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.evaluation.tuning import Limits, TuningTime, tune_at_end


def decoding_of(run):
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["decoding"]


def test_later_commands_use_the_penalty_that_training_chose(mt, tiny_tree, tmp_path):
    tiny_tree["corpus"]["valid"] = {"fraction": 0.3}
    tiny_tree["training"] |= {"max_epochs": 3, "learning_rate": 0.01, "tune_decoding": True}
    tiny_tree["decoding"]["length_penalty"] = 0.125
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    command, run = ("train", "--config", "tiny.yaml"), tmp_path / "runs/tiny"
    status, _, err = mt(*command)
    assert status == 0, err
    decoding = decoding_of(run)
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert json.loads(mt("evaluate", "--run", run, "--json")[1])["bleu"] == report["bleu"]
    status, _, err = mt(*command, "--set", "decoding.length_penalty=0.5")
    assert status == 0 and decoding_of(run) == decoding
    status, _, err = mt(*command, "--set", "decoding.length_penalty=0.5", "--set", "training.tune_decoding=false")
    assert status == 0 and decoding_of(run)["length_penalty"] == 0.5


@pytest.fixture
def end(trained, tmp_path, capsys):
    """Tunes a copy of the trained run with options: the options of its search afterwards, and standard error."""
    run = shutil.copytree(trained, tmp_path / "tiny")

    def tune(limits: dict[str, Any], seconds=1000.0, **decoding):
        config = load_config(run / "config.yaml", [f"decoding.{key}={value}" for key, value in decoding.items()])
        (run / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
        data = prepare(config, Cache(tmp_path / "cache"))
        limits = Limits(**{"fewest_pairs": 1, "penalties": (0.25,), "no_repeat_ngrams": (None,)} | limits)
        tune_at_end(RunDirectory(run), config, data, "cpu", "fp32", TuningTime(seconds), limits)
        return decoding_of(run), capsys.readouterr().err

    return tune


def test_the_options_of_the_config_are_tried_too(end):
    decoding, err = end({"penalties": (), "no_repeat_ngrams": ()}, length_penalty=0.125, no_repeat_ngram=3)
    assert (decoding["length_penalty"], decoding["no_repeat_ngram"]) == (0.125, 3), err


@pytest.mark.parametrize(
    ("limits", "decoding", "note"),
    [
        ({}, {"sample": "true"}, ""),
        ({"fewest_pairs": 41}, {}, "valid has 40 pairs"),
        ({"least_seconds": 0.0, "share_of_time": 0.0}, {}, "mt tune-decoding --run"),
    ],
)
def test_a_search_that_cannot_be_tuned_stays_as_it_is(end, limits, decoding, note):
    options, err = end(limits, **decoding)
    assert options["length_penalty"] == 1.0 and note in err and "Chosen" not in err
