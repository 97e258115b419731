import pytest
import torch
import torch.nn.functional as F

from mt_cli.model import loss as module
from mt_cli.model.loss import Loss


def some_inputs(num_tokens):
    return torch.randn(1, num_tokens, 8), torch.randn(37, 8), torch.randint(1, 37, (num_tokens,))


def sums_and_gradients(loss, *inputs):
    """What a loss gives for hidden states, a weight and perhaps a bias, and its gradients by them."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    sums = loss(*leaves)
    return sums, torch.autograd.grad(sums.objective, leaves)


def assert_same(ours, theirs):
    for name in ("objective", "cross_entropy", "num_correct"):
        assert getattr(ours, name).item() == pytest.approx(getattr(theirs, name).item(), rel=1e-5)


def assert_same_gradients(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-5 * max(1.0, float(other.abs().max())), rtol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_definition_is_the_equation_over_rows_without_padding(smoothing):
    hidden, weight, targets = some_inputs(50)
    log_probs = (hidden[0] @ weight.T).log_softmax(dim=-1)
    right = log_probs[torch.arange(50), targets]
    smoothed = (1 - smoothing) * right + smoothing * log_probs.mean(dim=-1)
    expected = -smoothed.sum(), -right.sum(), (log_probs.argmax(dim=-1) == targets).sum()
    padded = torch.cat([hidden, torch.randn(1, 7, 8)], dim=1), torch.cat([targets, torch.zeros_like(targets[:7])])
    for rows, references in ((hidden, targets), padded):
        sums = Loss(smoothing).sums(rows, weight, None, references)
        for value, of_equation in zip(vars(sums).values(), expected, strict=True):
            assert value.item() == pytest.approx(of_equation.item(), rel=1e-5)


@pytest.fixture(params=["cpu", "other"])
def kind(request, monkeypatch):
    """Kind of device whose implementation is used; both run on a CPU."""
    if request.param == "other":
        monkeypatch.setattr(module, "is_cpu", lambda x: False)


@pytest.mark.parametrize(
    ("num_rows", "num_tokens", "has_bias", "smoothing", "consistency"),
    [(1, 1, False, 0.1, None), (600, 300, True, 0.0, None), (2_100, 1_900, False, 0.1, 5.0)],
)
def test_the_blockwise_loss_and_its_gradients_equal_the_definition(
    kind, monkeypatch, num_rows, num_tokens, has_bias, smoothing, consistency
):
    monkeypatch.setattr(module, "_BLOCK_LOGITS", 200 * 37)  # So that there are several blocks.
    hidden = torch.randn(1 if consistency is None else 2, num_rows, 8)
    inputs = hidden, *([torch.randn(37, 8), torch.randn(37)] if has_bias else [torch.randn(37, 8)])
    loss, targets = Loss(smoothing, consistency), torch.randint(1, 37, (num_rows,))

    def fast(hidden, weight, bias=None):
        return loss.sums_in_blocks(hidden, weight, bias, targets, num_tokens)

    def defined(hidden, weight, bias=None):
        return loss.sums(hidden[:, :num_tokens], weight, bias, targets[:num_tokens])

    expected, expected_gradients = sums_and_gradients(defined, *inputs)
    sums, gradients = sums_and_gradients(fast, *inputs)
    assert_same(sums, expected)
    assert_same_gradients(gradients, expected_gradients)
    assert (gradients[0][:, num_tokens:] == 0).all()
    _, frozen = sums_and_gradients(lambda hidden: fast(hidden, *inputs[1:]), hidden)
    assert_same_gradients(frozen, gradients[:1])
    with torch.inference_mode():
        assert_same(fast(*inputs), expected)


def test_the_loss_of_a_hopeless_token_is_finite_and_exact():
    hidden, targets = torch.tensor([[[1.0, 0.0]]]), torch.tensor([1])
    weight = torch.tensor([[500.0, 0.0], [-500.0, 0.0], [0.0, 1.0]])
    sums, (gradient, _) = sums_and_gradients(lambda *x: Loss().sums_in_blocks(*x, None, targets, 1), hidden, weight)
    assert sums.cross_entropy.item() == pytest.approx(1_000.0)
    assert gradient[0, 0, 0].item() == pytest.approx(1_000.0)


def test_the_loss_scale_keeps_gradients_that_fp16_cannot_hold():
    hidden, weight = torch.tensor([[[20.0, 0.0]]]), torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -3.0]])
    targets, scale = torch.tensor([1]), torch.tensor(2.0**15)
    _, expected = sums_and_gradients(lambda *x: Loss().sums_in_blocks(*x, None, targets, 1), hidden, weight)
    leaves = [x.half().requires_grad_() for x in (hidden, weight)]
    sums = Loss().sums_in_blocks(*leaves, None, targets, 1, scale)
    for one, other in zip(torch.autograd.grad(scale * sums.objective, leaves), expected, strict=True):
        assert torch.allclose(one.float(), scale * other, rtol=1e-2) and one.any()


def test_the_divergence_of_r_drop_agrees_with_torch():
    hidden, weight, targets = torch.randn(2, 50, 8), torch.randn(37, 8), torch.randint(1, 37, (50,))
    p, q = (hidden @ weight.T).log_softmax(dim=-1)
    divergence = F.kl_div(q, p, reduction="sum", log_target=True) + F.kl_div(p, q, reduction="sum", log_target=True)
    cross_entropies = [F.cross_entropy(one @ weight.T, targets, reduction="sum") for one in hidden]
    sums = Loss(0.0, 4.0).sums(hidden, weight, None, targets)
    assert sums.objective.item() == pytest.approx((sum(cross_entropies) / 2 + divergence).item(), rel=1e-5)
