import itertools
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from tiny_models import padded, some_sources, tiny_model

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding import constraints as constraints_module
from mt_cli.decoding import next_tokens
from mt_cli.decoding import transformer_engine as engine_module
from mt_cli.decoding.constraints import FREE, Constraints, TokenMask
from mt_cli.decoding.engine import Sentence, penalty_of
from mt_cli.decoding.next_tokens import best_tokens, largest, sampled_tokens
from mt_cli.decoding.predictor import Predictor
from mt_cli.decoding.search import Beams, Independent, run_search, search
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.model.cache import KeyValueCache
from mt_cli.model.ensemble import Ensemble
from mt_cli.tokenizer.special_tokens import EOS_ID, NEVER_PRODUCED, SOS_ID, UNK_ID

reserve = KeyValueCache.reserve
SEARCHES = [{"beam_size": 1}, {"beam_size": 4}, {"sample": True}]


def tiny(vocab_size=7, seed=0, spread=1.5):
    return tiny_model(seed, vocab_size, spread).eval()


def sources_of(number=6, vocab_size=7):
    return some_sources(number, vocab_size)


def hypotheses_of(model, sources, prefixes=(), num_best=1, **changes):
    decoding = DecodingConfig(**{"beam_size": 3, "unk": "avoid", "max_length_ratio": 0.5} | changes)
    sentences = [Sentence(*both) for both in itertools.zip_longest(sources, prefixes, fillvalue=())]
    return TransformerEngine(model).search(sentences, decoding, num_best)


def ids_of(*arguments, **changes):
    return [hypothesis.ids for best in hypotheses_of(*arguments, **changes) for hypothesis in best]


@pytest.fixture
def lengths(monkeypatch):
    """A function that sets the maximum length of all translations, and with `are_full` their minimum length."""

    def limit(longest, are_full=False):
        monkeypatch.setattr(constraints_module, "max_length", lambda *_: longest)
        never = (*NEVER_PRODUCED, *[EOS_ID] * are_full)
        monkeypatch.setattr(constraints_module, "NEVER_PRODUCED", never)

    return limit


def log_probability(model, source, ids):
    """Of ids and [EOS], by one full forward for each prefix."""
    total = 0.0
    with torch.no_grad():
        for position, token in enumerate([*ids, EOS_ID]):
            logits = model(padded([source]), torch.tensor([[SOS_ID, *ids[:position]]]))
            total += float(logits[0, -1].log_softmax(dim=-1)[token])
    return total


def test_beam_of_one_is_greedy():
    for seed in range(4):
        model, src_ids = tiny(seed=seed), padded(sources_of())
        decoding = DecodingConfig(beam_size=1, length_penalty=0.6, max_length_ratio=0.5, unk="avoid")
        constraints = Constraints.of(src_ids, decoding, ())
        states = (
            Independent.start(src_ids, constraints, 1, src_ids.device),
            Beams.start(len(src_ids), 1, 0.6, src_ids.device),
        )
        greedy, beams = (run_search(Predictor(model), src_ids, constraints, state) for state in states)
        for (ours,), (beam,) in zip(greedy, beams, strict=True):
            assert ours.ids == beam.ids
            assert ours.score == pytest.approx(beam.score, abs=1e-4)


def test_columns_of_a_cache_that_no_beam_reads_are_dropped(monkeypatch, lengths):
    """A long search has the results of one that keeps all columns, and reads fewer."""
    model, sources, shapes = tiny(vocab_size=30), sources_of(12, vocab_size=30), []
    monkeypatch.setattr(KeyValueCache, "reserve", lambda cache: (reserve(cache), shapes.append(cache.shape)))
    lengths(40, are_full=True)
    long = {"beam_size": 5, "num_best": 5}
    less = hypotheses_of(model, sources, **long)
    num_columns = sum(shape.num_rows * shape.num_columns for shape in shapes)
    shapes.clear()
    monkeypatch.setattr(KeyValueCache, "_columns_to_keep", lambda cache, sentences: None)
    for some, all_ in zip(less, hypotheses_of(model, sources, **long), strict=True):
        assert [hypothesis.ids for hypothesis in some] == [hypothesis.ids for hypothesis in all_]
        assert [hypothesis.score for hypothesis in some] == pytest.approx([one.score for one in all_], abs=1e-4)
    assert num_columns < sum(shape.num_rows * shape.num_columns for shape in shapes)


