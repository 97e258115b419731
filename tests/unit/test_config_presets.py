import pytest
import yaml

from mt_cli.config.loading import flat, load_config, parse_config
from mt_cli.config.presets import PRESETS
from mt_cli.errors import ConfigError

CORPUS = {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}}


def tree(preset, **sections):
    return {"name": "t", "corpus": CORPUS, "preset": preset, **sections}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_above_defaults_and_below_yaml_and_set(tmp_path, name):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree(name, model={"dropout": 0.25})), encoding="utf-8")
    config = load_config(tmp_path / "c.yaml", ["training.warmup_steps=7"])
    own = {f"{section}.{key}": value for section, values in PRESETS[name].items() for key, value in values.items()}
    defaults = flat(parse_config(tree(None), "f.yaml"))
    expected = defaults | own | {"model.dropout": 0.25, "training.warmup_steps": 7}
    assert flat(config) == expected
    assert config.preset is None
    assert parse_config(yaml.safe_load(config.to_yaml()), "g.yaml") == config


def test_base_and_big_have_the_sizes_of_the_paper():
    # Vaswani et al. 2017, table 3.
    sizes = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
    assert [PRESETS["base"]["model"][key] for key in sizes] == [512, 2048, 8, 6, 6]
    assert [PRESETS["big"]["model"][key] for key in sizes] == [1024, 4096, 16, 6, 6]


def test_values_that_would_contradict_the_config_are_left_out():
    for preset in ("tiny", "base"):
        config = parse_config(tree(preset, tokenizer={"algorithm": "word_level"}), "f.yaml")
        assert config.tokenizer.vocab_size is None
        config = parse_config(tree(preset, tokenizer={"shared": False}), "f.yaml")
        assert config.model.tie_embeddings == "target"
        for limit, expected in {"max_steps": (70, None), "max_epochs": (None, 70), "max_minutes": (None, None)}.items():
            training = parse_config(tree(preset, training={limit: 70}), "f.yaml").training
            assert (training.max_steps, training.max_epochs) == expected


def test_values_that_do_not_fit_together_are_an_error_that_names_them():
    with pytest.raises(ConfigError, match=r"num_heads: 3 heads do not divide d_model 128"):
        parse_config(tree("tiny", model={"num_heads": 3, "d_model": 128}), "f.yaml")
    with pytest.raises(
        ConfigError, match=r"preset: found 'huge'; it should be 'tiny', 'small', 'base', 'big' or 'auto'"
    ):
        parse_config(tree("huge"), "f.yaml")
