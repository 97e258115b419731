import copy
import sys
from dataclasses import replace
from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from meta_device import OnMeta, Reads

from mt_cli.batching.batches import MixedPairs, collate, epoch_batches
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import DeviceMemoryError
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.model.transformer import Transformer, outline
from mt_cli.training.gradients import GradientAccumulator, fits_memory, largest_batch
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer, step_if
from mt_cli.training.steps import Position, count_steps, optimization_steps
from mt_cli.training.update import Update


def some_pairs(number=40):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 9, (number, 2), generator=generator).tolist()
    sequences = [[torch.randint(4, 12, (n,), generator=generator).tolist() for n in row] for row in lengths]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


def mixed_pairs(config):
    return MixedPairs(some_pairs(), [1.0], config.batch_tokens, config.seed)


def tiny_objective(**options):
    torch.manual_seed(7)
    config = ModelConfig(d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, **options)
    return Objective(Transformer(config, 12, 12), TrainingConfig())


def add_up_gradients(gradients, batches):
    return gradients.accumulate(batches, sum(batch.num_target_tokens for batch in batches))


def gradient_of(objective, micro_batches, dtype=torch.float32):
    objective.zero_grad()
    add_up_gradients(GradientAccumulator(objective, dtype), micro_batches)
    return {name: weight.grad.clone() for name, weight in objective.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_in_two", [False, True])
def test_recomputed_layers_have_the_same_gradient(dtype, is_in_two):
    pairs, objective = some_pairs(), tiny_objective(dropout=0.3, attention_dropout=0.2, feed_forward_dropout=0.2)
    halves = [range(20), range(20, 40)] if is_in_two else [range(40)]
    gradients, kept = [], []

    def keep(tensor):
        kept[-1] += tensor.nbytes
        return tensor

    for recomputes in (False, True):
        objective.model.recomputes_layers = recomputes
        torch.manual_seed(3)
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            gradients.append(gradient_of(objective, [collate(pairs, half) for half in halves], dtype))
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name
        assert gradient.any() or "bias" in name, name
    assert kept[1] < kept[0] / 2


def fp16_steps(number, **options):
    """Steps in fp16, their scales of the loss after each, and the gradients that it had."""
    config = TrainingConfig(batch_tokens=40, warmup_steps=0, precision="fp16")
    objective = tiny_objective(dropout=0.0)
    gradients = GradientAccumulator(objective, torch.float16)
    gradients.scaler.load_state_dict(gradients.scaler.state_dict() | options)
    optimizer = build_optimizer(objective, config)
    steps = optimization_steps(
        Update(gradients, optimizer, config), mixed_pairs(config), config, lambda step: 1e-3, Position()
    )
    found = []
    for report in islice(steps, number):
        found.append((report, gradients.scaler.get_scale(), weights_of(objective)))
    return found


def test_fp16_has_nearly_the_gradient_of_fp32_for_any_scale_of_the_loss():
    expected = [report.grad_norm for report in run_steps(1, objective=tiny_objective(dropout=0.0))[0]]
    for scale in (1.0, 2.0**6, 2.0**13):
        ((report, _, _),) = fp16_steps(1, scale=scale)
        assert report.is_finite
        assert report.grad_norm.item() == pytest.approx(expected[0].item(), rel=1e-2)


def test_a_gradient_that_overflows_fp16_skips_the_step_and_halves_the_scale():
    first, *_, last = found = fp16_steps(20, scale=2.0**24)
    assert not first[0].is_finite and first[1] == 2.0**23
    assert torch.equal(first[2], weights_of(tiny_objective(dropout=0.0)))
    scale = 2.0**24
    for report, after, _ in found:
        scale = scale if report.is_finite else scale / 2
        assert after == scale
    assert last[0].is_finite and not torch.equal(last[2], first[2])


def test_four_accumulated_batches_equal_one_large_batch():
    pairs, objective = some_pairs(), tiny_objective(dropout=0.0)
    small = [collate(pairs, range(start, start + 10)) for start in range(0, 40, 10)]
    apart, together = gradient_of(objective, small), gradient_of(objective, [collate(pairs, range(40))])
    for name in together:
        assert torch.allclose(apart[name], together[name], atol=1e-6), name


@pytest.mark.parametrize("tie", ["none", "target"])
def test_the_gradient_is_that_of_the_mean_loss_per_token(tie):
    pairs, objective = some_pairs(), tiny_objective(dropout=0.0, tie_embeddings=tie)
    batch = collate(pairs, range(12))
    ours = gradient_of(objective, [batch])
    objective.zero_grad()
    src_ids = batch.source.layout.padded(batch.source.ids)
    tgt_input_ids, tgt_output_ids = (
        batch.target.layout.padded(ids) for ids in (batch.target.ids, batch.tgt_output_ids)
    )
    logits = objective.model(src_ids, tgt_input_ids)
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), tgt_output_ids.flatten(), ignore_index=0, label_smoothing=0.1
    ).backward()
    for name, weight in objective.named_parameters():
        assert torch.allclose(ours[name], weight.grad, atol=1e-6), name


