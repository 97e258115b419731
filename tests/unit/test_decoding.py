import itertools
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.decoding.finished import worth_keeping
from mt_cli.decoding.next_tokens import NEVER_PRODUCED, Constraints, TokenMask, largest, sampled_tokens
from mt_cli.decoding.predictor import EagerPredictor
from mt_cli.decoding.search import Beams, Samples, penalty, run_search, search
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID, UNK_ID


def tiny(vocab_size=7, seed=0, spread=1.5):
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(d_model=16, d_ff=16, num_heads=2), vocab_size, vocab_size).eval()
    with torch.no_grad():
        model.projection.weight.mul_(spread)  # Tied to the embedding: less even distributions.
    return model


def some_sources(number=6, vocab_size=7):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 8, (number,), generator=generator).tolist()
    return [torch.randint(4, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def padded(sources):
    longest = max(map(len, sources)) + 1
    return torch.tensor([[*ids, EOS_ID] + [0] * (longest - len(ids) - 1) for ids in sources])


def hypotheses_of(model, sources, prefixes=(), num_best=1, **changes):
    decoding = DecodingConfig(**{"beam_size": 3, "unk": "avoid", "max_length": 12} | changes)
    sentences = [Sentence(*both) for both in itertools.zip_longest(sources, prefixes, fillvalue=())]
    return TransformerEngine(model).search(sentences, decoding, num_best)


def ids_of(*arguments, **changes):
    return [hypothesis.ids for best in hypotheses_of(*arguments, **changes) for hypothesis in best]


SEARCHES = [{"beam_size": 1}, {"beam_size": 4}, {"sample": True}]


def log_probability(model, source, ids):
    """Of ids and [EOS], by one full forward for each prefix."""
    total = 0.0
    with torch.no_grad():
        for position, token in enumerate([*ids, EOS_ID]):
            logits = model(padded([source]), torch.tensor([[SOS_ID, *ids[:position]]]))
            total += float(logits[0, -1].log_softmax(dim=-1)[token])
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("length_penalty", [0.0, 0.6])
def test_beam_of_one_is_greedy(seed, length_penalty):
    model, src_ids = tiny(seed=seed), padded(some_sources())
    decoding = DecodingConfig(beam_size=1, length_penalty=length_penalty, max_length=12, unk="avoid")
    constraints = Constraints.of(src_ids, decoding, (), None)
    states = Samples.start(src_ids, constraints, 1, src_ids.device), Beams.start(len(src_ids), 1, src_ids.device)
    greedy, beams = (run_search(EagerPredictor(model), src_ids, constraints, state)() for state in states)
    for (ours,), (beam,) in zip(greedy, beams, strict=True):
        assert ours.ids == beam.ids
        assert ours.score == pytest.approx(beam.score, abs=1e-4)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))])
def test_beam_search_finds_the_best_sequence_of_a_tiny_model(seed):
    model, (source,) = tiny(vocab_size=7, seed=seed), some_sources(1)
    limit = 3
    every_sequence = [ids for length in range(limit + 1) for ids in itertools.product(range(4, 7), repeat=length)]
    # The token that ends a sequence at the limit is forced, and forced tokens keep their probability.
    log_probs = {ids: log_probability(model, source, list(ids)) for ids in every_sequence}
    for length_penalty in (0.0, 1.0):
        scores = {ids: log_prob / penalty(len(ids) + 1, length_penalty) for ids, log_prob in log_probs.items()}
        ranked = sorted(scores, key=lambda ids: -scores[ids])
        decoding = DecodingConfig(beam_size=40, length_penalty=length_penalty, max_length=limit, unk="avoid")
        (found,) = search(model, padded([source]), decoding, num_best=40)
        assert [tuple(hypothesis.ids) for hypothesis in found] == ranked
        assert [hypothesis.score for hypothesis in found] == pytest.approx([scores[ids] for ids in ranked], abs=1e-4)


@pytest.mark.parametrize("changes", SEARCHES)
def test_batching_and_order_never_change_a_translation(changes):
    model, sources = tiny(seed=3), some_sources(12)
    together = ids_of(model, sources, batch_tokens=400, **changes)
    alone = [ids for source in sources for ids in ids_of(model, [source], **changes)]
    assert together == alone == ids_of(model, sources[::-1], batch_tokens=400, **changes)[::-1]


def test_n_best_is_sorted_distinct_and_starts_with_the_best():
    model, src_ids = tiny(seed=1), padded(some_sources())
    best = search(model, src_ids, DecodingConfig(beam_size=5))
    for (first, *_), found in zip(best, search(model, src_ids, DecodingConfig(beam_size=5), 5), strict=True):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        assert found[0].ids == first.ids
        assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found) == 5


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_cap_holds_and_special_tokens_are_never_produced(beam_size):
    for seed in range(5):
        model, sources = tiny(seed=seed, spread=0.1), some_sources()
        settings = DecodingConfig(beam_size=beam_size, max_length_ratio=0.5, unk="avoid")
        for source, (best, *_) in zip(sources, search(model, padded(sources), settings), strict=True):
            assert len(best.ids) <= int(0.5 * len(source)) + 10
            assert not {*NEVER_PRODUCED, UNK_ID, EOS_ID} & set(best.ids)


