import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import ModelConfig
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.machine.console import truncate
from mt_cli.model.transformer import Transformer
from mt_cli.run.validation import Validator, sample_lines
from mt_cli.training.averaging import in_format
from mt_cli.training.objective import Objective


def columns_of(text):
    return sum(0 if unicodedata.category(each) in ("Mn", "Me", "Cf") else 1 + (each in "日本語") for each in text)


@given(st.text(st.sampled_from("ab \u0301\u200d日本語\x1b\x07\u202e"), max_size=40), st.integers(1, 20))
def test_a_text_never_takes_more_columns_than_there_are_and_is_cut_only_if_it_must_be(text, num_columns):
    shown = truncate(text, num_columns)
    assert columns_of(shown) <= num_columns
    whole = truncate(text, 1000)
    assert shown == whole if columns_of(whole) <= num_columns else whole.startswith(shown.removesuffix("…"))
    assert shown == whole or columns_of(shown) >= num_columns - 1


@given(st.text(max_size=40))
def test_nothing_in_a_text_steers_the_terminal(text):
    assert all(each.isprintable() or each in "\u200c\u200d" for each in truncate(text, 1000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twelve chars", "twelve chars"),
        ("thirteen char", "thirteen ch…"),
        ("日本語日本語", "日本語日本語"),
        ("日本語日本語日", "日本語日本…"),
        ("e\u0301" * 12, "e\u0301" * 12),
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("a\tb\u2028c\u00a0d\ne", "a b c d e"),
        ("\u202eab\ufeff", "ab"),
        ("می\u200cروم", "می\u200cروم"),
    ],
)
def test_a_text_is_shown_in_twelve_columns(text, expected):
    assert truncate(text, 12) == expected


def test_two_samples_are_shown_with_their_labels():
    samples = [("a", "b", "c"), ("d" * 99, "e", "f"), ("g", "h", "i")]
    assert sample_lines(samples, 80) == [
        "  source      a",
        "  reference   b",
        "  hypothesis  c",
        "  source      " + "d" * 65 + "…",
        "  reference   e",
        "  hypothesis  f",
    ]
    assert sample_lines([], 80) == []


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


def test_a_model_in_another_format_has_the_same_ties_and_buffers():
    model = Transformer(ModelConfig(d_model=16, d_ff=16, num_heads=2), 9, 9)
    assert in_format(model, torch.float32) is model
    copy = in_format(model, torch.bfloat16)
    assert copy.projection.weight is copy.target_embedding.table.weight
    assert {weight.dtype for weight in copy.parameters()} == {torch.bfloat16}
    weights = zip(model.parameters(), copy.parameters(), strict=True)
    assert all(torch.equal(ours.bfloat16(), theirs) for ours, theirs in weights)
    assert all(ours is theirs for ours, theirs in zip(model.buffers(), copy.buffers(), strict=True))
