"""Laws of updates that are recorded once and repeated; on a CPU, a record is the function itself."""

import itertools

import pytest
import torch

from mt_cli.batching.batches import MixedPairs, collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.model.transformer import Transformer
from mt_cli.training import objective as objective_module
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, optimization_steps
from mt_cli.training.update import GraphedGradientAccumulator, GraphedUpdate, Update, reason_against_graphs

MODELS = [  # No key has a bias, whose gradient is noise.
    {"qkv_bias": False},
    {"qkv_bias": False, "positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"},
    {"positions": "learned", "norm_order": "post", "output_bias": True, "qkv_bias": False},
]
OPTIONS = [
    {},
    {"optimizer": "muon", "weight_decay": 0.1},
    {"micro_batches_per_step": 3, "max_grad_norm": None},
    {"r_drop": 2.0, "r_drop_start_step": 4},
]


def some_pairs(number=120):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 12, (number, 2), generator=generator).tolist()
    sequences = [[torch.randint(4, 50, (n,), generator=generator).tolist() for n in row] for row in lengths]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(objective_module, "_compiled", lambda definition: definition)


def trained(kind, dtype=torch.float32, num_steps=10, max_graphs=64, model_options=None, **options):
    """Losses, gradient norms and weights of some steps, and the update that made them."""
    torch.manual_seed(7)
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(ModelConfig(**sizes | {"dropout": 0.0} | (model_options or {})), 50, 50)
    config = TrainingConfig(batch_tokens=200, warmup_steps=3, **options)
    objective, optimizer = Objective(model, config), None
    optimizer = build_optimizer(objective, config)
    if kind == "eager":
        update = Update(GradientAccumulator(objective, dtype), optimizer, config)
    else:
        gradients = GraphedGradientAccumulator(objective, dtype)
        gradients.objective.compiles_loss, gradients._max_graphs = True, max_graphs
        update = GraphedUpdate(gradients, optimizer, config)
    pairs = MixedPairs(some_pairs(), [1.0], config.tokens_per_batch, config.seed)
    steps = optimization_steps(update, pairs, config, lambda step: 1e-2 / step, Position())
    reports = list(itertools.islice(steps, num_steps))
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    values = torch.tensor([[float(x) for x in (r.cross_entropy, r.grad_norm, r.num_correct)] for r in reports])
    return values, weights, update


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_recorded_steps_equal_launched_steps_with_a_grid(model, options):
    values, weights, update = trained("graphed", model_options=model, **options)
    expected, expected_weights, _ = trained("eager", model_options=model, **options)
    assert update.gradients._graphs  # Some batches were replays.
    assert torch.allclose(values, expected, rtol=1e-2 if "optimizer" in options else 1e-3)
    change = expected_weights - trained("eager", num_steps=0, model_options=model, **options)[1]
    assert (weights - expected_weights).norm() <= 0.01 * change.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_replays_have_the_bits_of_first_occurrences_with_dropout(dtype, options):
    model = {"dropout": 0.2, "feed_forward_dropout": 0.1, "word_dropout": 0.1, "positions": "rotary"}
    values, weights, update = trained("graphed", dtype, model_options=model, **options)
    expected, expected_weights, other = trained("graphed", dtype, model_options=model, max_graphs=0, **options)
    assert update.gradients._graphs and not other.gradients._graphs
    assert torch.equal(values, expected) and torch.equal(weights, expected_weights)


def test_batches_of_one_shape_differ_only_in_the_content_of_their_tensors():
    pairs = some_pairs()
    batches = [collate(pairs, range(start, start + 40), shaped_for=400) for start in range(80)]
    shapes = {batch.shape for batch in batches}
    assert 1 < len(shapes) < len(batches)
    for shape in shapes:
        of_shape = [batch for batch in batches if batch.shape == shape]
        assert len({tuple((x.shape, x.dtype) for x in batch.tensors) for batch in of_shape}) == 1
        for batch in of_shape:
            for side, num_rows in ((batch.source, shape.source_rows), (batch.target, shape.target_rows)):
                lengths = side.layout.starts.diff()
                assert len(side.ids) == num_rows == lengths.sum()
                assert len(lengths) == shape.num_sequences and lengths.min() >= 0 and lengths.max() <= shape.longest
                assert 0 <= num_rows - side.layout.num_tokens < 400 / 8 + 8


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_recorded_update_skips_a_step_whose_loss_is_not_finite(optimizer):
    _, before, update = trained("graphed", optimizer=optimizer)
    parameters = update.gradients.parameters
    for cross_entropy in (torch.tensor(torch.nan), torch.tensor(1.0)):
        for parameter in parameters:
            parameter.grad.fill_(0.1)
        assert bool(update.apply(cross_entropy, 0.1).is_finite) == (cross_entropy == 1)
        after = torch.cat([parameter.detach().flatten() for parameter in parameters])
        assert (after.sum() == before.sum()) == bool(cross_entropy.isnan())


def limited(gradients, does_not_fit):
    """Let batches for which a function is true exceed the memory."""
    compute = gradients.loss_and_gradients

    def compute_or_fail(batch, num_target_tokens):
        if does_not_fit(batch):
            raise RuntimeError("not enough memory: you tried to allocate")
        return compute(batch, num_target_tokens)

    gradients.loss_and_gradients = compute_or_fail


def test_graphs_are_given_up_for_a_batch_that_does_not_fit_beside_them():
    *_, update = trained("graphed")
    gradients, batch = update.gradients, collate(some_pairs(), range(100), 2000)
    assert gradients._graphs
    limited(gradients, lambda batch: bool(gradients._graphs))
    gradients.accumulate([batch], batch.num_target_tokens)
    assert not gradients._graphs and gradients.num_splits == 0
    gradients.accumulate([batch], batch.num_target_tokens)
    assert not gradients._graphs  # From now on, none is recorded.


def test_the_shape_of_a_batch_that_was_split_is_not_recorded():
    *_, update = trained("graphed", num_steps=0)
    gradients, batch = update.gradients, collate(some_pairs(), range(16), 400)
    gradients.accumulate([batch], batch.num_target_tokens)
    expected = [parameter.grad.clone() for parameter in gradients.parameters]
    limited(gradients, lambda batch: batch.num_sentences > 20)
    larger = collate(some_pairs(), range(40), 400)
    for _ in range(3):
        gradients.accumulate([larger], larger.num_target_tokens)
    assert gradients.num_splits and not gradients._graphs
    gradients.accumulate([batch], batch.num_target_tokens)
    for parameter, whole in zip(gradients.parameters, expected, strict=True):
        assert torch.allclose(parameter.grad, whole, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "model", "reason"),
    [
        ({}, {}, "only GPUs"),
    ],
)
def test_a_run_that_cannot_be_recorded_has_a_reason(options, model, reason):
    config = TrainingConfig(cuda_graphs=True, **options)
    assert reason in reason_against_graphs(config, ModelConfig(**model), torch.device("cpu"), torch.bfloat16)
