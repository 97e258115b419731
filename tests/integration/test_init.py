import pytest
import yaml

from mt_cli.config.loading import load_config


@pytest.fixture
def auto(tiny_tree, tmp_path):
    """A config with `preset: auto`, of two epochs in small batches."""
    del tiny_tree["model"]
    tiny_tree |= {"preset": "auto"}
    tiny_tree["training"] = {"max_epochs": 2, "batch_tokens": 400, "log_every_steps": 1, "device": "cpu"}
    (tmp_path / "auto.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return "auto.yaml"


def test_a_run_of_preset_auto_says_what_it_chose_and_has_plain_values(mt, auto, tmp_path):
    status, _, err = mt("train", "--config", auto)
    assert status == 0, err
    assert "preset auto: 360 pairs" in err
    for words in (
        "tokenizer  algorithm bpe",
        "model      d_model 128",
        "of the config  training.max_epochs 2",
        "expect ",
    ):
        assert f"\n  {words}" in err
    path = tmp_path / "runs/tiny/config.yaml"
    config = load_config(path)
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["preset"] is None
    assert (config.tokenizer.algorithm, config.tokenizer.shared, config.model.d_model) == ("bpe", True, 128)
    assert (config.training.max_epochs, config.training.batch_tokens) == (2, 400)
    status, _, err = mt("train", "--config", "runs/tiny/config.yaml")
    assert (status, "preset" in err, "This run is finished" in err) == (0, False, True)


@pytest.mark.parametrize("stopped_by", ["training.max_epochs=1", "training.max_minutes=0.001"])
def test_a_run_of_preset_auto_resumes_with_the_values_it_began_with(mt, auto, tmp_path, assert_same_run, stopped_by):
    common = ("train", "--config", auto, "--set", "training.schedule=constant")
    assert mt(*common)[0] == 0
    assert mt(*common, "--set", "name=stopped", "--set", stopped_by)[0] == 0
    status, _, err = mt(*common, "--set", "name=stopped")
    assert status == 0, err
    assert "Resuming from step" in err and "preset" not in err
    assert_same_run(tmp_path / "runs/stopped", tmp_path / "runs/tiny")


def test_every_command_with_a_config_reads_preset_auto(mt, auto):
    for command in (("tokenize",), ("data", "check"), ("data", "show")):
        status, out, err = mt(*command, "--config", auto)
        assert status == 0, err
        assert "preset auto: 360 pairs" in err
        assert "preset" not in out
