"""Graphed prediction and late reading, with the steps themselves in place of CUDA graphs."""

import pytest
import torch

from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding import predictor as predictor_module
from mt_cli.decoding import search as search_module
from mt_cli.decoding.batch_size import batches_that_recur
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.decoding.predictor import EagerPredictor, GraphedPredictor
from mt_cli.decoding.search import search
from mt_cli.errors import DivergenceError
from mt_cli.machine.graphs import GraphPool
from mt_cli.model.static_cache import rounded_sentences
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID

POSITIONS = ["sinusoidal", "rotary", "learned"]
SEARCHES = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 3, "no_repeat_ngram": 2, "unk": "avoid", "min_length": 3},
    {"sample": True, "top_k": 5},
]


def tiny(seed=0, dtype=torch.float32, **options):
    torch.manual_seed(seed)
    sizes = {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(ModelConfig(**sizes | options), 12, 12).eval().to(dtype)
    with torch.no_grad():
        model.projection.weight.mul_(1.5)  # Less even distributions.
    return model


def some_sources(number, longest=20):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, longest, (number,), generator=generator).tolist()
    return [torch.randint(4, 12, (length,), generator=generator).tolist() for length in lengths]


def padded(sources):
    longest = max(map(len, sources)) + 1
    return torch.tensor([[*ids, EOS_ID] + [0] * (longest - len(ids) - 1) for ids in sources])


@pytest.fixture
def records_soon(monkeypatch):
    monkeypatch.setattr(predictor_module, "_STEPS_BEFORE_RECORDING", 1)


def assert_equal(ours, expected, tolerance=1e-4):
    for best, others in zip(ours, expected, strict=True):
        assert [each.ids for each in best] == [each.ids for each in others]
        assert [each.score for each in best] == pytest.approx([each.score for each in others], abs=tolerance)


@torch.inference_mode()
def logits_of(predictor, src_ids, num_beams, num_steps, shrinks):
    """Logits of each step, with tokens, parents and dropped sentences that are the same for each predictor."""
    generator, logits = torch.Generator().manual_seed(1), []
    number = len(src_ids)
    with predictor.start(src_ids, num_beams) as prediction:
        for step in range(num_steps):
            tokens = torch.randint(4, 12, (number * num_beams,), generator=generator)
            logits.append(prediction.next(tokens).float().clone())
            parents, kept = torch.randint(num_beams, (number, num_beams), generator=generator), None
            if step in shrinks:
                kept = torch.randperm(number, generator=generator)[: shrinks[step]]
                number = len(kept)
            prediction.select(parents if num_beams > 1 else None, kept)
    return logits


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphed_logits_are_the_eager_ones_while_a_batch_grows_and_shrinks(records_soon, positions, num_beams, dtype):
    model = tiny(dtype=dtype, positions=positions, max_positions=80)
    graphed, tolerance = GraphedPredictor(model), 1e-4 if dtype == torch.float32 else 0.1
    for number, shrinks in ((21, {3: 10, 40: 7}), (5, {}), (21, {3: 10, 40: 2})):
        arguments = padded(some_sources(number)), num_beams, 70, shrinks
        expected = logits_of(EagerPredictor(model), *arguments)
        for ours, theirs in zip(logits_of(graphed, *arguments), expected, strict=True):
            assert ours.shape == theirs.shape and torch.allclose(ours, theirs, atol=tolerance)
    assert graphed.num_recorded > 5


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_graphs_and_late_reading_find_the_same_translations(records_soon, monkeypatch, positions, options):
    model = tiny(positions=positions, max_positions=50)
    graphed, decoding = GraphedPredictor(model), DecodingConfig(max_length=40, **options)
    for number in (30, 3, 30):
        src_ids = padded(some_sources(number))
        expected = search(model, src_ids, decoding, 2)
        with monkeypatch.context() as patch:
            patch.setattr(search_module, "reads_late", lambda device: True)
            assert_equal(search(model, src_ids, decoding, 2), expected)
            assert_equal(search(model, src_ids, decoding, 2, predictor=graphed), expected)
    assert graphed.num_recorded > 0


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_late_reading_notices_a_model_that_diverged(monkeypatch, options):
    monkeypatch.setattr(search_module, "reads_late", lambda device: True)
    model = tiny()
    torch.nn.init.constant_(model.projection.weight, float("nan"))
    for limit in (1, 30):
        with pytest.raises(DivergenceError, match="not numbers"):
            search(model, padded(some_sources(5)), DecodingConfig(max_length=limit, **options | {"min_length": 0}))


def test_graphs_end_when_their_tensors_or_the_weights_move(records_soon):
    model, other = tiny(), tiny(seed=1)
    graphed = GraphedPredictor(model)
    for number in (8, 40, 8, 8):
        src_ids = padded(some_sources(number))
        found, expected = (logits_of(each, src_ids, 1, 5, {}) for each in (graphed, EagerPredictor(model)))
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(found, expected, strict=True))
    num_recorded = graphed.num_recorded
    for weight, replacement in zip(model.parameters(), other.parameters(), strict=True):
        weight.data = replacement.data
    found, expected = (logits_of(each, src_ids, 1, 5, {}) for each in (graphed, EagerPredictor(other)))
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(found, expected, strict=True))
    assert graphed.num_recorded == num_recorded + 1


def test_without_memory_for_graphs_a_search_goes_on(records_soon, monkeypatch):
    monkeypatch.setattr(GraphPool, "capture", lambda pool, function: None)
    model, src_ids = tiny(), padded(some_sources(8))
    graphed = GraphedPredictor(model)
    assert_equal(search(model, src_ids, DecodingConfig(), predictor=graphed), search(model, src_ids, DecodingConfig()))
    assert graphed.num_recorded == 0


@pytest.mark.parametrize("batch_tokens", [1, 100, 4096, 65_536])
def test_batches_that_recur_have_every_sequence_once_and_the_sizes_of_caches(batch_tokens):
    lengths = torch.randint(1, 90, (3_000,), generator=torch.Generator().manual_seed(1)).tolist()
    batches = batches_that_recur(lengths, batch_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(3_000))
    longest_first = [lengths[index] for batch in batches for index in batch]
    assert longest_first == sorted(lengths, reverse=True)
    sizes = {(len(batch), -(-(lengths[batch[0]] + 1) // 16)) for batch in batches[:-1]}
    assert len(sizes) == len({length for _, length in sizes})  # One size for each rounded length.
    for size, length in sizes:
        assert rounded_sentences(size) == size and (size == 1 or size * length * 16 <= batch_tokens)
    assert batches_that_recur([], batch_tokens) == []


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_an_engine_with_the_batches_of_a_gpu_finds_the_translations_of_one_without(records_soon, options):
    sources, decoding = some_sources(60), DecodingConfig(max_length=30, **options)
    expected = TransformerEngine(tiny()).search(sources, decoding, 2)
    engine = TransformerEngine(model := tiny())
    vars(engine.means).update(fitting_tokens=1_000, predictor=GraphedPredictor(model))
    assert_equal(engine.search(sources, decoding.model_copy(update={"batch_tokens": 700}), 2), expected)