@pytest.mark.parametrize("seed", range(2))
def test_beam_search_finds_the_best_sequence_of_a_tiny_model(lengths, seed):
    model, (source,) = tiny(vocab_size=7, seed=seed), sources_of(1)
    lengths(limit := 3)
    every_sequence = [ids for length in range(limit + 1) for ids in itertools.product(range(4, 7), repeat=length)]
    # The token that ends a sequence at the limit is forced, and forced tokens keep their probability.
    log_probs = {ids: log_probability(model, source, list(ids)) for ids in every_sequence}
    for length_penalty in (0.0, 1.0):
        scores = {ids: log_prob / penalty_of(len(ids) + 1, length_penalty) for ids, log_prob in log_probs.items()}
        ranked = sorted(scores, key=lambda ids: -scores[ids])
        decoding = DecodingConfig(beam_size=40, length_penalty=length_penalty, unk="avoid")
        (found,) = search(model, padded([source]), decoding, num_best=40)
        assert [tuple(hypothesis.ids) for hypothesis in found] == ranked
        assert [hypothesis.score for hypothesis in found] == pytest.approx([scores[ids] for ids in ranked], abs=1e-4)


@pytest.mark.parametrize("changes", SEARCHES)
def test_batching_and_order_never_change_a_translation(changes):
    model, sources = tiny(seed=3), sources_of(12)
    together = ids_of(model, sources, batch_tokens=400, **changes)
    alone = [ids for source in sources for ids in ids_of(model, [source], **changes)]
    assert together == alone == ids_of(model, sources[::-1], batch_tokens=400, **changes)[::-1]


@pytest.mark.parametrize("changes", [{"beam_size": 5}, {"sample": True}])
def test_n_best_is_sorted_and_scored_by_the_model(changes):
    model, sources = tiny(seed=1), sources_of(4)
    changes |= {"length_penalty": 0.0}
    best = hypotheses_of(model, sources, **changes)
    for source, (first,), found in zip(sources, best, hypotheses_of(model, sources, (), 5, **changes), strict=True):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True) and len(scores) == 5
        if "beam_size" in changes:
            assert found[0].ids == first.ids
            assert len({tuple(hypothesis.ids) for hypothesis in found}) == 5
        for hypothesis in found:
            assert hypothesis.score == pytest.approx(log_probability(model, source, hypothesis.ids), abs=1e-4)


@pytest.mark.parametrize("changes", SEARCHES)
def test_special_tokens_are_never_produced(changes):
    model = tiny_model(2, 7, output_bias=True).eval()
    with torch.no_grad():
        model.projection.bias[UNK_ID] = 3.0  # It is likely.
    for unk, forbidden in (("avoid", {*NEVER_PRODUCED, EOS_ID, UNK_ID}), ("keep", {*NEVER_PRODUCED, EOS_ID})):
        produced = set().union(*ids_of(model, sources_of(20), unk=unk, **changes))
        assert not forbidden & produced
        assert (UNK_ID in produced) == (unk == "keep")


@pytest.mark.parametrize("size", [5, 64, 200, 640])
@pytest.mark.parametrize("number", [1, 9])
def test_the_largest_values_are_those_of_sorted_rows(size, number):
    values = torch.randn(7, size)
    values[2, :50] = -torch.inf
    values[3] = -torch.inf
    values[3, -1] = 1.0
    found, indices = largest(values, number)
    assert torch.equal(found, values.topk(min(number, size)).values)
    assert torch.equal(values.gather(1, indices), found)
    assert all(len(set(row)) == len(row) for row in indices.tolist())