def test_a_wider_beam_scores_no_worse_and_a_larger_length_penalty_never_shortens():
    model, sources = tiny(seed=4, spread=0.5), some_sources(10)
    scores = [
        sum(best.score for best, *_ in hypotheses_of(model, sources, beam_size=size, length_penalty=0.0, max_length=50))
        for size in (1, 2, 8)
    ]
    assert scores[0] <= scores[-1] + 1e-4
    lengths = [
        sum(map(len, ids_of(model, sources, beam_size=6, length_penalty=penalty, max_length=50)))
        for penalty in (0.0, 1.0, 3.0)
    ]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_translation_is_no_longer_than_the_learned_positions(beam_size):
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=16, num_heads=2, positions="learned", max_positions=9)
    model = Transformer(config, 7, 7).eval()
    for best, *_ in search(model, padded(some_sources(20)), DecodingConfig(beam_size=beam_size)):
        assert len(best.ids) <= 8


@pytest.mark.parametrize("size", [5, 64, 200, 640, 1000])
@pytest.mark.parametrize("number", [1, 2, 9])
def test_the_largest_values_are_those_that_sorting_whole_rows_finds(size, number):
    values = torch.randn(7, size)
    values[2, :50] = -torch.inf
    values[3] = -torch.inf
    values[3, -1] = 1.0
    found, indices = largest(values, number)
    assert torch.equal(found, values.topk(min(number, size)).values)
    assert torch.equal(values.gather(1, indices), found)
    assert all(len(set(row)) == len(row) for row in indices.tolist())


def test_a_batch_shrinks_when_enough_of_it_is_finished():
    active = torch.ones(100, dtype=torch.bool)
    assert worth_keeping(active) is None
    active[::4] = False
    assert worth_keeping(active).tolist() == [n for n in range(100) if n % 4] + [0, 4, 8, 12, 16]
    active[:] = False
    active[7] = True
    assert worth_keeping(active)[0] == 7 and len(worth_keeping(active)) == 8
    assert worth_keeping(active[:8]) is None


@pytest.mark.parametrize("beam_size", [1, 3])
def test_unknown_words_are_produced_only_where_they_are_allowed(beam_size):
    model = tiny(seed=2, spread=0.2)
    with torch.no_grad():
        model.projection.weight[UNK_ID] = model.projection.weight[4:].mean(dim=0) * 1.5
    for may_be_unknown in (False, True):
        settings = DecodingConfig(beam_size=beam_size, unk="keep" if may_be_unknown else "avoid")
        found = search(model, padded(some_sources(20)), settings)
        assert any(UNK_ID in best.ids for best, *_ in found) == may_be_unknown


@pytest.mark.parametrize("changes", SEARCHES)
def test_a_translation_begins_with_its_prefix(changes):
    model, sources = tiny(seed=3, vocab_size=9), some_sources(8, vocab_size=9)
    prefixes = [[4 + (row + place) % 5 for place in range(row % 4)] for row in range(8)]
    prefixes[5] = [UNK_ID, 4]
    for prefix, (best, *_) in zip(prefixes, hypotheses_of(model, sources, prefixes, **changes), strict=True):
        assert best.ids[: len(prefix)] == prefix
    alone = [ids_of(model, [source], [prefix], **changes)[0] for source, prefix in zip(sources, prefixes, strict=True)]
    assert alone == ids_of(model, sources, prefixes, **changes)


def test_a_prefix_of_what_would_be_found_anyway_changes_nothing():
    model, sources = tiny(seed=5, spread=0.7), some_sources(10)
    free = hypotheses_of(model, sources, beam_size=1)
    prefixes = [best.ids[:2] for (best,) in free]
    for (one,), (other,) in zip(free, hypotheses_of(model, sources, prefixes, beam_size=1), strict=True):
        assert one.ids == other.ids


@pytest.mark.parametrize("changes", SEARCHES)
def test_the_score_leaves_out_the_tokens_of_a_prefix(changes):
    model, sources = tiny(seed=5, vocab_size=9), some_sources(6, vocab_size=9)
    prefixes = [[4 + row % 5] * row for row in range(6)]
    for source, prefix, (best, *_) in zip(
        sources, prefixes, hypotheses_of(model, sources, prefixes, **changes), strict=True
    ):
        (forced,) = TransformerEngine(model).force_decode([(source, best.ids)])
        counted = sum(forced.log_probs[len(prefix) :])
        assert best.score == pytest.approx(counted / penalty(len(best.ids) + 1, 1.0), abs=1e-4)


@pytest.mark.parametrize("changes", SEARCHES)
@pytest.mark.parametrize(("shortest", "longest"), [(0, 3), (5, 5), (4, 9), (7, None)])
def test_lengths_stay_between_minimum_and_maximum(changes, shortest, longest):
    model, sources = tiny(seed=6), some_sources(10)
    for best, *_ in hypotheses_of(model, sources, min_length=shortest, max_length=longest, **changes):
        assert shortest <= len(best.ids) <= (longest or 100)


