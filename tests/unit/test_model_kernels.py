import pytest
import torch

from mt_cli.model import attention, kernels
from mt_cli.model.attention import attend, attention_weights, bias_of
from mt_cli.model.kernels import add_dropped, drop
from mt_cli.model.transformer import causal_mask


@pytest.fixture(params=["cpu", "other"], autouse=True)
def kind(request, monkeypatch):
    """The kind of device whose implementations are used; both run on a CPU."""
    if request.param == "other":
        for module in (attention, kernels):
            monkeypatch.setattr(module, "is_cpu", lambda x: False)
    return request.param


def values_and_gradients(function, *inputs, dtype=torch.float32):
    """The values of a function and the gradients of a fixed weighting of them."""
    leaves = [each.to(dtype).requires_grad_() for each in inputs]
    values = function(*leaves)
    weights = torch.linspace(-1, 1, values.numel()).view(values.shape).to(dtype)
    return values, *torch.autograd.grad((values * weights).sum(), leaves)


def some_attention():
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    return torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8), mask


@pytest.mark.parametrize(
    ("dtype", "tolerance", "is_causal"),
    [(torch.float32, 1e-5, False), (torch.float32, 1e-5, True), (torch.bfloat16, 3e-2, True)],
)
def test_attention_has_the_values_and_gradients_of_the_equation(dtype, tolerance, is_causal):
    *inputs, mask = some_attention()
    if is_causal:
        inputs, mask = [torch.randn(2, 4, 6, 8) for _ in range(3)], causal_mask(6, torch.device("cpu"))

    def equation(query, key, value):
        scores = query @ key.transpose(-1, -2) / 8**0.5
        return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value

    ours = values_and_gradients(lambda *x: attend(*x, bias_of(mask), is_causal=is_causal), *inputs, dtype=dtype)
    for one, other in zip(ours, values_and_gradients(equation, *inputs), strict=True):
        assert one.dtype == dtype
        assert torch.allclose(one.float(), other, atol=tolerance, rtol=tolerance)


def test_attention_maps_are_those_that_attention_uses():
    query, key, value, mask = some_attention()
    maps = attention_weights(query, key, bias_of(mask))
    assert torch.allclose(maps @ value, attend(query, key, value, bias_of(mask)), atol=1e-5)
    assert torch.allclose(maps.sum(dim=-1), torch.ones(2, 4, 5))
    assert (maps[~mask.expand(2, 4, 5, 7)] == 0).all()


@pytest.mark.parametrize("rate", [1e-3, 0.02, 0.1, 0.5, 0.99])
def test_dropout_drops_its_rate_and_masks_its_gradient(rate):
    x = torch.ones(1_000, 401, requires_grad=True)
    y = drop(x, rate)
    y.sum().backward()
    dropped = float((y == 0).float().mean())
    assert dropped == pytest.approx(rate, rel=0.2 if rate < 0.01 else 0.05)
    assert float(y.detach().max()) == pytest.approx(1 / (1 - rate), rel=0.02)
    assert torch.equal(x.grad, y.detach())
    assert abs((y == 0).float().mean(dim=0) - dropped).max() < 0.1


def test_residual_dropout_is_a_sum_with_dropout():
    x, y = torch.randn(300, 50), torch.randn(300, 50)
    results = []
    for function in (lambda x, y: add_dropped(x, y, 0.3), lambda x, y: x + drop(y, 0.3)):
        torch.manual_seed(4)
        results.append(values_and_gradients(function, x, y))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
