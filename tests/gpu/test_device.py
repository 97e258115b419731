"""What only a GPU shows: no waiting in a step, memory, a graph of a step, and several GPUs."""

import gc
import itertools
import json
import sys
from contextlib import contextmanager

import pytest
import torch
import yaml
from run_content import checkpoint_content

from mt_cli.batching.batches import MixedPairs, collate, pad
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.decoding import row_statistics
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.decoding.finished import Flags
from mt_cli.decoding.next_tokens import FREE, Constraints
from mt_cli.decoding.predictor import EagerPredictor, GraphedPredictor
from mt_cli.decoding.row_statistics import compiled_statistics, plain_statistics
from mt_cli.decoding.search import Beams, Samples
from mt_cli.machine.devices import can_compile
from mt_cli.model.cached_attention import has_cached_kernel
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import GradientAccumulator, fits_memory, largest_batch
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import Position, optimization_steps
from mt_cli.training.update import build_update

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: this PyTorch finds no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # Of the compiler, and of the mode that forbids waiting.
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
    # Recording a graph waits. All batches have one shape, so that the first steps record it.
    pairs = EncodedPairs.from_ids([[5] * 20] * 1_900, [[6] * 20] * 1_900)
    steps, average = steps_of(model, dtype, pairs, **options), MovingAverage(model, 0.99)
    for report in itertools.islice(steps, 6):  # The first steps make what later ones use again.
        average.update(report.step)
    with no_waiting():
        for report in itertools.islice(steps, 5):
            average.update(report.step)
    assert bool(report.is_finite)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("new_predictor", [EagerPredictor, GraphedPredictor])
@pytest.mark.parametrize("options", [{"beam_size": 1}, {"beam_size": 4, "no_repeat_ngram": 2, "unk": "avoid"}], ids=str)
def test_a_step_of_a_search_never_waits_for_the_device(dtype, new_predictor, options, records_soon):
    model, decoding = a_model(positions="rotary").to(dtype).eval(), DecodingConfig(**options)
    num_beams, predictor = decoding.beam_size, new_predictor(model)
    constraints = Constraints(
        decoding, frozenset([3]), torch.full((5,), 3, device=CUDA), torch.full((5, 1), FREE, device=CUDA)
    )

    def started():
        if num_beams > 1:
            return Beams.start(5, num_beams, CUDA)
        scores = torch.zeros(5, 1, device=CUDA)
        return Samples(torch.zeros(5, 1, 0, dtype=torch.int64, device=CUDA), scores, scores == 0, scores[..., None])

    def steps(state):
        tokens, frozen = torch.full((5 * num_beams,), SOS_ID, device=CUDA), None
        for _ in range(10):
            logits = prediction.next(tokens)
            state = state.extend(logits, constraints.next_after(state.ids), decoding, frozen)
            frozen = state.is_done(1.0)
            flags = Flags(frozen, state.is_nan())
            prediction.select(state.parents, None)
            tokens = state.ids[:, :, -1].flatten()
        return flags

    src_ids = torch.full((5, 7), EOS_ID, device=CUDA)
    with torch.inference_mode():
        with predictor.start(src_ids, num_beams) as prediction:
            steps(started())  # Records the step; recording waits.
        state = started()
        with predictor.start(src_ids, num_beams) as prediction, no_waiting():
            flags = steps(state)
    assert flags.read_done().tolist() == [True] * 5
    assert getattr(predictor, "num_recorded", 1) == 1


def some_sources(number, longest):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, longest, (number,), generator=generator).tolist()
    return [torch.randint(4, 500, (length,), generator=generator).tolist() for length in lengths]


def some_sentences(number, longest):
    return [*map(Sentence, some_sources(number, longest))]


def padded(sources):
    return pad(sources, end=EOS_ID).to(CUDA)


@pytest.fixture
def records_soon(monkeypatch):
    monkeypatch.setattr("mt_cli.decoding.predictor._STEPS_BEFORE_RECORDING", 1)
    monkeypatch.setattr("mt_cli.model.cached_attention._FEWEST_ROWS", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("d_head", [16, 24, 32, 64, 128])
def test_our_kernel_for_a_cache_is_used_where_it_compiles(dtype, d_head):
    assert has_cached_kernel(CUDA, dtype, d_head) == can_compile(CUDA)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [12, 64, 100, 4_095, 8_000, 32_000, 50_001])