def test_all_rows_at_once_have_the_same_best_tokens(monkeypatch):
    logits, forced_R = torch.randn(23, 300), torch.full((23,), FREE)
    forced_R[3], forced_R[20] = 7, EOS_ID
    allowed = TokenMask((0, 1), forced_R, torch.randint(4, 300, (23, 2)))
    values, tokens = best_tokens(logits, 4, allowed)
    monkeypatch.setattr(next_tokens, "_ELEMENTS_AT_ONCE", 1_500)  # Five rows.
    for one, other in zip(best_tokens(logits, 4, allowed), (values, tokens), strict=True):
        assert torch.equal(one, other)
    for row, token in ((3, 7), (20, EOS_ID)):
        assert tokens[row, 0] == token and values[row, 1:].isneginf().all()
        assert values[row, 0] == pytest.approx(logits[row].log_softmax(dim=0)[token].item(), abs=1e-5)


@pytest.mark.parametrize("changes", SEARCHES)
def test_a_translation_begins_with_its_prefix(changes):
    """Its score leaves out the tokens of the prefix, and no other sentence changes it."""
    model, sources = tiny(seed=3, vocab_size=9), sources_of(8, vocab_size=9)
    prefixes = [[4 + (row + place) % 5 for place in range(row % 4)] for row in range(8)]
    prefixes[5] = [UNK_ID, 4]
    found = hypotheses_of(model, sources, prefixes, **changes)
    for source, prefix, (best, *_) in zip(sources, prefixes, found, strict=True):
        assert best.ids[: len(prefix)] == prefix
        (forced,) = TransformerEngine(model).force_decode([(source, best.ids)])
        counted = sum(forced.log_probs[len(prefix) :])
        assert best.score == pytest.approx(counted / penalty_of(len(best.ids) + 1, 1.0), abs=1e-4)
        assert ids_of(model, [source], [prefix], **changes) == [best.ids]


@pytest.mark.parametrize("changes", SEARCHES)
def test_no_translation_is_longer_than_its_source_allows(changes):
    model, sources = tiny(seed=6, spread=0.3), sources_of(10)
    limited = ids_of(model, sources, max_length_ratio=0.5, **changes)
    assert all(len(ids) <= int(0.5 * len(source)) + 10 for source, ids in zip(sources, limited, strict=True))


@pytest.mark.parametrize("changes", SEARCHES)
@pytest.mark.parametrize("size", [1, 3])
def test_no_ngram_comes_twice(lengths, changes, size):
    lengths(12, are_full=True)
    model, sources = tiny(seed=7, vocab_size=20, spread=0.3), sources_of(10, vocab_size=20)
    for ids in ids_of(model, sources, no_repeat_ngram=size, **changes):
        ngrams = [tuple(ids[place : place + size]) for place in range(len(ids) - size + 1)]
        assert len(ngrams) == len(set(ngrams)) >= 9 - size


@pytest.mark.parametrize("changes", SEARCHES)
def test_a_translation_for_which_no_token_is_left_ends(lengths, changes):
    lengths(12, are_full=True)
    model, sources = tiny(seed=8), sources_of(5)  # Three words are allowed, each of them once.
    for best, *_ in hypotheses_of(model, sources, no_repeat_ngram=1, **changes):
        assert sorted(best.ids) == [4, 5, 6]
        assert best.score > -100


