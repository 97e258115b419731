import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.model.transformer import Transformer
from mt_cli.training.optimizer import (
    BatchedMuon,
    build_optimizer,
    learning_rate,
    set_rate,
    step_if,
    weight_norm,
)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
def test_every_schedule_rises_linearly_to_its_peak_and_never_again(schedule):
    config = TrainingConfig(schedule=schedule, warmup_steps=10, learning_rate=0.5, max_steps=100)
    rates = [learning_rate(config, step, 100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[9:]))
    assert rates[-1] == pytest.approx({"inverse_sqrt": 0.5 * math.sqrt(0.1), "constant": 0.5}.get(schedule, 0.0))


def test_inverse_sqrt_is_the_schedule_of_2017():
    d_model, warmup = 512, 4000
    config = TrainingConfig(learning_rate=(d_model * warmup) ** -0.5, warmup_steps=warmup)
    for step in (1, 100, 4000, 5000, 100_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(config, step, None) == pytest.approx(paper)


def rates_by_clock(config, seconds_per_step, num_steps=None):
    """The rates of a run whose steps take these seconds, up to the end of `max_minutes` or of `num_steps`."""
    rates, elapsed = [], 0.0
    for step, seconds in enumerate(seconds_per_step, 1):
        if elapsed < 60 * config.max_minutes and step <= (num_steps or math.inf):
            rates.append(learning_rate(config, step, num_steps, elapsed))
            elapsed += seconds
    return rates


durations = st.lists(st.floats(0.001, 3.0), min_size=5, max_size=60)
clocked = st.builds(
    TrainingConfig,
    schedule=st.sampled_from(["linear", "cosine"]),
    warmup_steps=st.integers(0, 30),
    learning_rate=st.just(0.5),
    max_minutes=st.floats(0.02, 1.0),
)


@given(clocked, durations, st.none() | st.integers(1, 60))
def test_a_rate_by_the_clock_rises_as_the_warm_up_at_most_and_never_again_after_it_fell(config, seconds, num_steps):
    rates = rates_by_clock(config, seconds, num_steps)
    warmup = config.warmup_steps
    assert all(0 <= rate <= 0.5 * min(1, step / max(warmup, 1)) for step, rate in enumerate(rates, 1))
    fallen = next((i for i, (rate, after) in enumerate(itertools.pairwise(rates)) if after < rate), len(rates))
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(rates[fallen:]))


@given(clocked, durations, st.none() | st.integers(1, 60))
def test_a_rate_is_zero_when_the_time_or_the_steps_are_over(config, seconds, num_steps):
    for step in range(1, len(seconds) + 1):
        for elapsed in (60 * config.max_minutes, 61 * config.max_minutes):
            assert learning_rate(config, step, num_steps, elapsed) == pytest.approx(0, abs=1e-12)
    steps = num_steps or config.warmup_steps + 1
    assert learning_rate(config, steps, steps, 0.0) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 10, 50])
def test_at_a_constant_speed_the_clock_gives_the_rates_of_the_steps(schedule, warmup):
    by_steps = TrainingConfig(schedule=schedule, warmup_steps=warmup, max_steps=100)
    by_clock = TrainingConfig(schedule=schedule, warmup_steps=warmup, max_minutes=1)
    for step in range(1, 101):
        expected = learning_rate(by_steps, step, 100)
        assert learning_rate(by_clock, step, None, 0.6 * step) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "constant"])
def test_schedules_without_an_end_do_not_read_the_clock(schedule):
    config = TrainingConfig(schedule=schedule, warmup_steps=10, max_minutes=1)
    assert all(learning_rate(config, n, None, 59.0) == learning_rate(config, n, None) for n in (1, 10, 11, 100))


def test_a_warm_up_longer_than_half_of_the_steps_still_ends_at_zero():
    config = TrainingConfig(schedule="linear", warmup_steps=1000, learning_rate=1.0, max_steps=100)
    rates = [learning_rate(config, step, 100) for step in range(1, 101)]
    assert rates[:50] == pytest.approx([step / 1000 for step in range(1, 51)])
    assert rates[-3:] == pytest.approx([0.04, 0.02, 0.0])
    assert max(rates) < 0.1