@pytest.mark.parametrize("changes", SEARCHES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice(changes, size):
    model, sources = tiny(seed=7, spread=0.3), some_sources(10)
    free = ids_of(model, sources, min_length=9, **changes)
    limited = ids_of(model, sources, min_length=9, no_repeat_ngram=size, **changes)

    def repeats(ids):
        ngrams = [tuple(ids[place : place + size]) for place in range(len(ids) - size + 1)]
        return len(ngrams) - len(set(ngrams))

    assert any(map(repeats, free))
    assert not any(map(repeats, limited))


@pytest.mark.parametrize("changes", SEARCHES)
def test_a_translation_for_which_no_token_is_left_ends(changes):
    model, sources = tiny(seed=8), some_sources(5)  # Three words are allowed, each of them once.
    for best, *_ in hypotheses_of(model, sources, no_repeat_ngram=1, min_length=8, **changes):
        assert sorted(best.ids) == [4, 5, 6]
        assert best.score > -100


def test_sampling_repeats_with_its_seed_and_differs_with_another():
    model, sources = tiny(seed=9, spread=0.5), some_sources(20)
    samples = [ids_of(model, sources, num_best=3, sample=True, seed=seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert samples[0] == [ids for source in sources for ids in ids_of(model, [source], num_best=3, sample=True)]


def test_samples_come_as_often_as_they_are_likely():
    model, (source,) = tiny(seed=1), some_sources(1)
    model.double()
    samples = [
        hypotheses_of(model, [source], num_best=50, sample=True, seed=seed, max_length=1)[0] for seed in range(40)
    ]
    counts = Counter(hypothesis.ids[0] if hypothesis.ids else EOS_ID for each in samples for hypothesis in each)
    logits = model(padded([source]), torch.tensor([[SOS_ID]]))[0, 0].detach()
    allowed = [EOS_ID, 4, 5, 6]
    expected = logits[allowed].softmax(dim=-1) * 2000
    observed = torch.tensor([float(counts[token]) for token in allowed])
    chi_square = float(((observed - expected) ** 2 / expected).sum())
    assert chi_square < 16.3  # Three degrees of freedom: one in a thousand is larger.


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"top_p": 1e-300}, {"temperature": 0.001}])
def test_the_narrowest_sampling_is_greedy(narrow):
    model, sources = tiny(seed=2), some_sources(10)
    greedy = hypotheses_of(model, sources, beam_size=1)
    sampled = hypotheses_of(model, sources, sample=True, **narrow)
    assert [h[0].ids for h in greedy] == [h[0].ids for h in sampled]
    assert [h[0].score for h in greedy] == pytest.approx([h[0].score for h in sampled], abs=1e-5)


@pytest.mark.parametrize("narrow", [{}, {"top_k": 3}, {"top_p": 0.99}])
@pytest.mark.parametrize("number", [0.0, 0.5, 1.0])
def test_a_token_that_is_not_allowed_is_never_sampled(narrow, number):
    logits = torch.randn(50, 300, generator=torch.Generator().manual_seed(1))
    mask = TokenMask(forbidden=(0, *range(200, 300)))  # At both ends.
    options = DecodingConfig(sample=True, **narrow)
    log_probs, tokens = sampled_tokens(logits, torch.full((50,), number), options, mask)
    assert log_probs.isfinite().all() and ((tokens > 0) & (tokens < 200)).all()
    assert sampled_tokens(logits * math.nan, torch.full((50,), number), options, mask)[0].isnan().all()


def test_samples_are_sorted_and_scored_as_the_model_reads_them():
    model, sources = tiny(seed=3), some_sources(4)
    for source, found in zip(
        sources, hypotheses_of(model, sources, num_best=5, sample=True, length_penalty=0.0), strict=True
    ):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True) and len(scores) == 5
        for hypothesis in found:
            assert hypothesis.score == pytest.approx(log_probability(model, source, hypothesis.ids), abs=1e-4)


def test_forced_decoding_gives_the_probabilities_of_a_translation_whatever_is_in_the_batch():
    model, sources = tiny(seed=4), some_sources(9)
    pairs = [(source, source[::-1][: len(source) // 2]) for source in sources]
    engine = TransformerEngine(model)
    for (source, target), forced in zip(pairs, engine.force_decode(pairs), strict=True):
        assert sum(forced.log_probs) == pytest.approx(log_probability(model, source, target), abs=1e-4)
        assert forced.attention.shape == (len(target) + 1, len(source) + 1)
        assert torch.allclose(forced.attention.sum(dim=1), torch.ones(len(target) + 1))
        assert torch.allclose(forced.attention, engine.force_decode([(source, target)])[0].attention, atol=1e-6)


@pytest.mark.parametrize("num_models", [1, 2])
def test_two_threads_that_use_one_model_at_once_get_what_each_gets_alone(num_models):
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
        assert ours.log_probs == expected.log_probs
        assert torch.equal(ours.attention, expected.attention)
