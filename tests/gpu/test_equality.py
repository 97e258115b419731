"""Results on a GPU are those on a CPU. Without a GPU, a CPU is compared with itself, so that the tests are run."""

import itertools
from functools import cache

import pytest
import torch
import yaml
from run_content import checkpoint_content

from mt_cli.batching.batches import MixedPairs
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.model.transformer import Transformer
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, optimization_steps
from mt_cli.training.update import Update
from mt_cli.translation.translator import Translator

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device")
CUDA = pytest.param("cuda", marks=NEEDS_GPU)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])


def some_pairs(number=40, longest=12):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, longest, (number, 2), generator=generator).tolist()
    sequences = [[torch.randint(4, 50, (n,), generator=generator).tolist() for n in row] for row in lengths]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


def an_objective(device, **options):
    """A small objective, always with the same weights; no key has a bias, whose gradient is noise."""
    torch.manual_seed(7)
    sizes = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**sizes | {"dropout": 0.0, "qkv_bias": False} | options)
    return Objective(Transformer(config, 50, 50), TrainingConfig()).to(device)


def steps_on(device, number=5, dtype=torch.float32, **options):
    """The loss per token of each of some steps, whether they were done, and the weights after them, on the CPU."""
    objective = an_objective(device, **options.pop("model", {}))
    config = TrainingConfig(batch_tokens=200, warmup_steps=0, **options)
    pairs = MixedPairs(some_pairs(), [1.0], config.tokens_per_batch, config.seed)
    optimizer, gradients = build_optimizer(objective, config), GradientAccumulator(objective, dtype)
    steps = optimization_steps(Update(gradients, optimizer, config), pairs, config, lambda step: 2e-3, Position())
    reports = list(itertools.islice(steps, number))
    losses = [report.cross_entropy.item() / report.num_target_tokens for report in reports]
    weights = torch.cat([weight.detach().cpu().flatten() for weight in objective.parameters()])
    return losses, [bool(report.is_finite) for report in reports], weights


def weights_at_first(**options):
    return torch.cat([weight.detach().flatten() for weight in an_objective("cpu", **options).parameters()])


@DEVICES
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "muon", "micro_batches_per_step": 2},
        {"recompute_layers": True, "model": {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"}},
        {"model": {"positions": "learned", "norm_order": "post", "output_bias": True}},
    ],
    ids=str,
)
def test_steps_in_fp32_are_those_of_a_cpu(device, options):
    losses, _, weights = steps_on(device, **options)
    expected_losses, _, expected = steps_on("cpu", **options)
    change = (expected - weights_at_first(**options.get("model", {}))).norm()
    assert losses == pytest.approx(expected_losses, rel=1e-3)
    # Muon rounds to bf16 where the hardware is fast at it.
    assert (weights - expected).norm() <= (0.1 if "optimizer" in options else 0.01) * change


@cache
def losses_in_fp32(device):
    return steps_on(device, number=30)[0]


@DEVICES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_in_half_precision_are_near_those_in_fp32(device, dtype):
    losses, are_finite, weights = steps_on(device, number=30, dtype=dtype)
    assert all(are_finite) and weights.isfinite().all()
    assert losses == pytest.approx(losses_in_fp32(device), rel=0.03)
    assert losses[-1] < 0.95 * losses[0]


@DEVICES
def test_validation_is_that_of_a_cpu(device):
    scores, expected = (score_tokens(an_objective(each), some_pairs(), 100) for each in (device, "cpu"))
    assert scores.loss == pytest.approx(expected.loss, rel=1e-5)
    assert scores.token_accuracy == pytest.approx(expected.token_accuracy, abs=0.01)


@DEVICES
@pytest.mark.parametrize("decoding", [{"beam_size": 1}, {"beam_size": 4}, {"sample": True, "top_k": 5}], ids=str)
def test_translations_in_fp32_are_those_of_a_cpu(device, decoding, corpus, trained):
    sentences = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    found, expected = (
        Translator.load(trained, each, "fp32").translate_fully(sentences, **decoding) for each in (device, "cpu")
    )
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-3)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cpu", "cpu"),
        *(pytest.param(*each, marks=NEEDS_GPU) for each in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda"))),
    ],
)
def test_a_run_resumed_on_another_device_ends_like_one_on_a_cpu(mt, tiny_tree, tmp_path, first, second):
    tiny_tree["corpus"] |= {"valid": {"fraction": 0.02}, "test": None}
    tiny_tree["model"] |= {"qkv_bias": False, "dropout": 0.0}
    tiny_tree["training"] |= {"precision": "fp32", "max_epochs": None, "ema_decay": 0.9}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    for name, parts in (("whole", [("cpu", 8)]), ("parts", [(first, 4), (second, 8)])):
        for device, steps in parts:
            changes = [f"name={name}", f"training.device={device}", f"training.max_steps={steps}"]
            status, _, err = mt(
                "train", "--config", "tiny.yaml", *(part for each in changes for part in ("--set", each))
            )
            assert status == 0, err
    (tensors, state), (expected, expected_state) = (
        checkpoint_content(tmp_path / "runs" / name / "checkpoints" / "last.safetensors") for name in ("parts", "whole")
    )
    assert state["position"] == expected_state["position"]
    for name in expected.keys() & tensors.keys():
        if not name.startswith("random."):
            assert torch.allclose(tensors[name].float(), expected[name].float(), atol=1e-3, rtol=1e-2), name


@DEVICES
@pytest.mark.filterwarnings("ignore")  # Of the compiler.
def test_automatic_batches_have_a_size_that_fits(mt, tiny_config, tmp_path, device):
    changes = ["training.batch_tokens=auto", f"training.device={device}", "training.max_steps=2"]
    status, _, err = mt("train", "--config", tiny_config, *(part for each in changes for part in ("--set", each)))
    assert status == 0 and "batch_tokens: auto is" in err
    config = yaml.safe_load((tmp_path / "runs/tiny/config.yaml").read_text(encoding="utf-8"))
    assert config["training"]["batch_tokens"] >= 4096