def test_only_matrices_of_linear_maps_decay():
    model = Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2, tie_embeddings="target"), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(weight_decay=0.1))
    decayed = {id(weight) for weight in optimizer.param_groups[0]["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    assert id(model.target_embedding.table.weight) not in decayed
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert norms and not any(id(norm.weight) in decayed for norm in norms)
    assert id(model.encoder[0].feed_forward.inner.weight) in decayed
    assert all(isinstance(weight, torch.Tensor) and weight.dim() == 2 for weight in optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("tie", ["none", "target"])
def test_muon_updates_the_matrices_of_the_layers_and_adamw_all_else(tie):
    model = Transformer(ModelConfig(d_model=8, d_ff=16, num_heads=2, tie_embeddings=tie), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    by_muon = {id(p) for group in optimizer.param_groups if "momentum" in group for p in group["params"]}
    for name, weight in model.named_parameters():
        in_layer = name.startswith(("encoder.", "decoder."))
        assert (id(weight) in by_muon) == (in_layer and weight.dim() == 2), name
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_a_muon_update_is_nearly_orthogonal_and_of_the_size_of_adamw():
    model = Transformer(ModelConfig(d_model=16, d_ff=64, num_heads=2), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon", muon_learning_rate=0.01))
    set_rate(optimizer, 0.0005)  # Half of the peak of both.
    weight = model.encoder[0].feed_forward.inner.weight
    before = weight.detach().clone()
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    optimizer.step()
    update = (weight.detach() - before) / 0.005
    assert float(update.square().mean().sqrt()) == pytest.approx(0.2, rel=0.3)
    stretches = torch.linalg.svdvals(update) / (0.2 * 64**0.5)
    assert ((stretches > 0.5) & (stretches < 1.5)).all()


def test_muon_computes_the_same_in_fp32_where_bf16_is_slow(monkeypatch):
    changes = []
    for is_fast in (True, False):
        monkeypatch.setattr("mt_cli.training.optimizer.has_fast_bf16", lambda device, is_fast=is_fast: is_fast)
        weight = torch.nn.Parameter(torch.zeros(48, 16))
        weight.grad = torch.randn(48, 16, generator=torch.Generator().manual_seed(1))
        optimizer = BatchedMuon([weight], weight_decay=0.1)
        set_rate(optimizer, 1.0)
        optimizer.step()
        changes.append(weight.detach())
    assert not torch.equal(*changes)
    assert (changes[0] - changes[1]).norm() < 0.03 * changes[1].norm()


def test_batched_muon_gives_the_bits_of_the_muon_of_torch(monkeypatch):
    monkeypatch.setattr("mt_cli.training.optimizer.has_fast_bf16", lambda device: True)
    torch.manual_seed(0)
    shapes = [(32, 32), (64, 32), (32, 64), (32, 32), (64, 32), (1, 7)]
    start = [torch.randn(shape) for shape in shapes]
    models = [[torch.nn.Parameter(weight.clone()) for weight in start] for _ in range(2)]
    optimizers = [
        torch.optim.Muon(models[0], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        BatchedMuon(models[1], weight_decay=0.1),
    ]
    set_rate(optimizers[1], 0.01)
    for step in range(4):
        for index, pair in enumerate(zip(*models, strict=True)):
            gradient = None if (step, index) == (1, 2) else torch.randn(shapes[index])
            for weight in pair:
                weight.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
        for theirs, ours in zip(*models, strict=True):
            assert torch.equal(theirs, ours)
            buffers = [o.state[w]["momentum_buffer"] for o, w in zip(optimizers, (theirs, ours), strict=True)]
            assert torch.equal(*buffers)
    assert not torch.equal(start[0], models[0][0])


def test_a_skipped_step_changes_no_state_of_muon():
    model = Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(optimizer="muon"))
    for is_finite in (True, False):
        before = [weight.detach().clone() for weight in model.parameters()]
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, 0.1 if is_finite else math.nan)
        step_if(torch.tensor(is_finite), optimizer)
        changed = [not torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True)]
        assert all(changed) if is_finite else not any(changed)
    assert all(value.isfinite().all() for state in optimizer.state.values() for value in state.values())


@pytest.mark.parametrize("algorithm", ["adamw", "muon"])
def test_a_skipped_step_is_no_update_after_which_there_is_a_norm(algorithm):
    model = Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(optimizer=algorithm))
    for _ in range(2):
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, math.nan)
        step_if(torch.tensor(False), optimizer)
        assert weight_norm(optimizer).isnan()
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    step_if(torch.tensor(True), optimizer)
    assert weight_norm(optimizer) > 0
