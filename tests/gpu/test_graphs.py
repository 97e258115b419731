"""What only a GPU shows of captured steps: they have the results of eager ones; and of kernels."""

import gc
import itertools
import os
from copy import deepcopy

import pytest
import torch
from tiny_models import padded, some_sources, tiny_model, weights_of

from mt_cli.config.sections import DecodingConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.data.batches import MixedPairs
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.packing import moved, shape_of, shaped_layout
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.predictor import Predictor
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.model.cached_attention import has_cached_kernel
from mt_cli.model.loss import Objective
from mt_cli.model.packed_attention import attend_packed, has_row_kernels
from mt_cli.runtime.cuda_graphs import GraphPool
from mt_cli.runtime.devices import reason_against_compiling
from mt_cli.runtime.group import copy_all
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import optimization_steps
from mt_cli.training.update import build_update, reason_against_graphs

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # For the deterministic mode, before the first product.
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Of the compiler.
]
CUDA = torch.device("cuda")
SIZES = {"d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
OPTIONS = [
    {"optimizer": "muon", "model": {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"}},
    {"micro_batches_per_step": 3, "model": {"norm_order": "post", "output_bias": True}},
    {"r_drop": 2.0},
]


def some_pairs():
    """Some have more positions than the first tables."""
    sources, targets = ([*[[5] * 290] * 12, *some_sources(588, 300, 40)] for _ in range(2))
    return EncodedPairs.from_ids(sources, targets[::-1])


def trained(number, max_graphs=128, state=None, compiles_layers=False, model=(), **options):
    """Losses and weights of some steps from a state on, and the state after them."""
    config = TrainingConfig(batch_tokens=1500, warmup_steps=0, **options)
    objective = Objective(tiny_model(vocab_size=300, **SIZES | {"dropout": 0.1} | dict(model)).to(CUDA), config)
    optimizer, position = build_optimizer(objective, config), Position()
    if state is not None:
        weights, moments, position = deepcopy(state)
        objective.load_state_dict(weights)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
    update = build_update(objective, optimizer, config, torch.bfloat16, compiles_layers=compiles_layers)
    assert update.gradients.captures, reason_against_graphs(config, objective.model.config, CUDA, torch.bfloat16)
    update.gradients.max_graphs = max_graphs
    pairs = MixedPairs(some_pairs(), [1.0], config.tokens_per_batch, config.seed)
    steps = optimization_steps(update, pairs, config, lambda step: 1e-3, position)
    losses = [float(report.cross_entropy) for report in itertools.islice(steps, number)]
    assert bool(update.gradients.graphs) == (max_graphs > 0 and number > 20)
    state = deepcopy((objective.state_dict(), optimizer.state_dict()["state"], position))
    return losses, weights_of(objective), state


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_captured_steps_have_the_bits_of_eager_ones(options):
    losses, weights, _ = trained(60, **options)
    expected, expected_weights, _ = trained(60, max_graphs=0, **options)
    assert losses == expected and torch.equal(weights, expected_weights)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_resumed_training_has_the_bits_of_an_unstopped_one(options):
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        _, expected, _ = trained(60, **options)
        _, _, state = trained(30, **options)
        _, weights, _ = trained(30, state=state, **options)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(weights, expected)


def test_a_deleted_graph_leaves_the_memory_of_others():
    """PyTorch 2.12 frees the workspace of cuBLAS of the stream (issue 193402); 640x32768x640 needs a workspace."""
    assert hasattr(torch._C, "_cuda_clearCublasWorkspaces")
    kept, deleted = GraphPool(CUDA), GraphPool(CUDA)
    deleted._stream = kept._stream
    generator = torch.Generator(CUDA).manual_seed(1)
    a, b = (torch.randn(size, generator=generator, device=CUDA).bfloat16() for size in ((640, 32768), (32768, 640)))
    products = [torch.empty(640, 640, device=CUDA, dtype=torch.bfloat16) for _ in range(2)]
    replays = []
    for pool, product in zip((kept, deleted), products, strict=True):
        with pool.stream():
            torch.mm(a, b, out=product)
        replays.append(pool.capture(lambda product=product: torch.mm(a, b, out=product)))
        replays[-1]()
    expected = products[0].clone()
    del replays[1], deleted
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    others = [torch.full((2**24,), float("nan"), device=CUDA) for _ in range(4)]
    products[0].zero_()
    replays[0]()
    assert torch.equal(products[0], expected) and all(bool(x.isnan().all()) for x in others)


def test_compiled_layers_learn_as_others():
    options = {"model": {"dropout": 0.0, "positions": "rotary", "qkv_bias": False}}
    losses, weights, _ = trained(40, compiles_layers=True, **options)
    expected, expected_weights, _ = trained(40, **options)
    assert losses == pytest.approx(expected, rel=0.02)
    change = expected_weights - trained(0, max_graphs=0, **options)[1]
    assert (weights - expected_weights).norm() <= 0.2 * change.norm()


@pytest.fixture
def captures_soon(monkeypatch):
    monkeypatch.setattr("mt_cli.decoding.predictor._STEPS_BEFORE_CAPTURE", 1)
    monkeypatch.setattr("mt_cli.model.cached_attention._FEWEST_ROWS", 1)


def a_model(**options):
    return tiny_model(vocab_size=500, spread=2.0, **SIZES | options).to(CUDA).eval()


@pytest.mark.parametrize(
    ("positions", "num_beams", "dtype"),
    [("rotary", 4, torch.bfloat16), ("sinusoidal", 1, torch.float32), ("sinusoidal", 4, torch.float16)],
)
@torch.inference_mode()
def test_graphs_predict_what_eager_steps_predict(captures_soon, positions, num_beams, dtype):
    """While a batch grows beyond a hundred positions and shrinks; the second time from graphs alone."""
    model = a_model(positions=positions).to(dtype)
    graphed, tolerance = Predictor(model), 1e-3 if dtype == torch.float32 else 0.1
    for number, shrinks in ((40, {5: 20, 70: 7}), (40, {5: 20, 70: 7}), (12, {}), (40, {5: 20, 70: 7})):
        generator, src_ids = torch.Generator(CUDA).manual_seed(1), padded(some_sources(number, 500, 40)).to(CUDA)
        with (
            graphed.start(src_ids, num_beams) as ours,
            Predictor(model, captures=False).start(src_ids, num_beams) as theirs,
        ):
            for step in range(110):
                tokens = torch.randint(4, 500, (number * num_beams,), generator=generator, device=CUDA)
                logits, expected = (prediction.next(tokens).float() for prediction in (ours, theirs))
                assert (logits - expected).abs().max() <= tolerance * expected.abs().max()
                parents = torch.randint(num_beams, (number, num_beams), generator=generator, device=CUDA)
                kept = torch.arange(1, 1 + shrinks[step], device=CUDA) if step in shrinks else None
                number = shrinks.get(step, number)
                for prediction in (ours, theirs):
                    prediction.select(parents if num_beams > 1 else None, kept)
    assert graphed.num_captured > 5


@pytest.mark.parametrize(
    "options", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 3, "no_repeat_ngram": 2}, {"sample": True}], ids=str
)
def test_an_engine_with_graphs_finds_the_translations_of_one_without(captures_soon, options):
    """With other weights in the same memory, too, as in the validations of a training."""
    model, sources = a_model(), [*map(Sentence, some_sources(300, 500, 40))]
    decoding = DecodingConfig(max_length_ratio=1.5, **options)
    graphed, eager = TransformerEngine(model), TransformerEngine(model, predictor=Predictor(model, captures=False))
    eager.predictor.fitting_tokens = None
    for seed in (1, 2):
        copy_all(list(a_model(seed=seed).parameters()), list(model.parameters()))
        expected = eager.search(sources, decoding)
        for _ in range(2):
            hypotheses = graphed.search(sources, decoding)
            same = [one.ids == other.ids for (one, *_), (other, *_) in zip(hypotheses, expected, strict=True)]
            assert sum(same) >= 0.98 * len(sources)  # Batches differ, and rounding with them.
    assert graphed.predictor.num_captured > 0


def test_the_memory_of_graphs_is_free_when_their_engine_is(captures_soon):
    model, sources, used = a_model(), [*map(Sentence, some_sources(200, 500, 30))], []
    for _ in range(4):
        engine = TransformerEngine(model)
        for _ in range(2):
            engine.search(sources, DecodingConfig(max_length_ratio=1.0))
        assert engine.predictor.num_captured > 0
        del engine
        gc.collect()
        torch.cuda.empty_cache()
        used.append(torch.cuda.memory_allocated())
    assert max(used[1:]) <= used[0] + 2**20


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_our_kernels_are_used_where_they_compile(dtype):
    for d_head in (24, 32, 64, 128):
        for has_kernel in (has_row_kernels, has_cached_kernel):
            assert has_kernel(CUDA, dtype, d_head) == (reason_against_compiling(CUDA) is None), (has_kernel, d_head)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_without_a_grid_is_that_of_its_definition(is_causal, dtype):
    """With padding in sequences of its own, and empty sequences."""
    if reason := reason_against_compiling(CUDA):
        pytest.skip(reason)
    lengths = torch.randint(1, 70, (2, 30), generator=torch.Generator().manual_seed(3)).numpy()
    if is_causal:
        lengths[0] = lengths[1]
    shape = shape_of(lengths, 3000)
    keys, queries = (
        shaped_layout(sides, number, shape.num_sequences, shape.longest)
        for sides, number in zip(lengths, (shape.source_rows, shape.target_rows), strict=True)
    )
    sizes = (shape.target_rows, shape.source_rows, shape.source_rows)
    for d_head in (24, 32, 64, 128):
        inputs, results = [torch.randn(number, 4, d_head) for number in sizes], []
        for device, precision in ((CUDA, dtype), (torch.device("cpu"), torch.float32)):
            leaves = [x.to(dtype).to(device, precision).requires_grad_() for x in inputs]
            layouts = [
                moved(layout, lambda x, device=device: x.to(device))
                for layout in ((keys, keys) if is_causal else (queries, keys))
            ]
            mixed = attend_packed(*leaves, *layouts, is_causal)
            results.append([mixed, *torch.autograd.grad(mixed.square().sum(), leaves)])
        for ours, definition in zip(*results, strict=True):
            assert (ours.float().cpu() - definition).norm() <= 0.02 * definition.norm(), d_head
