import pytest
import torch

from mt_cli.config.sections import InitConfig, ModelConfig
from mt_cli.errors import ConfigError
from mt_cli.model.adapters import (
    LowRankLinear,
    add_adapters,
    check_trainable,
    freeze,
    merge_adapters,
    saved_weights,
)
from mt_cli.model.transformer import Transformer

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 1}


def adapted(**init):
    torch.manual_seed(3)
    model = Transformer(ModelConfig(**SIZES, activation="swiglu", dropout=0.0), 40, 50).eval()
    config = InitConfig(run="parent", adapter_rank=4, **init)
    freeze(model, config.freeze)
    add_adapters(model, config)
    return model


def logits(model):
    ids = torch.arange(4, 28).view(3, 8)
    return model(ids, ids.flip(0))


def test_new_adapters_change_nothing_and_merged_ones_compute_as_before():
    torch.manual_seed(3)
    plain = Transformer(ModelConfig(**SIZES, activation="swiglu", dropout=0.0), 40, 50).eval()
    model = adapted()
    assert torch.equal(logits(model), logits(plain))
    for name, weight in saved_weights(model).items():
        if name.endswith("up"):
            torch.nn.init.normal_(weight)
    before = logits(model)
    merge_adapters(model)
    assert not any(isinstance(module, LowRankLinear) for module in model.modules())
    assert all(weight.requires_grad for weight in model.parameters())
    torch.testing.assert_close(logits(model), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("init", "named"),
    [
        ({"freeze": ("encoder", "decoder")}, "freeze"),
        ({"adapter_rank": 17}, "adapter_rank"),
        ({"freeze": ("decoder.3",)}, "decoder.0"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(init, named):
    model = Transformer(ModelConfig(**SIZES), 40, 50)
    with pytest.raises(ConfigError, match=named):
        check_trainable(model, InitConfig(**{"run": "parent", "adapter_rank": 4} | init))
