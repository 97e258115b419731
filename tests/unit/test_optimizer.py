import itertools
import math

import pytest
import torch
from torch import nn

from mt_cli.config.sections import ModelConfig, TrainingConfig
from mt_cli.model.transformer import Transformer
from mt_cli.optimizer import build_optimizer, learning_rate, weight_and_update_norms


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


def test_the_norms_are_those_of_the_weights_and_of_what_the_last_update_changed():
    model = Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 11, 12)
    optimizer = build_optimizer(model, TrainingConfig(weight_decay=0.1, learning_rate=0.01))
    assert all(norm.isnan() for norm in weight_and_update_norms(optimizer))
    for _ in range(3):
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.step()
    changes = [weight.detach() - previous for weight, previous in zip(model.parameters(), before, strict=True)]
    weight_norm, update_norm = weight_and_update_norms(optimizer)
    assert float(weight_norm) == pytest.approx(
        float(torch.cat([w.detach().flatten() for w in model.parameters()]).norm())
    )
    assert float(update_norm) == pytest.approx(float(torch.cat([c.flatten() for c in changes]).norm()), rel=1e-2)
