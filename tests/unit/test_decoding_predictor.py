"""When a captured predictor records steps, batches of the sizes of caches, and searches that exceed the memory."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from tiny_models import padded, some_sources, tiny_model

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding import predictor as predictor_module
from mt_cli.decoding import search as search_module
from mt_cli.decoding import transformer_engine as engine_module
from mt_cli.decoding.constraints import TokenMask
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.predictor import Predictor
from mt_cli.decoding.search import ON_CPU, ON_GPU, Beams, search
from mt_cli.decoding.transformer_engine import TransformerEngine, batches_that_recur
from mt_cli.errors import DeviceMemoryError
from mt_cli.model.cache import rounded_sentences
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.cuda_graphs import GraphPool


def tiny(seed=0):
    return tiny_model(seed, spread=1.5).eval()


def batch_of(number):
    return padded(some_sources(number))


def some_sentences(number):
    return [*map(Sentence, some_sources(number))]


@pytest.fixture
def records_soon(monkeypatch):
    monkeypatch.setattr(predictor_module, "_STEPS_BEFORE_CAPTURE", 1)


def assert_equal(ours, expected):
    for best, others in zip(ours, expected, strict=True):
        assert [hypothesis.ids for hypothesis in best] == [hypothesis.ids for hypothesis in others]
        scores = [hypothesis.score for hypothesis in others]
        assert [hypothesis.score for hypothesis in best] == pytest.approx(scores, abs=1e-4)


@torch.inference_mode()
def last_logits(predictor, src_ids, num_steps=5):
    with predictor.start(src_ids, 1) as prediction:
        for _ in range(num_steps):
            logits = prediction.next(torch.full((len(src_ids),), 4)).clone()
            prediction.select(None, None)
    return logits


def test_a_sentence_that_is_done_never_changes():
    state = Beams.start(20, 3, 1.0, torch.device("cpu"))
    allowed = TokenMask((0, 1))
    generator, done = torch.Generator().manual_seed(5), {}
    for _ in range(12):
        logits = 3 * torch.randn(60, 12, generator=generator)
        state = state.extend(logits, allowed)
        for sentence in state.is_done().nonzero()[:, 0].tolist():
            best = state.hypotheses(3)[sentence]
            assert best == done.setdefault(sentence, best)
        assert all(state.is_done()[list(done)])
    assert len(done) > 5


def test_graphs_end_when_their_tensors_or_the_weights_move(records_soon):
    model, small, large = tiny(), batch_of(8), batch_of(40)
    graphed = Predictor(model, captures=True)
    for src_ids, num_captured in ((small, 1), (small, 1), (large, 2), (small, 3), (small, 3)):
        last_logits(graphed, src_ids)
        assert graphed.num_captured == num_captured
    other = tiny(seed=1)
    for weight, replacement in zip(model.parameters(), other.parameters(), strict=True):
        weight.data = replacement.data
    assert torch.allclose(last_logits(graphed, small), last_logits(Predictor(other), small), atol=1e-5)
    assert graphed.num_captured == 4


def test_without_memory_for_graphs_a_search_goes_on(records_soon, monkeypatch):
    monkeypatch.setattr(GraphPool, "capture", lambda pool, function: None)
    model, src_ids = tiny(), batch_of(8)
    graphed, decoding = Predictor(model, captures=True), DecodingConfig(max_length_ratio=0.5)
    assert_equal(search(model, src_ids, decoding, predictor=graphed), search(model, src_ids, decoding))
    assert graphed.num_captured == 0


def test_two_threads_may_share_a_captured_predictor(records_soon):
    model = tiny()
    graphed, batches, decoding = (
        Predictor(model, captures=True),
        [*map(batch_of, (5, 12, 9))],
        DecodingConfig(max_length_ratio=0.5),
    )
    expected = [search(model, src_ids, decoding) for src_ids in batches]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda src_ids: search(model, src_ids, decoding, predictor=graphed), batches))
    for ours, theirs in zip(found, expected, strict=True):
        assert_equal(ours, theirs)


@pytest.mark.parametrize("batch_tokens", [1, 100, 65_536])
def test_batches_that_recur_have_the_sizes_of_caches(batch_tokens):
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


class ScarceMemory:
    """A predictor whose memory holds no more than some rows, for the first batches or for all."""

    fitting_tokens = None

    def __init__(self, model, most_rows, num_failures=10**6):
        self.predictor, self.most_rows, self.num_failures = Predictor(model), most_rows, num_failures

    @contextmanager
    def start(self, src_ids, num_beams):
        if len(src_ids) * num_beams > self.most_rows and self.num_failures:
            self.num_failures -= 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        with self.predictor.start(src_ids, num_beams) as prediction:
            yield prediction

    def release(self):
        pass


@pytest.fixture
def scarce_engine(monkeypatch):
    """A function that makes an engine with scarce memory, and the predictor and numbers of sentences that it notes."""

    def new(*arguments):
        model, counts = tiny(), []
        scarce = ScarceMemory(model, *arguments)
        monkeypatch.setattr(engine_module, "Predictor", lambda model: scarce)
        return TransformerEngine(model, on_done=counts.append), scarce, counts

    return new


@pytest.mark.parametrize(("options", "pace"), [({"beam_size": 4}, ON_GPU), ({"sample": True, "top_p": 0.9}, ON_CPU)])
def test_a_batch_that_does_not_fit_is_searched_in_halves(monkeypatch, scarce_engine, options, pace):
    sentences, decoding = some_sentences(23), DecodingConfig(max_length_ratio=0.5, **options)
    expected = TransformerEngine(tiny()).search(sentences, decoding, 2)
    engine, scarce, counts = scarce_engine(13)
    monkeypatch.setattr(search_module, "pace_of", lambda device: pace)
    assert_equal(engine.search(sentences, decoding, 2), expected)
    assert sum(counts) == 23 and max(counts) <= 13 and scarce.num_failures < 10**6


def test_a_sentence_that_does_not_fit_is_an_error(scarce_engine):
    """The next search starts anew."""
    engine, *_ = scarce_engine(1, 2)
    sentences, decoding = some_sentences(2), DecodingConfig(beam_size=4, max_length_ratio=0.5)
    with pytest.raises(DeviceMemoryError):
        engine.search(sentences, decoding)
    assert_equal(engine.search(sentences, decoding), TransformerEngine(tiny()).search(sentences, decoding))


def test_pairs_that_do_not_fit_are_scored_in_halves(monkeypatch):
    engine, pairs, read = (
        TransformerEngine(tiny()),
        [(ids, ids[::-1]) for ids in some_sources(9)],
        Transformer.read_hidden,
    )
    expected = engine.force_decode(pairs)

    def scarce(model, src_ids, tgt_ids):
        if len(src_ids) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return read(model, src_ids, tgt_ids)

    monkeypatch.setattr(Transformer, "read_hidden", scarce)
    for ours, theirs in zip(engine.force_decode(pairs), expected, strict=True):
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)
