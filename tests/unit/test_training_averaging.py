import copy

import pytest
import torch
from torch import nn

from mt_cli.training.averaging import MovingAverage


def some_weights(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def content_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("decay", [0.01, 0.9999])
def test_the_average_is_the_plain_recurrence_and_warms_up(decay):
    model = some_weights()
    average, expected = MovingAverage(model, decay), content_of(model)
    for step in range(1, 41):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight))
        average.update(step)
        kept = min(decay, (1 + step) / (10 + step))
        expected = {name: kept * expected[name] + (1 - kept) * weight for name, weight in content_of(model).items()}
    for name, weight in average.weights.items():
        assert torch.allclose(weight, expected[name], atol=1e-5), name


def test_the_model_has_the_average_only_inside_the_context():
    model = some_weights()
    average, raw = MovingAverage(model, 0.9), content_of(some_weights(1))
    model.load_state_dict(raw)
    average.update(1)
    held = copy.deepcopy(average.weights)
    with pytest.raises(KeyboardInterrupt), average.applied():
        assert all(torch.equal(weight, held[name]) for name, weight in content_of(model).items())
        raise KeyboardInterrupt
    assert all(torch.equal(weight, raw[name]) for name, weight in content_of(model).items())
    assert all(torch.equal(average.weights[name], held[name]) for name in held)
