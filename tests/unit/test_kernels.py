import pytest
import torch
import torch.nn.functional as F

from mt_cli.model.kernels import add_dropped, attend, attention_weights, drop, take_rows


def values_and_gradients(function, *inputs, dtype=torch.float32):
    """The values of a function and the gradients of a fixed weighting of them."""
    leaves = [each.to(dtype).requires_grad_() for each in inputs]
    values = function(*leaves)
    weights = torch.linspace(-1, 1, values.numel()).view(values.shape).to(dtype)
    return values, *torch.autograd.grad((values * weights).sum(), leaves)


def test_attention_agrees_with_torch():
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    expected = F.scaled_dot_product_attention(query, key, value, mask)
    assert torch.allclose(attend(query, key, value, mask), expected, atol=1e-6)
    assert torch.allclose(attention_weights(query, key, mask) @ value, expected, atol=1e-6)
    assert (attention_weights(query, key, mask)[~mask.expand(2, 4, 5, 7)] == 0).all()


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_its_gradient_follows_its_mask(rate):
    x = torch.ones(1_000, 401, requires_grad=True)
    y = drop(x, rate)
    y.sum().backward()
    dropped = (y == 0).float().mean()
    assert abs(dropped - round(rate * 256) / 256) < 0.005
    assert abs(y.mean() - 1) < 0.01
    assert torch.equal(x.grad, y.detach())
    assert abs((y == 0).float().mean(dim=0) - dropped).max() < 0.1


def test_no_dropout_is_the_identity():
    x = torch.randn(3, 5)
    assert drop(x, 0.0) is x


@pytest.mark.parametrize("dtype,tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_attention_has_the_gradients_of_torch(dtype, tolerance):
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    mask = torch.rand(2, 1, 5, 7) > 0.3
    mask[..., 0] = True
    ours = values_and_gradients(lambda *each: attend(*each, mask), query, key, value, dtype=dtype)
    theirs = values_and_gradients(lambda *each: F.scaled_dot_product_attention(*each, mask), query, key, value)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one.float(), other, atol=tolerance, rtol=tolerance)


def test_residual_dropout_is_a_sum_with_dropout():
    x, y = torch.randn(300, 50), torch.randn(300, 50)
    results = []
    for function in (lambda x, y: add_dropped(x, y, 0.3), lambda x, y: x + drop(y, 0.3)):
        torch.manual_seed(4)
        results.append(values_and_gradients(function, x, y))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropped_units_are_zero_and_the_others_scaled(dtype):
    x = torch.randn(1_000, 40).to(dtype)
    y = drop(x, 0.25)
    kept = y != 0
    assert torch.allclose(y[kept], x[kept] * (256 / 192), rtol=1e-2)
    assert 0.24 < 1 - kept.float().mean() < 0.26


def test_taking_rows_there_and_back_is_indexing():
    x = torch.randn(6, 3)
    rows, cells = torch.tensor([2, 0, 5, 1, 4, 3]), torch.tensor([1, 3, 0, 5, 4, 2])
    ours = values_and_gradients(lambda x: take_rows(x, rows, cells), x)
    theirs = values_and_gradients(lambda x: x[rows], x)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
