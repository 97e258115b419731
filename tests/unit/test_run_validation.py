import pytest
import torch

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.machine.console import truncate
from mt_cli.model.transformer import Transformer
from mt_cli.run.validation import Validator
from mt_cli.training.objective import Objective

SHOWN = {
    "twelve chars": "twelve chars",
    "thirteen char": "thirteen ch…",
    "日本語日本語": "日本語日本語",
    "日本語日本語日": "日本語日本…",
    "e\u0301" * 12: "e\u0301" * 12,
    "a\x1b[31mb\x07": "a\ufffd[31mb\ufffd",  # Nothing steers the terminal.
    "a\tb\u2028c\u00a0d\ne": "a b c d e",
    "\u202eab\ufeff": "ab",
    "می\u200cروم": "می\u200cروم",
}


def test_a_text_is_shown_in_twelve_columns():
    assert {text: truncate(text, 12) for text in SHOWN} == SHOWN


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_validation_computes_in_the_format_of_training_and_leaves_the_weights_alone(tiny_tree, tmp_path, dtype):
    config = parse_config(tiny_tree, "tiny.yaml")
    data = prepare(config, Cache(tmp_path))
    model = Transformer(config.model, *(each.vocab_size for each in data.tokenizers))
    objective = Objective(model, config.training)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = Validator(objective, data, config, dtype).validate()
    after = model.state_dict()
    assert all(torch.equal(after[name], before[name]) and after[name].dtype == torch.float32 for name in before)

    def loss_of(model):
        return score_tokens(Objective(model, config.training), data.encoded["valid"], 200).loss

    exact = loss_of(model)
    assert found.loss == loss_of(model.to(dtype))
    assert (found.loss == exact) == (dtype == torch.float32)
    assert found.loss == pytest.approx(exact, abs=0.05)
