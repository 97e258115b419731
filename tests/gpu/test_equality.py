"""Results on a GPU are those on a CPU."""

import itertools

import pytest
import torch
import yaml
from run_content import checkpoint_content
from tiny_models import some_pairs, tiny_model, weights_of

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batches import MixedPairs
from mt_cli.model.loss import Objective
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import optimization_steps
from mt_cli.training.update import Update
from mt_cli.translation.translator import Translator

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Of the compiler.
]
DEVICES = ("cuda", "cpu")


def an_objective(device, **options):
    """A small objective, always with the same weights; no key has a bias, whose gradient is noise."""
    sizes = {"d_model": 32, "d_ff": 64, "num_encoder_layers": 2, "num_decoder_layers": 2, "qkv_bias": False}
    return Objective(tiny_model(vocab_size=50, **sizes | options), TrainingConfig()).to(device)


def steps_on(device, number=5, dtype=torch.float32, model=(), **options):
    """The loss per token of each of some steps, and the weights after them, on the CPU."""
    objective = an_objective(device, **dict(model))
    config = TrainingConfig(batch_tokens=200, warmup_steps=0, **options)
    pairs = MixedPairs(some_pairs(40, 50, 12), [1.0], config.tokens_per_batch, config.seed)
    update = Update(GradientAccumulator(objective, dtype), build_optimizer(objective, config), config)
    reports = list(itertools.islice(optimization_steps(update, pairs, config, lambda step: 2e-3, Position()), number))
    assert all(bool(report.is_finite) for report in reports)
    return [report.cross_entropy.item() / report.num_target_tokens for report in reports], weights_of(objective)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"model": {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"}}, 0.01),
        ({"model": {"norm_order": "post", "output_bias": True}, "r_drop": 2.0}, 0.01),
        # Muon rounds to bf16 where the hardware is fast at it.
        ({"optimizer": "muon", "micro_batches_per_step": 2}, 0.1),
    ],
    ids=str,
)
def test_steps_in_fp32_are_those_of_a_cpu(options, tolerance):
    (losses, weights), (expected_losses, expected) = (steps_on(device, **options) for device in DEVICES)
    change = (expected - weights_of(an_objective("cpu", **options.get("model", {})))).norm()
    assert losses == pytest.approx(expected_losses, rel=1e-3)
    assert (weights - expected).norm() <= tolerance * change


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_in_half_precision_are_near_those_in_fp32(dtype):
    (losses, _), (expected, _) = (steps_on("cuda", number=30, dtype=kind) for kind in (dtype, torch.float32))
    assert losses == pytest.approx(expected, rel=0.03)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("decoding", [{"beam_size": 1}, {"beam_size": 4}, {"sample": True, "top_p": 0.9}], ids=str)
def test_translations_in_fp32_are_those_of_a_cpu(decoding, corpus, trained):
    sentences = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    found, expected = (
        Translator.load(trained, device, "fp32").translate_fully(sentences, **decoding) for device in DEVICES
    )
    assert [item.text for item in found] == [item.text for item in expected]
    assert [item.score for item in found] == pytest.approx([item.score for item in expected], abs=1e-3)


@pytest.fixture
def train(mt, tiny_tree, tmp_path):
    """Trains the tiny config with other options; returns standard error."""
    tiny_tree["corpus"] |= {"valid": {"fraction": 0.02}, "test": None}
    tiny_tree["model"] |= {"qkv_bias": False, "dropout": 0.0}
    tiny_tree["training"] |= {"precision": "fp32", "max_epochs": None, "ema_decay": 0.9}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")

    def train(name, **options):
        changes = [f"name={name}", *(f"training.{key}={value}" for key, value in options.items())]
        status, _, err = mt("train", "--config", "tiny.yaml", *(part for x in changes for part in ("--set", x)))
        assert status == 0, err
        return err

    return train


@pytest.mark.parametrize(("first", "second"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_a_run_resumed_on_another_device_ends_the_same(train, tmp_path, first, second):
    for name, parts in (("whole", [("cpu", 8)]), ("parts", [(first, 4), (second, 8)])):
        for device, steps in parts:
            train(name, device=device, max_steps=steps)
    (tensors, state), (expected, expected_state) = (
        checkpoint_content(tmp_path / "runs" / name / "checkpoints" / "last.safetensors") for name in ("parts", "whole")
    )
    assert state["position"] == expected_state["position"]
    for name in expected.keys() & tensors.keys():
        assert torch.allclose(tensors[name].float(), expected[name].float(), atol=1e-3, rtol=1e-2), name


def test_automatic_batches_have_a_size_that_fits(train, tmp_path):
    assert "batch_tokens: auto is" in train("tiny", batch_tokens="auto", device="cuda", max_steps=2)
    config = yaml.safe_load((tmp_path / "runs/tiny/config.yaml").read_text(encoding="utf-8"))
    assert config["training"]["batch_tokens"] >= 4096
