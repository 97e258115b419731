import pytest

from mt_cli.runtime.console import truncate


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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_validation_computes_in_the_format_of_training(tiny_tree, tmp_path, precision):
    """And leaves the weights alone."""
    import torch

    from mt_cli.config.loading import parse_config
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.prepare import prepare
    from mt_cli.evaluation.token_loss import score_tokens
    from mt_cli.model.loss import Objective
    from mt_cli.model.transformer import Transformer
    from mt_cli.run.validation import Validator

    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    config = parse_config(tiny_tree, "tiny.yaml")
    data = prepare(config, Cache(tmp_path))
    model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in data.tokenizers))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = Validator(model, data, config, dtype).validate()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]) and weight.dtype == torch.float32
    objective = Objective(model.to(dtype), config.training)
    assert found.loss == score_tokens(objective, data.encoded["valid"], 200).loss
