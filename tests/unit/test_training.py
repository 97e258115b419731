from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import some_pairs, tiny_model, unpacked, weights_of

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import collate
from mt_cli.data.batches import MixedPairs, epoch_batches
from mt_cli.errors import DeviceMemoryError
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.model import loss as loss_module
from mt_cli.model.loss import Objective
from mt_cli.run.config import fits_memory, largest_batch
from mt_cli.training import update as update_module
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import count_steps, optimization_steps
from mt_cli.training.update import Update


def mixed_pairs(config):
    return MixedPairs(some_pairs(), [1.0], config.batch_tokens, config.seed)


def tiny_objective(**options):
    return Objective(tiny_model(**options), TrainingConfig())


def add_up_gradients(gradients, batches):
    return gradients.accumulate(batches, sum(batch.num_target_tokens for batch in batches))


def gradient_of(objective, micro_batches, dtype=torch.float32):
    objective.zero_grad()
    add_up_gradients(GradientAccumulator(objective, dtype), micro_batches)
    return {name: weight.grad.clone() for name, weight in objective.named_parameters()}


def run_steps(number, position=None, objective=None, optimizer=None, gradients=None, **options):
    config = TrainingConfig(batch_tokens=40, warmup_steps=0, **options)
    objective = objective or tiny_objective(dropout=0.1)
    optimizer = optimizer or build_optimizer(objective, config)
    position = position or Position()
    update = Update(gradients or GradientAccumulator(objective, torch.float32), optimizer, config)
    steps = optimization_steps(update, mixed_pairs(config), config, lambda step: 1e-2, position)
    return list(islice(steps, number)), objective, optimizer, position


def fp16_steps(number, scale):
    """Reports of steps in fp16 that begin with this scale of the loss, the scale after them, and the objective."""
    objective = tiny_objective()
    gradients = GradientAccumulator(objective, torch.float16)
    gradients.scaler.load_state_dict(gradients.scaler.state_dict() | {"scale": scale})
    reports, *_ = run_steps(number, objective=objective, gradients=gradients)
    return reports, gradients.scaler.get_scale(), objective


def test_fp16_has_nearly_the_gradient_of_fp32_for_any_scale():
    (expected,), *_ = run_steps(1, objective=tiny_objective())
    for scale in (1.0, 2.0**13):
        (report,), *_ = fp16_steps(1, scale)
        assert report.is_finite
        assert report.grad_norm.item() == pytest.approx(expected.grad_norm.item(), rel=1e-2)


def test_an_overflow_in_fp16_skips_a_step():
    (first,), scale, objective = fp16_steps(1, 2.0**24)
    assert not first.is_finite and scale == 2.0**23
    assert torch.equal(weights_of(objective), weights_of(tiny_objective()))
    reports, scale, _ = fp16_steps(20, 2.0**24)
    assert reports[-1].is_finite
    assert scale == 2.0**24 / 2 ** sum(not report.is_finite for report in reports)


def test_four_accumulated_batches_equal_one_large_batch():
    pairs, objective = some_pairs(), tiny_objective()
    small = [collate(pairs, range(start, start + 10)) for start in range(0, 40, 10)]
    apart, together = gradient_of(objective, small), gradient_of(objective, [collate(pairs, range(40))])
    for name in together:
        assert torch.allclose(apart[name], together[name], atol=1e-6), name


@pytest.mark.parametrize("tie", ["none", "target"])
def test_the_gradient_is_that_of_the_mean_loss_per_token(tie):
    pairs, objective = some_pairs(), tiny_objective(tie_embeddings=tie)
    batch = collate(pairs, range(12))
    ours = gradient_of(objective, [batch])
    objective.zero_grad()
    src_ids = unpacked(batch.source.ids, batch.source.layout)
    tgt_input_ids, tgt_output_ids = (
        unpacked(ids, batch.target.layout) for ids in (batch.target.ids, batch.tgt_output_ids)
    )
    logits = objective.model(src_ids, tgt_input_ids)
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tgt_output_ids.flatten(), ignore_index=0, label_smoothing=0.1
    ).backward()
    for name, weight in objective.named_parameters():
        assert torch.allclose(ours[name], weight.grad, atol=1e-6), name


def test_bf16_activations_give_an_fp32_gradient_near_the_exact_one():
    pairs, objective = some_pairs(), tiny_objective()
    batch = collate(pairs, range(40))
    exact, rough = gradient_of(objective, [batch]), gradient_of(objective, [batch], torch.bfloat16)
    assert all(grad.dtype == torch.float32 for grad in rough.values())
    flat = [torch.cat([grad.flatten() for grad in grads.values()]) for grads in (exact, rough)]
    assert torch.cosine_similarity(*flat, dim=0) > 0.999


class Scarce:
    """An objective's forward with memory for batches of up to `num_pairs` pairs."""

    def __init__(self, objective, num_pairs):
        self._forward, self._num_pairs = objective.forward, num_pairs
        self.tried = []

    def __call__(self, batch, grad_scale):
        self.tried.append(batch.num_sentences)
        if batch.num_sentences > self._num_pairs:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self._forward(batch, grad_scale)