def test_bf16_activations_give_an_fp32_gradient_near_the_exact_one():
    pairs, objective = some_pairs(), tiny_objective(dropout=0.0)
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

    def __call__(self, batch):
        self.tried.append(batch.num_sentences)
        if batch.num_sentences > self._num_pairs:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self._forward(batch)


@pytest.mark.parametrize("num_pairs", [1, 7, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_split_for_lack_of_memory_has_the_same_gradient(monkeypatch, num_pairs, dtype):
    pairs, objective = some_pairs(), tiny_objective(dropout=0.0)
    batch = collate(pairs, range(40))
    expected = gradient_of(objective, [batch], dtype)
    objective.zero_grad()
    scarce = Scarce(objective, num_pairs)
    monkeypatch.setattr(objective, "forward", scarce)
    gradients = GradientAccumulator(objective, dtype)
    sums = add_up_gradients(gradients, [batch])
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    for name, weight in objective.named_parameters():
        assert (weight.grad - expected[name]).norm() <= tolerance * expected[name].norm() + 1e-7, name
    assert gradients.num_splits > 0
    monkeypatch.undo()
    assert sums.cross_entropy.item() == pytest.approx(float(objective(batch).cross_entropy), rel=1e-2)
    assert sums.num_correct.item() == pytest.approx(float(objective(batch).num_correct), abs=3)


def test_a_size_that_was_too_large_is_not_tried_again(monkeypatch):
    pairs, objective = some_pairs(), tiny_objective()
    scarce = Scarce(objective, 20)
    monkeypatch.setattr(objective, "forward", scarce)
    gradients = GradientAccumulator(objective, torch.float32)
    for _ in range(3):
        add_up_gradients(gradients, [collate(pairs, range(40))])
    assert scarce.tried == [40] + [20] * 6
    assert gradients.num_splits == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [(torch.OutOfMemoryError("CUDA out of memory"), DeviceMemoryError), (RuntimeError("shapes"), RuntimeError)],
)
def test_a_pair_that_does_not_fit_in_memory_and_other_failures_are_errors(error, expected):
    objective, sizes = tiny_objective(), []

    def fail(batch):
        sizes.append(batch.num_sentences)
        raise error

    objective.forward = fail
    with pytest.raises(expected):
        add_up_gradients(GradientAccumulator(objective, torch.float32), [collate(some_pairs(), range(4))])
    assert sizes == ([4, 2, 1] if expected is DeviceMemoryError else [4])


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


def test_trying_a_batch_leaves_no_gradients_and_no_change_of_random_numbers(monkeypatch):
    objective = tiny_objective()
    state = torch.get_rng_state()
    assert fits_memory(objective, torch.bfloat16, 5, 7, 70)
    scarce = Scarce(objective, 9)
    monkeypatch.setattr(objective, "forward", scarce)
    assert not fits_memory(objective, torch.float32, 5, 7, 70)
    assert scarce.tried[0] == 10
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None for weight in objective.parameters())


