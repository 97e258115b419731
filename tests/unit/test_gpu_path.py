"""The path of a GPU without one: captured work is called, branches of GPUs run on a CPU, and `meta` has no values."""

import sys
from itertools import islice
from unittest.mock import Mock

import pytest
import torch
from meta_device import OnMeta
from tiny_models import SIZES, padded, some_pairs, some_sources, tiny_model, weights_of

from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import collate
from mt_cli.data.batches import MixedPairs
from mt_cli.decoding import predictor as predictor_module
from mt_cli.decoding import search as search_module
from mt_cli.decoding.constraints import FREE, Constraints
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.predictor import Predictor
from mt_cli.decoding.search import ON_CPU, ON_GPU, Beams, Independent, search
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import DivergenceError
from mt_cli.model import kernels
from mt_cli.model import loss as loss_module
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import outline
from mt_cli.run.log import TrainingLog
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import StepReport, optimization_steps
from mt_cli.training.update import Update

META = torch.device("meta")
VARIANTS = [  # No key has a bias, whose gradient is noise.
    {"qkv_bias": False, "positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"},
    {"qkv_bias": False, "norm_order": "post", "activation": "gelu", "output_bias": True},
]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 3, "no_repeat_ngram": 2, "unk": "avoid"},
    {"sample": True, "top_p": 0.9},
]
RUNS = [
    (VARIANTS[0], {"micro_batches_per_step": 3, "max_grad_norm": None}),
    (VARIANTS[1], {"r_drop": 2.0}),
    (VARIANTS[0], {"optimizer": "muon", "weight_decay": 0.1}),
]


def on_meta(dtype=torch.float32, **options):
    return outline(ModelConfig(**SIZES | options), 12, 12).to(META, dtype)


@pytest.fixture
def forced(monkeypatch):
    """A function that makes every branch take the way of other devices than CPUs, on a CPU."""

    def force():
        modules = [module for module in sys.modules.values() if getattr(module, "is_cpu", None) is kernels.is_cpu]
        assert {module.__name__ for module in modules} >= {
            "mt_cli.model.kernels",
            "mt_cli.model.attention",
            "mt_cli.model.loss",
        }
        for module in modules:
            monkeypatch.setattr(module, "is_cpu", lambda x: False)
        monkeypatch.setattr(search_module, "pace_of", lambda device: ON_GPU)
        monkeypatch.setattr(predictor_module, "_STEPS_BEFORE_CAPTURE", 1)

    return force


def trained(kind, dtype=torch.float32, num_steps=10, max_graphs=64, model=(), **options):
    """Losses, gradient norms and weights of some steps, and the update that made them."""
    config = TrainingConfig(batch_tokens=60, warmup_steps=3, **options)
    objective = Objective(tiny_model(**dict(model)), config)
    optimizer = build_optimizer(objective, config)
    gradients = GradientAccumulator(objective, dtype, captures=kind == "captured")
    gradients.objective.compiles_loss, gradients.max_graphs = gradients.captures, max_graphs
    update = Update(gradients, optimizer, config)
    pairs = MixedPairs(some_pairs(60), [1.0], config.tokens_per_batch, config.seed)
    steps = optimization_steps(update, pairs, config, lambda step: 1e-2 / step, Position())
    reports = list(islice(steps, num_steps))
    values = torch.tensor([[float(x) for x in (r.cross_entropy, r.grad_norm, r.num_correct)] for r in reports])
    return values, weights_of(objective), update


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    monkeypatch.setattr(loss_module, "_compiled", lambda definition: definition)


@pytest.mark.parametrize(("model", "options"), RUNS, ids=str)
def test_captured_training_equals_eager_training(model, options):
    values, weights, update = trained("captured", model=model, **options)
    expected, expected_weights, _ = trained("eager", model=model, **options)
    assert update.gradients.graphs  # Some batches were replays.
    assert torch.allclose(values, expected, rtol=1e-2 if "optimizer" in options else 1e-3)
    change = expected_weights - weights_of(tiny_model(**model))
    assert (weights - expected_weights).norm() <= 0.01 * change.norm()


@pytest.mark.parametrize(("model", "options"), RUNS[1:], ids=str)
def test_replays_have_the_bits_of_first_occurrences(model, options):
    """With dropout, too."""
    model = {"dropout": 0.2, "feed_forward_dropout": 0.1} | model
    values, weights, update = trained("captured", torch.bfloat16, model=model, **options)
    expected, expected_weights, other = trained("captured", torch.bfloat16, model=model, max_graphs=0, **options)
    assert update.gradients.graphs and not other.gradients.graphs
    assert torch.equal(values, expected) and torch.equal(weights, expected_weights)