@pytest.mark.parametrize(("num_pairs", "dtype", "tolerance"), [(1, torch.float32, 1e-5), (7, torch.bfloat16, 0.05)])
def test_a_batch_split_to_fit_has_the_same_gradient(monkeypatch, num_pairs, dtype, tolerance):
    pairs, objective = some_pairs(), tiny_objective()
    batch = collate(pairs, range(40))
    expected, whole = gradient_of(objective, [batch], dtype), objective(batch)
    objective.zero_grad()
    monkeypatch.setattr(objective, "forward", Scarce(objective, num_pairs))
    gradients = GradientAccumulator(objective, dtype)
    sums = add_up_gradients(gradients, [batch])
    for name, weight in objective.named_parameters():
        assert (weight.grad - expected[name]).norm() <= tolerance * expected[name].norm() + 1e-7, name
    assert gradients.too_large
    assert sums.cross_entropy.item() == pytest.approx(whole.cross_entropy.item(), rel=1e-2)
    assert sums.num_correct.item() == pytest.approx(whole.num_correct.item(), abs=3)


@pytest.mark.parametrize(
    ("error", "expected", "sizes"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), DeviceMemoryError, [4, 2, 1]),
        (RuntimeError("shapes"), RuntimeError, [4]),
    ],
)
def test_a_pair_that_does_not_fit_is_an_error(error, expected, sizes):
    """Other failures are not tried again."""
    objective, tried = tiny_objective(), []

    def fail(batch, grad_scale):
        tried.append(batch.num_sentences)
        raise error

    objective.forward = fail
    with pytest.raises(expected):
        add_up_gradients(GradientAccumulator(objective, torch.float32), [collate(some_pairs(), range(4))])
    assert tried == sizes


@given(st.integers(1, 100), st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_largest_batch_is_found_to_an_eighth(smallest, largest, limit):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= limit

    found = largest_batch(fits, smallest, largest)
    assert found == smallest or (found <= min(limit, largest))
    if limit >= smallest and largest >= smallest:
        assert found + found // 8 + smallest // 8 + 1 > min(limit, largest) - min(limit, largest) // 8
    assert all(size <= largest for size in tried)


def test_trying_a_batch_leaves_no_gradients(monkeypatch):
    objective = tiny_objective(dropout=0.1)
    assert fits_memory(objective, TrainingConfig(), torch.bfloat16, 5, 7, 70)
    scarce = Scarce(objective, 9)
    monkeypatch.setattr(objective, "forward", scarce)
    assert not fits_memory(objective, TrainingConfig(), torch.float32, 5, 7, 70)
    assert scarce.tried[0] == 10
    assert all(weight.grad is None for weight in objective.parameters())


def test_a_trial_of_a_batch_computes_the_loss_of_training(monkeypatch):
    """On a GPU that captures steps, this is the compiled loss, which needs more memory."""
    monkeypatch.setattr(update_module, "reason_against_graphs", lambda *arguments: None)
    num_rows = []

    def compiled(definition):
        return lambda loss, hidden, *rest: num_rows.append(hidden.shape[1]) or definition(loss, hidden, *rest)

    monkeypatch.setattr(loss_module, "_compiled", compiled)
    assert fits_memory(tiny_objective(), TrainingConfig(), torch.bfloat16, 5, 7, 70)
    assert len(num_rows) == 1 and num_rows[0] >= 70  # Rounded up, as in training.


def test_training_and_validation_measure_the_same_loss():
    pairs, objective = some_pairs(), tiny_objective()
    sums = add_up_gradients(GradientAccumulator(objective.train(), torch.float32), [collate(pairs, range(40))])
    scores, num_tokens = score_tokens(objective, pairs, 60), int(pairs.lengths()[1].sum()) + 40
    assert sums.cross_entropy.item() / num_tokens == pytest.approx(scores.loss, rel=1e-5)
    assert sums.num_correct.item() / num_tokens == pytest.approx(scores.token_accuracy)


@pytest.mark.parametrize("captures", [False, True])
def test_a_stopped_run_with_little_memory_equals_an_unstopped_one(captures):
    """Batches that do not fit are computed in halves, and their random numbers do not depend on earlier batches."""

    def run(number, position=None, objective=None, optimizer=None):
        objective = objective or tiny_objective(dropout=0.3)
        gradients = GradientAccumulator(objective, torch.float32, captures=captures)
        compute = gradients.objective.forward

        def scarce(batch, grad_scale):
            sums = compute(batch, grad_scale)  # Draws random numbers.
            if len(batch.source.ids) + len(batch.target.ids) > 40 and batch.num_sentences > 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return sums

        gradients.objective.forward = scarce
        try:
            _, *state = run_steps(number, position, objective, optimizer, gradients)
        finally:
            gradients.objective.forward = compute
        assert gradients.too_large
        return state

    torch.manual_seed(3)
    whole, *_ = run(12)
    torch.manual_seed(3)
    objective, optimizer, position = run(5)
    assert torch.equal(weights_of(run(7, position, objective, optimizer)[0]), weights_of(whole))


def micro_batches_per_epoch():
    config = TrainingConfig(batch_tokens=40)
    return len(list(epoch_batches(mixed_pairs(config), 40, config.seed, 0)))


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_the_steps_of_epochs_are_counted_exactly(micro_batches):
    options = {"micro_batches_per_step": micro_batches}
    num_steps = count_steps(TrainingConfig(batch_tokens=40, **options), 1, micro_batches_per_epoch(), 2)
    assert num_steps == 2 * -(-micro_batches_per_epoch() // micro_batches)
    assert run_steps(num_steps - 1, **options)[3].epoch == 1
    position = run_steps(num_steps, **options)[3]
    assert (position.epoch, position.pool, position.num_batches) == (2, 0, 0)
