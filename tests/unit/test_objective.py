import pytest
import torch
import torch.nn.functional as F

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective, smoothed_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("num_tokens", [1, 5, 1_100, 5_000])
def test_loss_and_gradient_agree_with_torch(smoothing, num_tokens):
    hidden = torch.randn(num_tokens, 8, requires_grad=True)
    weight = torch.randn(37, 8, requires_grad=True)
    targets = torch.randint(0, 37, (num_tokens,))
    sums = smoothed_cross_entropy(hidden, weight, targets, num_tokens, smoothing)
    ours = torch.autograd.grad(sums.objective / num_tokens, (hidden, weight))
    logits = hidden @ weight.T
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
    theirs = torch.autograd.grad(loss, (hidden, weight))
    assert sums.objective.item() / num_tokens == pytest.approx(loss.item(), rel=1e-5)
    assert sums.cross_entropy.item() == pytest.approx(
        F.cross_entropy(logits, targets, reduction="sum").item(), rel=1e-5
    )
    assert sums.num_correct.item() == (logits.argmax(dim=-1) == targets).sum().item()
    for our_grad, their_grad in zip(ours, theirs, strict=True):
        assert torch.allclose(our_grad, their_grad, atol=1e-6)


def test_bf16_gives_a_loss_and_a_gradient_near_the_exact_ones():
    hidden, weight, targets = torch.randn(600, 64), torch.randn(1_000, 64) / 8, torch.randint(0, 1_000, (600,))
    results = []
    for dtype in (torch.float64, torch.bfloat16):
        inputs = [each.to(dtype).requires_grad_() for each in (hidden, weight)]
        sums = smoothed_cross_entropy(*inputs, targets, 600, 0.1)
        results.append((sums.objective.double(), *torch.autograd.grad(sums.objective, inputs)))
    (exact_loss, *exact), (rough_loss, *rough) = results
    assert rough_loss.item() == pytest.approx(exact_loss.item(), rel=2e-3)
    for one, other in zip(exact, rough, strict=True):
        assert torch.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0) > 0.999


def test_the_loss_of_a_hopeless_token_is_finite_and_exact():
    hidden = torch.tensor([[1.0, 0.0]], requires_grad=True)
    weight = torch.tensor([[500.0, 0.0], [-500.0, 0.0], [0.0, 1.0]])
    sums = smoothed_cross_entropy(hidden, weight, torch.tensor([1]), 1, 0.0)
    assert sums.cross_entropy.item() == pytest.approx(1_000.0)
    sums.objective.backward()
    assert hidden.grad[0, 0].item() == pytest.approx(1_000.0)


def test_sums_of_batches_add_up_and_padding_counts_nothing():
    pairs = EncodedPairs.from_ids([[4, 5, 6], [7], [8, 9]], [[5], [6, 7, 8, 9], [4, 4]])
    model = Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 10, 10).eval()
    objective = Objective(model, label_smoothing=0.1)
    with torch.no_grad():
        together = objective(collate(pairs, [0, 1, 2]))
        apart = [objective(collate(pairs, [index])) for index in range(3)]
    for name in ("objective", "cross_entropy", "num_correct"):
        assert getattr(together, name).item() == pytest.approx(
            sum(getattr(sums, name).item() for sums in apart), rel=1e-5
        )


def test_filling_counts_nothing_and_has_no_gradient():
    hidden, weight, targets = torch.randn(600, 8, requires_grad=True), torch.randn(37, 8), torch.randint(0, 37, (600,))
    sums = smoothed_cross_entropy(hidden, weight, targets, 300, 0.1)
    without = smoothed_cross_entropy(hidden[:300], weight, targets[:300], 300, 0.1)
    for name in ("objective", "cross_entropy", "num_correct"):
        assert getattr(sums, name).item() == pytest.approx(getattr(without, name).item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(sums.objective, hidden)
    assert (gradient[300:] == 0).all()
    assert torch.allclose(gradient[:300], torch.autograd.grad(without.objective, hidden)[0][:300], atol=1e-6)