def test_sampling_repeats_with_its_seed():
    model, sources = tiny(seed=9, spread=0.5), sources_of(20)
    samples = [ids_of(model, sources, num_best=3, sample=True, seed=seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]


def test_samples_come_as_often_as_they_are_likely(lengths):
    lengths(1)
    model, (source,) = tiny(seed=1).double(), sources_of(1)
    samples = [ids_of(model, [source], num_best=500, sample=True, seed=seed) for seed in range(4)]
    counts = Counter(ids[0] if ids else EOS_ID for ids in itertools.chain(*samples))
    logits = model(padded([source]), torch.tensor([[SOS_ID]]))[0, 0].detach()
    allowed = [EOS_ID, 4, 5, 6]
    expected = logits[allowed].softmax(dim=-1) * 2000
    observed = torch.tensor([float(counts[token]) for token in allowed])
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    assert chi_square < 16.3  # Three degrees of freedom: one in a thousand is larger.


@pytest.mark.parametrize("narrow", [{"top_p": 1e-300}, {"temperature": 0.001}])
def test_the_narrowest_sampling_is_greedy(narrow):
    model, sources = tiny(seed=2), sources_of(10)
    greedy, sampled = (hypotheses_of(model, sources, **how) for how in ({"beam_size": 1}, {"sample": True} | narrow))
    assert [best.ids for (best,) in greedy] == [best.ids for (best,) in sampled]
    assert [best.score for (best,) in greedy] == pytest.approx([best.score for (best,) in sampled], abs=1e-5)


@pytest.mark.parametrize("narrow", [{}, {"top_p": 0.99}])
def test_a_token_that_is_not_allowed_is_never_sampled(narrow):
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(1))
    mask = TokenMask(forbidden=(0, *range(200, 300)))  # At both ends.
    options = DecodingConfig(sample=True, **narrow)
    for number in (0.0, 0.5, 1.0):
        log_probs, tokens = sampled_tokens(logits, torch.full((50,), number), options, mask)
        assert log_probs.isfinite().all() and ((tokens > 0) & (tokens < 200)).all()
        assert sampled_tokens(logits * math.nan, torch.full((50,), number), options, mask)[0].isnan().all()


def test_forced_decoding_gives_the_probabilities_of_a_translation():
    """Whatever is in the batch."""
    model, sources = tiny(seed=4), sources_of(9)
    pairs = [(source, source[::-1][: len(source) // 2]) for source in sources]
    engine = TransformerEngine(model)
    for (source, target), forced in zip(pairs, engine.force_decode(pairs), strict=True):
        assert sum(forced.log_probs) == pytest.approx(log_probability(model, source, target), abs=1e-4)
        assert forced.attention.shape == (len(target) + 1, len(source) + 1)
        assert np.allclose(forced.attention.sum(axis=1), 1.0)
        assert np.allclose(forced.attention, engine.force_decode([(source, target)])[0].attention, atol=1e-6)


def test_forced_decoding_holds_few_logits_at_a_time(monkeypatch):
    """Whatever the size of the vocabulary, with the same results."""
    model, pairs, sizes = tiny(seed=4), [(source, source[::-1]) for source in sources_of(9)], []
    models = Ensemble([model, tiny(seed=5)])
    expected = [engine.force_decode(pairs) for engine in map(TransformerEngine, (model, models))]
    model.projection.register_forward_hook(lambda module, arguments, logits: sizes.append(logits.numel()))
    monkeypatch.setattr(engine_module, "_LOGITS_AT_ONCE", 30)
    for engine, found in zip(map(TransformerEngine, (model, models)), expected, strict=True):
        for ours, theirs in zip(engine.force_decode(pairs), found, strict=True):
            assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-5)
    assert len(sizes) > 10 and max(sizes) <= 30
    del sizes[:]
    TransformerEngine(model).attend(pairs)
    assert not sizes


@pytest.mark.parametrize("num_models", [1, 2])
def test_two_threads_with_one_model_do_not_disturb_each_other(num_models):
    """Each waits for the other between the first module and the first attention."""
    models = [tiny(seed=seed) for seed in range(num_models)]
    engine = TransformerEngine(Ensemble(models) if num_models > 1 else models[0])
    pairs = [([4, 5, 6], [5, 4]), ([6], [4, 4, 5, 6])]
    alone = [engine.force_decode([pair]) for pair in pairs]
    barrier = Barrier(2, timeout=60)

    def wait(*call):
        barrier.wait()

    models[0].source_embedding.register_forward_hook(wait)
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(engine.force_decode, [[pair] for pair in pairs]))
    for (ours,), (expected,) in zip(together, alone, strict=True):
        assert ours.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
        assert np.allclose(ours.attention, expected.attention, atol=1e-6)
