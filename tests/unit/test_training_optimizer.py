import itertools
import math

import pytest
import torch
from tiny_models import tiny_model
from torch import nn

from mt_cli.config.training import TrainingConfig
from mt_cli.training.optimizer import MuonWithAdamW, build_optimizer, learning_rate, set_rate, step_if


@pytest.mark.parametrize(
    ("schedule", "last"), [("inverse_sqrt", 0.5 * math.sqrt(0.1)), ("linear", 0.0), ("cosine", 0.0), ("constant", 0.5)]
)
def test_every_schedule_rises_linearly_to_its_peak_once(schedule, last):
    config = TrainingConfig(schedule=schedule, warmup_steps=10, learning_rate=0.5, max_steps=100)
    rates = [learning_rate(config, step, 100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[9:]))
    assert rates[-1] == pytest.approx(last)


def test_inverse_sqrt_is_the_schedule_of_2017():
    d_model, warmup = 512, 4000
    config = TrainingConfig(learning_rate=(d_model * warmup) ** -0.5, warmup_steps=warmup)
    for step in (1, 100, 4000, 5000, 100_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(config, step, None) == pytest.approx(paper)


def test_only_matrices_of_linear_maps_decay():
    model = tiny_model()
    decayed, others = (group["params"] for group in build_optimizer(model, TrainingConfig()).param_groups)
    assert len(decayed) + len(others) == len(list(model.parameters()))
    assert any(model.target_embedding.table.weight is weight for weight in others)  # Tied to the projection.
    assert any(model.encoder[0].feed_forward.inner.weight is weight for weight in decayed)
    assert all(weight.dim() == 2 for weight in decayed)


@pytest.mark.parametrize("tie", ["none", "target"])
def test_muon_updates_the_matrices_of_layers_alone(tie):
    model = tiny_model(tie_embeddings=tie)
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    by_muon = {id(p) for group in optimizer.param_groups if "is_muon" in group for p in group["params"]}
    for name, weight in model.named_parameters():
        in_layer = name.startswith(("encoder.", "decoder."))
        assert (id(weight) in by_muon) == (in_layer and weight.dim() == 2), name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


@pytest.mark.parametrize("has_fast_bf16", [True, False])
@pytest.mark.parametrize("is_conditional", [True, False])
def test_batched_muon_computes_what_the_muon_of_torch_does(monkeypatch, has_fast_bf16, is_conditional):
    monkeypatch.setattr("mt_cli.training.optimizer.has_fast_bf16", lambda device: has_fast_bf16)
    torch.manual_seed(0)
    shapes = [(32, 32), (64, 32), (32, 64), (32, 32), (64, 32), (1, 7)]
    start = [torch.randn(shape) for shape in shapes]
    models = [[nn.Parameter(weight.clone()) for weight in start] for _ in range(2)]
    theirs = torch.optim.Muon(models[0], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    ours = MuonWithAdamW(torch.optim.AdamW([nn.Parameter(torch.zeros(1))]), models[1], weight_decay=0.1)
    set_rate(ours, 0.01)
    ours.found_inf = torch.zeros(()) if is_conditional else None
    for _ in range(4):
        for pair, shape in zip(zip(*models, strict=True), shapes, strict=True):
            gradient = torch.randn(shape)
            for weight in pair:
                weight.grad = gradient
        theirs.step()
        ours.step()
    for expected, weight, before in zip(*models, start, strict=True):
        assert (weight - expected).norm() <= 0.03 * (expected - before).norm()
        buffers = [o.state[w]["momentum_buffer"] for o, w in ((theirs, expected), (ours, weight))]
        assert torch.allclose(*buffers, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_skipped_step_is_no_update(algorithm):
    model = tiny_model()
    optimizer = build_optimizer(model, TrainingConfig(optimizer=algorithm))
    for is_finite in (False, True, False):
        before = [weight.detach().clone() for weight in model.parameters()]
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, 0.1 if is_finite else math.nan)
        step_if(torch.tensor(is_finite), optimizer)
        changed = [not torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True)]
        assert all(changed) if is_finite else not any(changed)
    assert all(value.isfinite().all() for state in optimizer.state.values() for value in state.values())
