"""What only a GPU shows: memory, and several GPUs."""

import itertools
import json
import sys
from contextlib import contextmanager

import pytest
import torch
import yaml
from run_content import checkpoint_content
from tiny_models import some_pairs, tiny_model

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import collate
from mt_cli.data.batches import MixedPairs
from mt_cli.model.loss import Objective
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import optimization_steps
from mt_cli.training.update import build_update

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Of the compiler.
]
CUDA = torch.device("cuda")


@contextmanager
def memory_limit(num_bytes):
    """Context manager in which PyTorch allocates at most this memory of the GPU."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(num_bytes / total, 0)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)


def a_model(d_model=64, vocab_size=500, **options):
    sizes = {"d_model": d_model, "d_ff": 2 * d_model, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return tiny_model(vocab_size=vocab_size, **sizes | options).to(CUDA)


def steps_of(model, dtype, pairs, **options):
    config = TrainingConfig(batch_tokens=2000, **options)
    objective = Objective(model, config)
    mixed = MixedPairs(pairs, [1.0], config.tokens_per_batch, config.seed)
    update = build_update(objective, build_optimizer(objective, config), config, dtype)
    return optimization_steps(update, mixed, config, lambda step: 1e-3, Position())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_later_steps_take_the_memory_of_the_first_epochs(dtype):
    steps, used, peaks = steps_of(a_model(), dtype, some_pairs(500, 500, 30)), [], []
    for _ in itertools.islice(steps, 100):  # Until each shape has its graph.
        pass
    for _ in range(5):
        torch.cuda.reset_peak_memory_stats()
        for _ in itertools.islice(steps, 20):  # Some epochs.
            pass
        used.append(torch.cuda.memory_allocated())
        peaks.append(torch.cuda.max_memory_allocated())
    assert max(used[1:]) <= used[0] + 2**21
    assert max(peaks[1:]) <= 1.05 * peaks[0]


def gradient_of(model, batch):
    """The gradient of a batch, how often it was split, and the peak of the memory."""
    model.zero_grad()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    gradients = GradientAccumulator(Objective(model, TrainingConfig()).train(), torch.float32)
    gradients.accumulate([batch], batch.num_target_tokens)
    flat = torch.cat([weight.grad.flatten() for weight in gradients.parameters]).cpu()
    model.zero_grad()
    return flat, len(gradients.too_large), torch.cuda.max_memory_allocated()


def test_a_batch_split_to_fit_has_the_same_gradient():
    model, batch = a_model(256, 8_000), collate(some_pairs(1_000, 8_000, 30), range(1_000)).to(CUDA)
    before = torch.cuda.memory_allocated()
    expected, num_splits, peak = gradient_of(model, batch)
    assert num_splits == 0
    with memory_limit(before + 0.75 * (peak - before)):
        found, num_splits, _ = gradient_of(model, batch)
    assert num_splits > 0
    assert (found - expected).norm() <= 1e-4 * expected.norm()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_do_the_steps_of_one(run, tmp_path, tiny_tree):
    tiny_tree["model"] |= {"qkv_bias": False, "dropout": 0.1}
    tiny_tree["training"] |= {"device": "cuda", "precision": "fp32", "max_steps": 6, "max_epochs": None}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    ways = {"one": ("--set", "training.micro_batches_per_step=2"), "two": ("--devices", "2")}
    for name, options in ways.items():
        command = [sys.executable, "-m", "mt_cli", "train", "--config", "tiny.yaml", "--set", f"name={name}", *options]
        done = run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    (weights, state), (expected, expected_state) = (
        checkpoint_content(tmp_path / "runs" / name / "checkpoints/last.safetensors") for name in ("two", "one")
    )
    assert state["position"]["num_target_tokens"] == expected_state["position"]["num_target_tokens"]
    for name, weight in expected.items():
        if name.startswith("model."):
            assert torch.allclose(weights[name], weight, atol=1e-3, rtol=1e-2), name
    report = json.loads((tmp_path / "runs/two/report.json").read_text(encoding="utf-8"))
    assert report["num_steps"] == 6
