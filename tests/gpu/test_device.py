"""What only a GPU shows: no waiting in a step, memory, a graph of a step, and several GPUs."""

import itertools
import json
import sys
from contextlib import contextmanager

import pytest
import torch
import yaml
from run_content import checkpoint_content

from mt_cli.batching.batches import MixedPairs, collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding.next_tokens import FREE, Constraints
from mt_cli.decoding.search import Beams, Samples
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special import EOS_ID, SOS_ID
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import GradientAccumulator, fits_memory, largest_batch
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, optimization_steps
from mt_cli.training.update import build_update

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # It is a prototype, says PyTorch.
]
NEEDS_TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
CUDA = torch.device("cuda")


@contextmanager
def no_waiting():
    """Context manager in which an operation that makes the CPU wait for the GPU raises RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@contextmanager
def memory_limit(num_bytes):
    """Context manager in which PyTorch allocates at most this memory of the GPU."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(num_bytes / total, 0)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)


def some_pairs(number, length, vocab_size):
    """Pairs of up to `length` tokens; the first has that length."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, length + 1, (number, 2), generator=generator)
    lengths[0] = length
    sequences = [
        [torch.randint(4, vocab_size, (n,), generator=generator).tolist() for n in row] for row in lengths.tolist()
    ]
    return EncodedPairs.from_ids([row[0] for row in sequences], [row[1] for row in sequences])


def a_model(width=64, vocab_size=500, **options):
    torch.manual_seed(7)
    sizes = {"d_model": width, "d_ff": 2 * width, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return Transformer(ModelConfig(**sizes | options), vocab_size, vocab_size).to(CUDA)


def steps_of(model, dtype, pairs, **options):
    config = TrainingConfig(batch_tokens=2000, **options)
    objective = Objective(model, config)
    mixed = MixedPairs(pairs, [1.0], config.tokens_per_batch, config.seed)
    optimizer = build_optimizer(objective, config)
    update = build_update(objective, optimizer, config, dtype)
    return optimization_steps(update, mixed, config, lambda step: 1e-3, Position())


def test_the_mode_that_forbids_waiting_notices_a_read():
    value = torch.ones((), device=CUDA)
    with no_waiting(), pytest.raises(RuntimeError, match="synchroniz"):
        value.item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"recompute_layers": True, "r_drop": 2.0},
        {
            "micro_batches_per_step": 2,
            "model": {"positions": "rotary", "activation": "swiglu", "attention_dropout": 0.1},
        },
    ],
    ids=str,
)
def test_a_step_never_waits_for_the_device(dtype, options):
    options = dict(options)
    model = a_model(**options.pop("model", {}))
    steps, average = steps_of(model, dtype, some_pairs(2_000, 30, 500), **options), MovingAverage(model, 0.99)
    for _ in range(2):  # The first steps make what later ones use again.
        next(steps)
    with no_waiting():
        for report in itertools.islice(steps, 5):
            average.update(report.step)
    assert bool(report.is_finite)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4, "no_repeat_ngram": 2, "unk": "avoid"}], ids=str)
def test_a_step_of_a_search_never_waits_for_the_device(dtype, options):
    model, decoding = a_model(positions="rotary").to(dtype).eval(), DecodingConfig(**options)
    num_beams = decoding.beam_size
    constraints = Constraints(
        decoding, frozenset([3]), torch.full((5,), 3, device=CUDA), torch.full((5, 1), FREE, device=CUDA)
    )
    state = Beams.start(5, num_beams, CUDA)
    if num_beams == 1:
        scores = torch.zeros(5, 1, device=CUDA)
        ids = torch.zeros(5, 1, 0, dtype=torch.int64, device=CUDA)
        state = Samples(ids, scores, scores == 0, scores.new_empty(5, 1, 0))
    with torch.inference_mode():
        cache = model.start(torch.full((5, 7), EOS_ID, device=CUDA), num_beams)
        tokens = torch.full((5 * num_beams,), SOS_ID, device=CUDA)
        with no_waiting():
            for _ in range(10):
                state = state.extend(model.next(tokens, cache), constraints.next_after(state.ids), decoding)
                flags = torch.stack([state.is_done(1.0), state.is_nan()])
                cache.select(state.parents)
                tokens = state.ids[:, :, -1].flatten()
    assert flags.shape == (2, 5) and not flags[1].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_of_later_steps_is_that_of_the_first_epochs(dtype):
    steps, used, peaks = steps_of(a_model(), dtype, some_pairs(500, 30, 500)), [], []
    for _ in range(5):
        torch.cuda.reset_peak_memory_stats()
        for _ in itertools.islice(steps, 20):  # Some epochs.
            pass
        used.append(torch.cuda.memory_allocated())
        peaks.append(torch.cuda.max_memory_allocated())
    assert max(used[1:]) <= used[0] + 2**21
    assert max(peaks[1:]) <= 1.05 * peaks[0]


def gradient_of(model, batch, **options):
    """The gradient of a batch, how often it was split, and the peak of the memory."""
    model.zero_grad()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    gradients = GradientAccumulator(Objective(model, TrainingConfig()).train(), torch.float32)
    gradients.accumulate([batch], batch.num_target_tokens)
    flat = torch.cat([weight.grad.flatten() for weight in gradients.parameters]).cpu()
    return flat, gradients.num_splits, torch.cuda.max_memory_allocated()


def test_a_batch_that_does_not_fit_in_memory_is_split_and_has_the_same_gradient():
    model = a_model(256, 8_000, dropout=0.0)
    batch = collate(some_pairs(1_000, 30, 8_000), range(1_000)).to(CUDA)
    model.zero_grad()
    before = torch.cuda.memory_allocated()
    expected, num_splits, peak = gradient_of(model, batch)
    assert num_splits == 0
    model.zero_grad()
    with memory_limit(before + 0.75 * (peak - before)):
        found, num_splits, _ = gradient_of(model, batch)
    assert num_splits > 0
    assert (found - expected).norm() <= 1e-4 * expected.norm()


def test_the_largest_batch_that_fits_is_found_and_fits():
    model = a_model(256, 8_000)
    objective = Objective(model, TrainingConfig())
    batch = collate(some_pairs(1_000, 30, 8_000), range(1_000)).to(CUDA)
    _, _, peak = gradient_of(model, batch)
    model.zero_grad()

    def fits(size):
        torch.cuda.empty_cache()
        return fits_memory(objective, torch.float32, 31, 31, size)

    with memory_limit(peak):
        found = largest_batch(fits, 1_024, 2**20)
        assert 1_024 <= found < 2**20 and not fits(2 * found)
    assert fits(found) and all(weight.grad is None for weight in model.parameters())


@NEEDS_TWO
def test_two_gpus_do_the_steps_of_one(run, tmp_path, tiny_tree):
    tiny_tree["model"] |= {"qkv_bias": False, "dropout": 0.1}
    tiny_tree["training"] |= {"device": "cuda", "precision": "fp32", "max_steps": 6, "max_epochs": None}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    ways = {"one": ("--set", "training.micro_batches_per_step=2"), "two": ("--devices", "2")}
    for name, options in ways.items():
        command = [sys.executable, "-m", "mt_cli", "train", "--config", "tiny.yaml", "--set", f"name={name}", *options]
        done = run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    (weights, state), (expected, expected_state) = (
        checkpoint_content(tmp_path / "runs" / name / "checkpoints/last.safetensors") for name in ("two", "one")
    )
    assert state["position"]["num_target_tokens"] == expected_state["position"]["num_target_tokens"]
    for name, weight in expected.items():
        if name.startswith("model."):
            assert torch.allclose(weights[name], weight, atol=1e-3, rtol=1e-2), name
    report = json.loads((tmp_path / "runs/two/report.json").read_text(encoding="utf-8"))
    assert report["num_steps"] == 6