def run_steps(number, position=None, objective=None, optimizer=None, dtype=torch.float32, **options):
    config = TrainingConfig(batch_tokens=40, warmup_steps=0, **options)
    objective = objective or tiny_objective()
    optimizer = optimizer or build_optimizer(objective, config)
    position = position or Position()
    gradients = GradientAccumulator(objective, dtype)
    steps = optimization_steps(
        Update(gradients, optimizer, config), mixed_pairs(config), config, lambda step: 1e-2, position
    )
    reports = [next(steps) for _ in range(number)]
    return reports, objective, optimizer, position


def loop_on_meta(dtype, fused, model=(), **options):
    """The training loop on the device `meta`, where reading a value raises NotImplementedError or RuntimeError."""
    model = ModelConfig(d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, **dict(model))
    config = TrainingConfig(batch_tokens=40, micro_batches_per_step=2, **options)
    objective = Objective(outline(model, 12, 12).to("meta"), config)
    optimizer = build_optimizer(objective, config)
    if fused:  # As on a GPU; `build_optimizer` does not choose it for `meta`.
        for each in (optimizer.defaults, *optimizer.param_groups):
            each["fused"], each["foreach"] = True, False
    schedule, position = (lambda step: 1e-2), Position()
    gradients = GradientAccumulator(objective, dtype)
    return optimization_steps(
        Update(gradients, optimizer, config), mixed_pairs(config), config, schedule, position
    ), optimizer


