"""What only a GPU shows of recorded steps: they have the bits of launched ones; and of kernels without a grid."""

import itertools
import os
from copy import deepcopy

import pytest
import torch

from mt_cli.batching.batches import MixedPairs
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.batching.packing import shape_of, shaped_layout
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.machine.devices import can_compile
from mt_cli.machine.graphs import GraphPool
from mt_cli.model.kernels import attend_packed
from mt_cli.model.packed_attention import has_row_kernels
from mt_cli.model.transformer import Transformer
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, optimization_steps
from mt_cli.training.update import GraphedUpdate, build_update, reason_against_graphs

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # For the deterministic mode, before the first product.
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Of the compiler.
]
CUDA = torch.device("cuda")
OPTIONS = [
    {},
    {"optimizer": "muon", "model": {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "all"}},
    {
        "micro_batches_per_step": 3,
        "model": {"positions": "learned", "max_positions": 512, "norm_order": "post", "output_bias": True},
    },
    {"r_drop": 2.0, "r_drop_start_step": 5},
]


def some_pairs():
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 40, (600, 2), generator=generator)
    lengths[::50] = 290  # More positions than the first tables have.
    sequences = [[torch.randint(4, 300, (n,), generator=generator).tolist() for n in row] for row in lengths.tolist()]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


def an_objective(config, **options):
    torch.manual_seed(7)
    sizes = {"d_model": 64, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return Objective(Transformer(ModelConfig(**sizes | options), 300, 300).to(CUDA), config)


def trained(number, max_graphs=128, state=None, compiles_layers=False, model=None, **options):
    """Losses and weights of some steps from a state on, and the state after them."""
    config = TrainingConfig(batch_tokens=1500, warmup_steps=0, **options)
    objective = an_objective(config, **{"dropout": 0.1} | (model or {}))
    optimizer, position = build_optimizer(objective, config), Position()
    if state is not None:
        weights, moments, position = deepcopy(state)
        objective.load_state_dict(weights)
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": moments, "param_groups": groups})
    update = build_update(objective, optimizer, config, torch.bfloat16, compiles_layers=compiles_layers)
    assert isinstance(update, GraphedUpdate), reason_against_graphs(
        config, objective.model.config, CUDA, torch.bfloat16
    )
    update.gradients._max_graphs = max_graphs
    pairs = MixedPairs(some_pairs(), [1.0], config.tokens_per_batch, config.seed)
    steps = optimization_steps(update, pairs, config, lambda step: 1e-3, position)
    losses = [float(report.cross_entropy) for report in itertools.islice(steps, number)]
    assert bool(update.gradients._graphs) == (max_graphs > 0 and number > 20)
    state = deepcopy((objective.state_dict(), optimizer.state_dict()["state"], position))
    return losses, torch.cat([weight.detach().flatten() for weight in objective.parameters()]), state


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_recorded_steps_have_the_bits_of_launched_ones(options):
    losses, weights, _ = trained(60, **options)
    expected, expected_weights, _ = trained(60, max_graphs=0, **options)
    assert losses == expected and torch.equal(weights, expected_weights)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_training_that_resumes_has_the_bits_of_one_that_never_stopped(options):
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        _, expected, _ = trained(60, **options)
        _, _, state = trained(30, **options)
        _, weights, _ = trained(30, state=state, **options)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(weights, expected)


def test_a_deleted_graph_leaves_the_memory_of_others_on_its_stream():
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_our_attention_kernel_is_used_where_it_compiles(dtype):
    assert all(has_row_kernels(CUDA, dtype, d_head) == can_compile(CUDA) for d_head in (24, 32, 64, 128))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("d_head", [24, 32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("with_row_kernels", [False, True])
def test_attention_without_a_grid_is_that_of_its_definition(is_causal, d_head, dtype, with_row_kernels):
    """With padding in sequences of its own, and empty sequences."""
    if with_row_kernels and not can_compile(CUDA):
        pytest.skip("Triton cannot make kernels here")
    lengths = torch.randint(1, 70, (2, 30), generator=torch.Generator().manual_seed(3)).numpy()
    if is_causal:
        lengths[0] = lengths[1]
    shape = shape_of(lengths, 3000)
    rows = (shape.source_rows, shape.target_rows)
    keys, queries = (
        shaped_layout(sides, number, shape.num_sequences, shape.longest)
        for sides, number in zip(lengths, rows, strict=True)
    )
    generator = torch.Generator().manual_seed(4)
    sizes = (shape.target_rows, shape.source_rows, shape.source_rows)
    inputs = [torch.randn(number, 4, d_head, generator=generator) for number in sizes]
    results = []
    for device, precision in ((CUDA, dtype), (torch.device("cpu"), torch.float32)):
        leaves = [x.to(dtype).to(device, precision).requires_grad_() for x in inputs]
        layouts = [
            layout.moved(lambda x, device=device: x.to(device)).without_grid(keeps_sequences=with_row_kernels)
            for layout in ((keys, keys) if is_causal else (queries, keys))
        ]
        mixed = attend_packed(*leaves, *layouts, None, is_causal=is_causal)
        results.append([mixed, *torch.autograd.grad(mixed.square().sum(), leaves)])
    for ours, definition in zip(*results, strict=True):
        assert (ours.float().cpu() - definition).norm() <= 0.02 * definition.norm()
