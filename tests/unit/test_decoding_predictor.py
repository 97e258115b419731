"""Graphed prediction and late reading, with the steps themselves in place of CUDA graphs."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding import engine as engine_module
from mt_cli.decoding import predictor as predictor_module
from mt_cli.decoding import search as search_module
from mt_cli.decoding.batch_size import batches_that_recur, bytes_per_token, fitting_batch_tokens
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.decoding.finished import SHRINKING_LATE, Flags, worth_keeping
from mt_cli.decoding.predictor import EagerPredictor, GraphedPredictor, predictor_of
from mt_cli.decoding.search import Beams, search
from mt_cli.errors import DeviceMemoryError, DivergenceError
from mt_cli.machine.graphs import GraphPool
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.static_cache import Arena, StaticCache, rounded_positions, rounded_sentences
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID

POSITIONS = ["sinusoidal", "rotary", "learned", "fairseq"]
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


def some_sentences(number):
    return [*map(Sentence, some_sources(number))]


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


@pytest.mark.parametrize("is_late", [False, True])
def test_a_search_never_asks_for_more_positions_than_the_longest_translation_has(monkeypatch, is_late):
    monkeypatch.setattr(search_module, "reads_late", lambda device: is_late)
    model = tiny(positions="learned", max_positions=9)
    for options in SEARCHES:
        for best, *_ in search(model, padded(some_sources(20, longest=8)), DecodingConfig(**options)):
            assert len(best.ids) <= 8


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_late_reading_notices_a_model_that_diverged(monkeypatch, options):
    monkeypatch.setattr(search_module, "reads_late", lambda device: True)
    model = tiny()
    torch.nn.init.constant_(model.projection.weight, float("nan"))
    for limit in (1, 30):
        with pytest.raises(DivergenceError, match="not numbers"):
            search(model, padded(some_sources(5)), DecodingConfig(max_length=limit, **options | {"min_length": 0}))


@pytest.mark.parametrize("is_late", [False, True])
def test_results_of_a_batch_are_read_when_the_next_one_has_begun(monkeypatch, is_late):
    monkeypatch.setattr(search_module, "reads_late", lambda device: is_late)
    model, events, sources = tiny(), [], some_sentences(30)
    predict = Transformer.next

    def record_positions(model, tokens, cache):
        events.append(cache.length)
        return predict(model, tokens, cache)

    monkeypatch.setattr(Transformer, "next", record_positions)
    engine = TransformerEngine(model, on_done=lambda number: events.append("done"))
    engine.search(sources, decoding := DecodingConfig(max_length=9, batch_tokens=400))
    starts = [place for place, event in enumerate(events) if event == 0]
    assert len(starts) > 2 and events[-1] == "done" and events.count("done") == len(starts)
    assert all(events[place + 1] == "done" for place in starts[1:])
    assert engine.search([], decoding) == []


def test_a_sentence_that_is_done_never_changes():
    state, decoding = Beams.start(20, 3, torch.device("cpu")), DecodingConfig(max_length=9)
    allowed = search_module.TokenMask((0, 1))
    generator, done = torch.Generator().manual_seed(5), {}
    for _ in range(12):
        logits = 3 * torch.randn(60, 12, generator=generator)
        state = state.extend(logits, allowed, decoding, state.is_done(decoding.length_penalty))
        for sentence in state.is_done(decoding.length_penalty).nonzero()[:, 0]:
            (best,) = state.start_reading(sentence[None], decoding.length_penalty, 3)()
            assert best == done.setdefault(int(sentence), best)
        assert all(state.is_done(decoding.length_penalty)[list(done)])
    assert len(done) > 5


def test_flags_are_those_of_the_state():
    is_done = torch.tensor([True, False, True])
    assert torch.equal(Flags(is_done, torch.zeros(3, dtype=torch.bool)).read_done(), is_done)
    with pytest.raises(DivergenceError):
        Flags(is_done, ~is_done).read_done()


def test_a_batch_on_a_gpu_shrinks_by_half_or_not_at_all():
    active = torch.ones(200, dtype=torch.bool)
    active[:99] = False
    assert worth_keeping(active, *SHRINKING_LATE) is None
    active[:110] = False
    assert worth_keeping(active, *SHRINKING_LATE)[:90].tolist() == list(range(110, 200))
    assert worth_keeping(active[100:164], *SHRINKING_LATE) is None


def test_a_shape_that_comes_once_is_not_recorded_and_one_that_recurs_is_recorded_once():
    model, src_ids = tiny(), padded(some_sources(8))
    graphed = GraphedPredictor(model)
    logits_of(graphed, src_ids, 1, 20, {})
    assert graphed.num_recorded == 0
    for _ in range(3):
        logits_of(graphed, src_ids, 1, 20, {})
    assert graphed.num_recorded == 1


def test_graphs_end_when_their_tensors_or_the_weights_move(records_soon):
    model, small, large = tiny(), padded(some_sources(8)), padded(some_sources(40))
    graphed = GraphedPredictor(model)
    for src_ids, num_recorded in ((small, 1), (small, 1), (large, 2), (small, 3), (small, 3)):
        logits_of(graphed, src_ids, 1, 5, {})
        assert graphed.num_recorded == num_recorded
    other = tiny(seed=1)
    for weight, replacement in zip(model.parameters(), other.parameters(), strict=True):
        weight.data = replacement.data
    found, expected = (logits_of(each, small, 1, 5, {}) for each in (graphed, EagerPredictor(other)))
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(found, expected, strict=True))
    assert graphed.num_recorded == 4


def test_no_more_graphs_are_kept_than_the_limit_and_the_oldest_goes(records_soon, monkeypatch):
    monkeypatch.setattr(predictor_module, "_MOST_GRAPHS", 2)
    model = tiny()
    graphed, sizes = GraphedPredictor(model), [padded(some_sources(number)) for number in (40, 8, 16)]
    for place, num_recorded in ((0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4)):
        logits_of(graphed, sizes[place], 1, 5, {})
        assert graphed.num_recorded == num_recorded


def test_without_memory_for_graphs_a_search_goes_on(records_soon, monkeypatch):
    monkeypatch.setattr(GraphPool, "capture", lambda pool, function: None)
    model, src_ids = tiny(), padded(some_sources(8))
    graphed = GraphedPredictor(model)
    assert_equal(search(model, src_ids, DecodingConfig(), predictor=graphed), search(model, src_ids, DecodingConfig()))
    assert graphed.num_recorded == 0


def test_two_threads_share_a_graphed_predictor_and_get_what_each_gets_alone(records_soon):
    model = tiny()
    graphed, batches = GraphedPredictor(model), [padded(some_sources(number)) for number in (5, 12, 30, 9)]
    expected = [search(model, src_ids, DecodingConfig(max_length=30)) for src_ids in batches]
    with ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(lambda src_ids: search(model, src_ids, DecodingConfig(max_length=30), predictor=graphed), batches)
        )
    for ours, theirs in zip(found, expected, strict=True):
        assert_equal(ours, theirs)


def test_only_one_model_on_a_gpu_is_predicted_by_graphs():
    assert isinstance(predictor_of(tiny()), EagerPredictor)
    assert isinstance(predictor_of(Ensemble([tiny(), tiny(1)])), EagerPredictor)


def test_tensors_of_an_arena_move_only_to_grow():
    arena = Arena(torch.device("cpu"))
    first = arena.tensor("keys", (4, 6), torch.float32)
    assert arena.tensor("keys", (2, 3), torch.float32).data_ptr() == first.data_ptr() and arena.num_moves == 1
    assert arena.tensor("values", (4, 6), torch.float32).data_ptr() != first.data_ptr()
    assert arena.tensor("keys", (5, 5), torch.float32).shape == (5, 5) and arena.num_moves == 3
    arena.tensor("keys", (6, 6), torch.float32)  # Room for half as many again.
    assert arena.num_moves == 3


@torch.inference_mode()
def test_attention_to_a_static_cache_reads_more_columns_as_it_fills_and_its_tensors_stay_where_there_is_room():
    model, num_beams = tiny(), 3
    cache = StaticCache(Arena(torch.device("cpu")), model.start(padded(some_sources(5)), num_beams))
    newest, numbers, places = torch.zeros(8, 2, num_beams, 8), [], []
    for _ in range(40):
        cache.reserve()
        cache.advance()
        keys, _ = cache.append(0, (newest, newest))
        assert keys.shape[2] == cache.bias.shape[3]
        numbers.append(keys.shape[2] // num_beams)
        places.append(keys.data_ptr())
    assert numbers == [16] * 16 + [24] * 8 + [32] * 8 + [48] * 8
    assert len(set(places[:32])) == 1


@pytest.mark.parametrize("rounded", [rounded_sentences, rounded_positions])
def test_rounded_sizes_are_few_and_hold_what_they_are_made_for(rounded):
    sizes = [rounded(number) for number in range(1, 2049)]
    assert all(size >= number for number, size in enumerate(sizes, 1)) and sizes == sorted(sizes)
    assert all(rounded(size) == size for size in sizes) and len(set(sizes)) <= 36
    assert all(size <= 1.5 * number for number, size in enumerate(sizes[32:], 33))


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


def test_batches_fill_a_share_of_the_memory_of_a_gpu_and_have_the_configured_size_where_it_fits():
    sizes = [fitting_batch_tokens(16_384, fitting) for fitting in (0, 10_000, 50_000, 100_000, 200_000, 10**7)]
    assert sizes == [1, 10_000, 16_384, 25_000, 50_000, 262_144]
    assert fitting_batch_tokens(300_000, 10**7) == 300_000
    small, large = (tiny(dtype=dtype) for dtype in (torch.bfloat16, torch.float32))
    assert 0 < bytes_per_token(small) < bytes_per_token(large)
    assert bytes_per_token(Ensemble([small, large])) == bytes_per_token(small) + bytes_per_token(large)


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_an_engine_with_the_batches_of_a_gpu_finds_the_translations_of_one_without(records_soon, options):
    sources, decoding = some_sentences(60), DecodingConfig(max_length=30, **options)
    expected = TransformerEngine(tiny()).search(sources, decoding, 2)
    engine = TransformerEngine(model := tiny())
    vars(engine.means).update(fitting_tokens=1_000, predictor=GraphedPredictor(model))
    assert_equal(engine.search(sources, decoding.model_copy(update={"batch_tokens": 700}), 2), expected)


class ScarceMemory:
    """A predictor whose memory holds no more than some rows, for the first batches or for all."""

    def __init__(self, model, most_rows, num_failures=10**6):
        self.predictor, self.most_rows, self.num_failures = EagerPredictor(model), most_rows, num_failures

    @contextmanager
    def start(self, src_ids, num_beams):
        if len(src_ids) * num_beams > self.most_rows and self.num_failures:
            self.num_failures -= 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        with self.predictor.start(src_ids, num_beams) as prediction:
            yield prediction


@pytest.mark.parametrize("options", SEARCHES, ids=str)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_batch_that_does_not_fit_in_memory_is_searched_in_halves(monkeypatch, options, is_late):
    sources, decoding, counts = some_sentences(23), DecodingConfig(max_length=30, **options), []
    expected = TransformerEngine(tiny()).search(sources, decoding, 2)
    engine = TransformerEngine(model := tiny(), on_done=counts.append)
    scarce = ScarceMemory(model, 13)
    monkeypatch.setattr(engine_module, "predictor_of", lambda model: scarce)
    monkeypatch.setattr(search_module, "reads_late", lambda device: is_late)
    assert_equal(engine.search(sources, decoding, 2), expected)
    assert sum(counts) == 23 and max(counts) <= 13 and scarce.num_failures < 10**6


def test_after_a_batch_that_does_not_fit_those_that_remain_are_halved_without_a_try(monkeypatch):
    sources, decoding, counts = (
        [Sentence([5] * 7)] * 64,
        DecodingConfig(beam_size=1, max_length=5, batch_tokens=128),
        [],
    )
    engine = TransformerEngine(model := tiny(), on_done=counts.append)
    scarce = ScarceMemory(model, 8)
    monkeypatch.setattr(engine_module, "predictor_of", lambda model: scarce)
    engine.search(sources, decoding)
    assert scarce.num_failures == 10**6 - 1 and counts == [8] * 8


def test_a_search_without_memory_for_a_single_sentence_is_an_error_and_the_next_one_starts_anew(monkeypatch):
    engine = TransformerEngine(model := tiny())
    scarce = ScarceMemory(model, 1, num_failures=2)
    monkeypatch.setattr(engine_module, "predictor_of", lambda model: scarce)
    sources, decoding = some_sentences(2), DecodingConfig(beam_size=4)
    with pytest.raises(DeviceMemoryError, match="one sentence does not fit"):
        engine.search(sources, decoding)
    assert "predictor" not in vars(engine.means) and "fitting_tokens" not in vars(engine.means)
    assert_equal(
        engine.search(sources, decoding),
        TransformerEngine(model).search(sources, decoding),
    )


def test_pairs_that_do_not_fit_in_memory_are_scored_in_halves_and_other_errors_are_not_hidden(monkeypatch):
    engine, pairs, read = TransformerEngine(tiny()), [(ids, ids[::-1]) for ids in some_sources(9)], Transformer.read
    expected = engine.force_decode(pairs)

    def scarce(model, src_ids, tgt_ids):
        if len(src_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return read(model, src_ids, tgt_ids)

    monkeypatch.setattr(Transformer, "read", scarce)
    for ours, theirs in zip(engine.force_decode(pairs), expected, strict=True):
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)
    monkeypatch.setattr(Transformer, "read", lambda *arguments: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):
        engine.force_decode(pairs)


def test_copies_of_an_engine_share_what_its_searches_made_unless_they_have_another_model():
    engine = TransformerEngine(tiny())
    assert replace(engine, on_done=print).means is engine.means
    assert replace(engine, model=tiny(1)).means is not engine.means
    assert TransformerEngine(engine.model).means is not engine.means