_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.2, "feed_forward_dropout": 0.3, "word_dropout": 0.1}


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.float32, {"recompute_layers": True, "model": _DROPOUT}),
        (torch.bfloat16, {"recompute_layers": True, "r_drop": 2.0, "label_smoothing": 0.0, "max_grad_norm": None}),
        (torch.bfloat16, {"r_drop": 2.0, "model": {"positions": "rotary", "activation": "swiglu"}}),
        (torch.float16, {"model": {"positions": "learned", "norm_order": "post", "output_bias": True}}),
        (torch.bfloat16, {"optimizer": "muon", "model": {"tie_embeddings": "all"}}),
    ],
    ids=str,
)
def test_every_operation_of_an_update_is_on_the_device_but_the_copies_of_its_batches(monkeypatch, dtype, options):
    module = sys.modules["torch.optim.optimizer"]
    monkeypatch.setattr(module, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    is_muon = "optimizer" in options
    if is_muon:  # AdamW is fused for the other parameters.
        monkeypatch.setattr("mt_cli.training.optimizer.has_fast_bf16", lambda device: True)
        adamw = torch.optim.AdamW
        monkeypatch.setattr(torch.optim, "AdamW", lambda *args, **given: adamw(*args, **given | {"fused": True}))
    steps, _ = loop_on_meta(dtype, fused=not is_muon, **options)
    reads = {"__bool__": lambda tensor: True} if is_muon else {}
    with Reads(**reads), OnMeta() as seen:
        reports = list(islice(steps, 2))
    tensors_of_a_batch = 3 + 2 * 6  # Ids; positions, mask, rows, slots, starts and sequences of each side.
    assert seen.num_copies == tensors_of_a_batch * sum(len(report.placed) for report in reports)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_without_a_fused_optimizer_the_loop_reads_one_boolean(name):
    read = []
    steps, optimizer = loop_on_meta(torch.float32, fused=False, optimizer=name)
    with Reads(__bool__=lambda tensor: read.append(tensor) or True):
        reports = [next(steps) for _ in range(2)]
    assert [id(each) for each in read] == [id(report.is_finite) for report in reports]
    assert all(optimizer.state[weight] for group in optimizer.param_groups for weight in group["params"])


def test_training_and_validation_measure_the_same_loss():
    pairs, objective = some_pairs(), tiny_objective(dropout=0.0)
    sums = add_up_gradients(GradientAccumulator(objective.train(), torch.float32), [collate(pairs, range(40))])
    scores, num_tokens = score_tokens(objective, pairs, 60), int(pairs.lengths()[1].sum()) + 40
    assert sums.cross_entropy.item() / num_tokens == pytest.approx(scores.loss, rel=1e-5)
    assert sums.num_correct.item() / num_tokens == pytest.approx(scores.token_accuracy)


def weights_of(objective):
    return torch.cat([weight.detach().flatten() for weight in objective.parameters()])


def test_same_seed_gives_the_same_run():
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(weights_of(run_steps(9)[1]))
    assert torch.equal(*weights)


def test_a_run_resumed_at_its_position_equals_one_that_did_not_stop():
    torch.manual_seed(3)
    whole = weights_of(run_steps(12)[1])
    torch.manual_seed(3)
    _, objective, optimizer, position = run_steps(5)
    copied = copy.deepcopy(position)
    assert torch.equal(weights_of(run_steps(7, copied, objective, optimizer)[1]), whole)


def test_training_lowers_the_loss_and_counts_its_tokens():
    reports, _, _, position = run_steps(60)
    first, last = reports[0], reports[-1]
    assert last.cross_entropy / last.num_target_tokens < 0.8 * first.cross_entropy / first.num_target_tokens
    assert [report.step for report in reports] == list(range(1, 61))
    assert position.num_target_tokens == sum(report.num_target_tokens for report in reports)
    assert position.epoch == sum(len(report.placed) for report in reports) // micro_batches_per_epoch() > 1


def micro_batches_per_epoch():
    config = TrainingConfig(batch_tokens=40)
    return len(list(epoch_batches(mixed_pairs(config), 40, config.seed, 0)))


def test_accumulation_takes_fewer_steps_per_epoch():
    for micro_batches in (1, 3):
        steps = -(-micro_batches_per_epoch() // micro_batches)
        assert run_steps(steps - 1, micro_batches_per_step=micro_batches)[3].epoch == 0
        position = run_steps(steps, micro_batches_per_step=micro_batches)[3]
        assert (position.epoch, position.pool, position.num_batches) == (1, 0, 0)


def test_growing_steps_take_ever_more_micro_batches_up_to_the_largest_number():
    options = {"micro_batches_per_step": 4, "micro_batches_growth_steps": 9}
    config = TrainingConfig(batch_tokens=40, **options)
    sizes = [config.num_micro_batches(step) for step in range(1, 13)]
    assert (sizes[0], sizes[9:]) == (1, [4, 4, 4])
    assert {second - first for first, second in pairwise(sizes)} == {0, 1}
    reports = run_steps(5, **options)[0]
    assert [len(report.placed) for report in reports[:5]] == sizes[:5]


@pytest.mark.parametrize("growth", [None, 2, pytest.param(5, marks=pytest.mark.slow), 1000])
def test_the_steps_of_growing_batches_are_counted_exactly(growth):
    options = {"micro_batches_per_step": 3, "micro_batches_growth_steps": growth}
    num_steps = count_steps(TrainingConfig(batch_tokens=40, **options), 1, micro_batches_per_epoch(), 3)
    assert run_steps(num_steps - 1, **options)[3].epoch == 2
    position = run_steps(num_steps, **options)[3]
    assert (position.epoch, position.pool, position.num_batches) == (3, 0, 0)


@pytest.mark.parametrize("fused", [True, False])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_the_next_step(fused):
    objective, untouched = tiny_objective(), tiny_objective()
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.1, fused=fused) for each in (objective, untouched)]
    for is_bad in (False, True, False):
        for each, optimizer in zip((objective, untouched), optimizers, strict=True):
            if is_bad and each is untouched:
                continue
            for weight in each.parameters():
                weight.grad = torch.full_like(weight, float("nan") if is_bad else 0.5)
            step_if(torch.tensor(not is_bad), optimizer)
    assert torch.equal(weights_of(objective), weights_of(untouched))
    assert weights_of(objective).isfinite().all()


def test_a_gradient_that_is_not_finite_is_reported_and_leaves_the_weights(monkeypatch):
    objective = tiny_objective()
    reports, objective, optimizer, position = run_steps(1, objective=objective)
    assert bool(reports[0].is_finite)
    before = weights_of(objective)
    forward = objective.forward

    def overflowing(batch):
        sums = forward(batch)
        return replace(sums, objective=sums.objective * float("inf"))

    monkeypatch.setattr(objective, "forward", overflowing)
    reports = run_steps(2, position, objective, optimizer)[0]
    assert [bool(report.is_finite) for report in reports] == [False, False]
    assert torch.equal(weights_of(objective), before)
    assert position.step == 3
