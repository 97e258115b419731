from contextlib import nullcontext

import pytest
import torch

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import InitConfig
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.decoding import predictor as predictor_module
from mt_cli.decoding import transformer_engine as engine_module
from mt_cli.decoding.predictor import Predictor
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.model.adapters import add_adapters
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer
from mt_cli.run.validation import Validator
from mt_cli.runtime.console import truncate
from mt_cli.training.averaging import MovingAverage


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("日本語日本語日", "日本語日本…"),
        ("e\u0301" * 12, "e\u0301" * 12),
        ("a\x1b[31mb\x07\u202ec\u2028d", "a\ufffd[31mb\ufffdc d"),  # Nothing steers the terminal.
    ],
)
def test_a_text_is_shown_in_twelve_columns(text, shown):
    assert truncate(text, 12) == shown


@pytest.fixture
def a_model(tiny_tree, tmp_path):
    """A function that makes a model of the tiny config with other options, and arguments of its validators."""

    def make(dtype, **options):
        tiny_tree["model"] |= options
        config = parse_config(tiny_tree, "tiny.yaml")
        data = prepare(config, Cache(tmp_path))
        model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in data.tokenizers))
        return model, (data, config, dtype)

    return make


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_validation_computes_in_the_format_of_training(a_model, dtype):
    """And leaves the weights alone."""
    model, arguments = a_model(dtype)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    validation = Validator(model, *arguments).validate()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) and weight.dtype == torch.float32
    data, config, _ = arguments
    objective = Objective(model.to(dtype), config.training)
    assert validation.loss == score_tokens(objective, data.encoded["valid"], 200).loss


@pytest.mark.parametrize(
    ("dtype", "options", "adapter_rank"),
    [
        (torch.float32, {"positions": "rotary"}, None),
        (torch.bfloat16, {"tie_embeddings": "none", "positions": "rotary", "activation": "swiglu"}, None),
        (torch.bfloat16, {"norm_order": "post", "output_bias": True}, 2),
    ],
    ids=str,
)
def test_validations_share_an_engine_with_the_current_weights(a_model, monkeypatch, dtype, options, adapter_rank):
    """Each equals the validation by a new engine, and captured steps stay; with averaged weights and adapters, too."""
    monkeypatch.setattr(predictor_module, "_STEPS_BEFORE_CAPTURE", 0)
    monkeypatch.setattr(engine_module, "Predictor", lambda model: Predictor(model, captures=True))
    model, arguments = a_model(dtype, **options)
    add_adapters(model, InitConfig(run="parent", adapter_rank=adapter_rank))
    average, validator, texts = MovingAverage(model, 0.5), Validator(model, *arguments), []
    sources = [source for source, _ in arguments[0].corpora["valid"].pairs]
    for step in (1, 2):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
        average.update(step)
        with average.applied() if step % 2 else nullcontext():
            new = Validator(model, *arguments)
            assert validator.validate() == new.validate()
            texts.append(validator.translator(arguments[1].decoding).translate(sources))
            assert texts[-1] == new.translator(arguments[1].decoding).translate(sources)
    assert len(set(map(tuple, texts))) == 2
    num_captured = validator._engine.predictor.num_captured
    validator.validate()
    assert validator._engine.predictor.num_captured == num_captured > 0