def test_a_captured_update_skips_a_loss_that_is_not_finite():
    _, before, update = trained("captured")
    for parameter in update.gradients.parameters:
        parameter.grad.fill_(0.1)
    assert not update.apply(torch.tensor(torch.nan), 0.1)[1]
    assert torch.equal(weights_of(update.gradients.objective), before)
    assert update.apply(torch.tensor(1.0), 0.1)[1]


def limited(gradients, does_not_fit):
    """Let batches for which a function is true exceed the memory."""
    compute = gradients._compute

    def compute_or_fail(part):
        if does_not_fit(part.batch):
            raise RuntimeError("not enough memory: you tried to allocate")
        return compute(part)

    gradients._compute = compute_or_fail


def test_graphs_are_freed_for_a_batch_that_does_not_fit():
    *_, update = trained("captured")
    gradients, batch = update.gradients, collate(some_pairs(100), range(100), 2000)
    assert gradients.graphs
    limited(gradients, lambda batch: bool(gradients.graphs))
    for _ in range(2):  # From now on, none is recorded.
        gradients.accumulate([batch], batch.num_target_tokens)
        assert not gradients.graphs and not gradients.too_large


def test_the_shape_of_a_split_batch_is_not_recorded():
    *_, update = trained("captured", num_steps=0)
    gradients, batch = update.gradients, collate(some_pairs(), range(16), 400)
    gradients.accumulate([batch], batch.num_target_tokens)
    expected = [parameter.grad.clone() for parameter in gradients.parameters]
    limited(gradients, lambda batch: batch.num_sentences > 20)
    larger = collate(some_pairs(), range(40), 400)
    for _ in range(3):
        gradients.accumulate([larger], larger.num_target_tokens)
    assert gradients.too_large and not gradients.graphs
    gradients.accumulate([batch], batch.num_target_tokens)
    for parameter, whole in zip(gradients.parameters, expected, strict=True):
        assert torch.allclose(parameter.grad, whole, atol=1e-6)


@torch.inference_mode()
def logits_of(predictor, src_ids, num_beams, shrinks):
    """Logits of each step, with tokens, parents and dropped sentences that are the same for each predictor."""
    generator, logits = torch.Generator().manual_seed(1), []
    number = len(src_ids)
    with predictor.start(src_ids, num_beams) as prediction:
        for step in range(40):
            tokens = torch.randint(4, 12, (number * num_beams,), generator=generator)
            logits.append(prediction.next(tokens).float().clone())
            parents, kept = torch.randint(num_beams, (number, num_beams), generator=generator), None
            if step in shrinks:
                kept = torch.randperm(number, generator=generator)[: shrinks[step]]
                number = len(kept)
            prediction.select(parents if num_beams > 1 else None, kept)
    return logits


@pytest.mark.parametrize(("model", "num_beams"), [(VARIANTS[0], 3), (VARIANTS[1], 1)], ids=str)
def test_captured_logits_are_eager_ones_while_a_batch_changes(forced, model, num_beams):
    forced()
    model = tiny_model(**model).eval()
    graphed = Predictor(model, captures=True)
    for number, shrinks in ((21, {3: 10, 30: 7}), (5, {}), (21, {3: 10, 30: 2})):
        arguments = padded(some_sources(number)), num_beams, shrinks
        expected = logits_of(Predictor(model), *arguments)
        for ours, theirs in zip(logits_of(graphed, *arguments), expected, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-4)
    assert graphed.num_captured > 5


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_search_as_on_a_gpu_finds_the_same_translations(forced, options):
    """With batches that recur, captured steps, flags that are read seldom, and the branches of GPUs."""
    sentences, decoding = [*map(Sentence, some_sources(40))], DecodingConfig(max_length_ratio=1.0, **options)
    expected = TransformerEngine(model := tiny_model(spread=1.5).eval()).search(sentences, decoding, 2)
    forced()
    graphed = Predictor(model, captures=True)
    graphed.fitting_tokens = 500
    engine = TransformerEngine(model, predictor=graphed)
    found = engine.search(sentences, decoding.model_copy(update={"batch_tokens": 200}), 2)
    for ours, theirs in zip(found, expected, strict=True):
        assert [best.ids for best in ours] == [best.ids for best in theirs]
        assert [best.score for best in ours] == pytest.approx([best.score for best in theirs], abs=1e-4)
    assert graphed.num_captured > 0


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("pace", [ON_CPU, ON_GPU])
def test_a_search_with_a_model_that_diverged_is_an_error(monkeypatch, options, pace):
    monkeypatch.setattr(search_module, "pace_of", lambda device: pace)
    model = tiny_model().eval()
    torch.nn.init.constant_(model.projection.weight, float("nan"))
    with pytest.raises(DivergenceError):
        search(model, padded(some_sources(5)), DecodingConfig(**options))


def sums_and_gradients(objective, batch):
    objective.zero_grad()
    sums = GradientAccumulator(objective.train(), torch.float32).accumulate([batch], batch.num_target_tokens)
    return [float(value) for value in vars(sums).values()], [weight.grad for weight in objective.parameters()]