@torch.inference_mode()
def test_the_kernel_for_statistics_of_rows_computes_their_definition(dtype, size):
    if not can_compile(CUDA):
        pytest.skip("no compiler for kernels")
    logits = 4 * torch.randn(200, size, generator=torch.Generator(CUDA).manual_seed(1), device=CUDA)
    logits[0, : size // 2], logits[1], logits[2, -1] = -torch.inf, -torch.inf, torch.nan
    logits = logits.to(dtype)
    (log_sums, maxima), (expected, expected_maxima) = compiled_statistics(logits), plain_statistics(logits)
    assert torch.equal(maxima[[0, *range(3, 200)]], expected_maxima[[0, *range(3, 200)]])
    assert torch.allclose(log_sums[[0, *range(3, 200)]], expected[[0, *range(3, 200)]], atol=1e-5)
    assert log_sums[1].isneginf() and log_sums[2].isnan()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_search_by_statistics_of_rows_finds_the_translations_of_one_without(monkeypatch, beam_size):
    model, sources, decoding = a_model().eval(), some_sentences(300, 40), DecodingConfig(beam_size=beam_size)
    with torch.no_grad():
        model.projection.weight.mul_(2)
    expected = TransformerEngine(model).search(sources, decoding)
    monkeypatch.setattr(row_statistics, "_LOGITS_BEFORE_COMPILING", 0)
    found = TransformerEngine(model).search(sources, decoding)
    same = [one.ids == other.ids for (one, *_), (other, *_) in zip(found, expected, strict=True)]
    assert sum(same) >= 0.98 * len(sources)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "learned"])
@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_graphs_predict_what_launched_steps_predict(records_soon, positions, num_beams, dtype):
    """While a batch grows beyond a hundred positions and shrinks; the second time from graphs alone."""
    model = a_model(positions=positions, max_positions=120).to(dtype).eval()
    graphed, tolerance = GraphedPredictor(model), 1e-3 if dtype == torch.float32 else 0.1
    for number, shrinks in ((40, {5: 20, 70: 7}), (40, {5: 20, 70: 7}), (12, {}), (40, {5: 20, 70: 7})):
        generator, src_ids = torch.Generator(CUDA).manual_seed(1), padded(some_sources(number, 40))
        with (
            graphed.start(src_ids, num_beams) as ours,
            EagerPredictor(model).start(src_ids, num_beams) as theirs,
        ):
            for step in range(110):
                tokens = torch.randint(4, 500, (number * num_beams,), generator=generator, device=CUDA)
                logits, expected = (each.next(tokens).float() for each in (ours, theirs))
                assert (logits - expected).abs().max() <= tolerance * expected.abs().max()
                parents = torch.randint(num_beams, (number, num_beams), generator=generator, device=CUDA)
                kept = torch.arange(1, 1 + shrinks[step], device=CUDA) if step in shrinks else None
                number = shrinks.get(step, number)
                for each in (ours, theirs):
                    each.select(parents if num_beams > 1 else None, kept)
    assert graphed.num_recorded > 5


@pytest.mark.parametrize(
    "options", [{"beam_size": 1}, {"beam_size": 4}, {"beam_size": 3, "no_repeat_ngram": 2}, {"sample": True}], ids=str
)
def test_an_engine_with_graphs_finds_the_translations_of_one_without(records_soon, options):
    model, sources = a_model().eval(), some_sentences(300, 40)
    with torch.no_grad():
        model.projection.weight.mul_(2)
    decoding = DecodingConfig(max_length=60, **options)
    graphed, eager = TransformerEngine(model), TransformerEngine(model)
    vars(eager.means).update(predictor=EagerPredictor(model), fitting_tokens=None)
    expected = eager.search(sources, decoding)
    for _ in range(2):
        found = graphed.search(sources, decoding)
        same = [one.ids == other.ids for (one, *_), (other, *_) in zip(found, expected, strict=True)]
        assert sum(same) >= 0.98 * len(sources)  # Batches differ, and rounding with them.
    assert graphed.means.predictor.num_recorded > 0


def test_the_memory_of_graphs_is_free_when_their_engine_is(records_soon):
    model, sources, decoding = a_model().eval(), some_sentences(200, 30), DecodingConfig(max_length=40)

    def search_once():
        engine = TransformerEngine(model)
        for _ in range(2):
            engine.search(sources, decoding)
        assert engine.means.predictor.num_recorded > 0

    used = []
    for _ in range(4):
        search_once()
        gc.collect()
        torch.cuda.empty_cache()
        used.append(torch.cuda.memory_allocated())
    assert max(used[1:]) <= used[0] + 2**20


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_of_later_steps_is_that_of_the_first_epochs(dtype):
    steps, used, peaks = steps_of(a_model(), dtype, some_pairs(500, 30, 500)), [], []
    for _ in itertools.islice(steps, 100):  # Until each shape has its graph.
        pass
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