@pytest.mark.parametrize(("model", "r_drop"), [(VARIANTS[0], None), (VARIANTS[1], 3.0)], ids=str)
def test_branches_of_other_devices_have_the_same_loss_and_gradient(forced, model, r_drop):
    objective = Objective(tiny_model(**model), TrainingConfig(r_drop=r_drop))
    batch = collate(some_pairs(), range(40))
    expected, expected_gradients = sums_and_gradients(objective, batch)
    forced()
    sums, gradients = sums_and_gradients(objective, batch)
    assert sums == pytest.approx(expected)
    for one, other in zip(gradients, expected_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-6, rtol=1e-4)


def loop_on_meta(dtype, model=(), **options):
    """The training loop on the device `meta`, where reading a value raises NotImplementedError or RuntimeError."""
    config = TrainingConfig(batch_tokens=40, micro_batches_per_step=2, **options)
    objective = Objective(on_meta(**dict(model)), config)
    optimizer, average = build_optimizer(objective, config), MovingAverage(objective.model, 0.9)
    for group in (optimizer.defaults, *optimizer.param_groups):  # As on a GPU.
        group["fused"], group["foreach"] = True, False
    update = Update(GradientAccumulator(objective, dtype), optimizer, config)
    pairs = MixedPairs(some_pairs(), [1.0], config.batch_tokens, config.seed)

    def steps():
        for report in optimization_steps(update, pairs, config, lambda step: 1e-2, Position()):
            average.update(report.step)
            yield report

    return steps()


_DROPOUT = {"dropout": 0.1, "attention_dropout": 0.2, "feed_forward_dropout": 0.3}


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (torch.bfloat16, {"r_drop": 2.0, "max_grad_norm": None, "model": _DROPOUT}),
        (torch.float16, {"label_smoothing": 0.0, "model": VARIANTS[1]}),
    ],
    ids=str,
)
def test_an_update_copies_only_its_batches_to_the_device(monkeypatch, dtype, options):
    module = sys.modules["torch.optim.optimizer"]
    monkeypatch.setattr(module, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    steps = loop_on_meta(dtype, **options)
    with OnMeta() as seen:
        reports = list(islice(steps, 2))
    tensors_of_a_batch = 3 + 2 * 6  # Ids; positions, mask, rows, slots, starts and sequences of each side.
    assert len(reports) == 2 and seen.num_copies == tensors_of_a_batch * 2 * 2  # Micro-batches of two steps.


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@torch.inference_mode()
def test_every_operation_of_a_search_is_on_the_device(options):
    """While its cache grows; all translations have two tokens, and the first of some is forced."""
    decoding, model = DecodingConfig(**options), Ensemble([on_meta(**options) for options in VARIANTS]).eval()
    with OnMeta() as seen:
        lengths, free = torch.full((5,), 2, device=META), torch.full((5, 1), FREE, device=META)
        constraints = Constraints(decoding, frozenset([2]), lengths, free)
        state = Beams.start(5, decoding.beam_size, 1.0, META)
        if decoding.sample or decoding.beam_size == 1:
            scores = torch.zeros(5, 2, device=META)
            random_numbers = torch.zeros(5, 2, 4, device=META)
            state = Independent(scores.long()[..., None][..., :0], scores, scores == 0, random_numbers, decoding)
        num_beams = state.scores.shape[1]
        cache = model.start(torch.full((5, 7), EOS_ID, device=META), num_beams)
        tokens = torch.full((5 * num_beams,), SOS_ID, device=META)
        for _ in range(9):
            state = state.extend(model.next(tokens, cache), constraints.next_after(state.ids))
            cache.select(state.parents)
            tokens = state.ids[:, :, -1].flatten()
    assert seen.num_copies == 0


def logged(num_steps):
    """Rows of every third step, of which one is bad; and steps that are in no row, before and after they are read."""
    state, rows = RunState(Position()), []

    def write(step, metrics):
        rows.append((step, *(metrics[f"train/{name}"] for name in ("loss", "token_accuracy", "grad_norm"))))

    log = TrainingLog(TrainingConfig(log_every_steps=3), state, write, Mock())
    for step in range(1, num_steps + 1):
        values = [torch.tensor(float(value)) for value in (step, 10 * step, 2 * step)]
        log.add(StepReport(step, 0.1, *values, torch.tensor(step != 5), 4 * step, 0.1))
    num_read = len(state.unlogged)
    log.drain()
    return rows, num_read, [(step.cross_entropy, step.num_correct) for step in state.unlogged]


def test_reports_that_wait_on_a_device_give_the_same_rows(forced):
    rows, num_read, unlogged = logged(8)
    assert len(rows) == num_read == len(unlogged) == 2
    forced()
    assert logged(8) == (rows, 0, unlogged)
