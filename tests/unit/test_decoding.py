import itertools

import pytest
import torch

from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding import (
    NEVER_PRODUCED,
    SearchSettings,
    beam_search,
    greedy_search,
    largest,
    penalty,
    search,
    worth_keeping,
)
from mt_cli.evaluation import translate_ids
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer import EOS_ID, SOS_ID, UNK_ID


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
    limits = torch.full((6,), 12)
    settings = SearchSettings(beam_size=1, length_penalty=length_penalty)
    greedy = greedy_search(model, src_ids, limits, settings)
    for ours, (beam,) in zip(greedy, beam_search(model, src_ids, limits, settings), strict=True):
        assert ours.ids == beam.ids
        assert ours.score == pytest.approx(beam.score, abs=1e-4)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_beam_search_finds_the_best_sequence_of_a_tiny_model(seed, length_penalty):
    model, (source,) = tiny(vocab_size=7, seed=seed), some_sources(1)
    limit = 3
    every_sequence = [ids for length in range(limit + 1) for ids in itertools.product(range(4, 7), repeat=length)]
    # The token that ends a sequence at the limit is forced, and forced tokens keep their probability.
    scores = {
        ids: log_probability(model, source, list(ids)) / penalty(len(ids) + 1, length_penalty) for ids in every_sequence
    }
    ranked = sorted(scores, key=lambda ids: -scores[ids])
    settings = SearchSettings(beam_size=40, num_best=40, length_penalty=length_penalty)
    (found,) = beam_search(model, padded([source]), torch.tensor([limit]), settings)
    assert [tuple(hypothesis.ids) for hypothesis in found] == ranked
    assert [hypothesis.score for hypothesis in found] == pytest.approx([scores[ids] for ids in ranked], abs=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_batching_and_order_never_change_a_translation(beam_size):
    model, sources = tiny(seed=3), some_sources(12)
    decoding = DecodingConfig(beam_size=beam_size, batch_tokens=400)
    together = translate_ids(model, sources, decoding)
    alone = [translate_ids(model, [source], decoding)[0] for source in sources]
    backwards = translate_ids(model, sources[::-1], decoding)[::-1]
    assert [h[0].ids for h in together] == [h[0].ids for h in alone] == [h[0].ids for h in backwards]


def test_a_wider_beam_finds_no_worse_a_sequence():
    model, src_ids = tiny(seed=2), padded(some_sources(10))
    scores = []
    for beam_size in (1, 2, 8):
        found = search(model, src_ids, SearchSettings(beam_size=beam_size, length_penalty=0.0))
        scores.append(sum(best.score for best, *_ in found))
    assert scores[0] <= scores[-1] + 1e-4


def test_n_best_is_sorted_distinct_and_starts_with_the_best():
    model, src_ids = tiny(seed=1), padded(some_sources())
    best = search(model, src_ids, SearchSettings(beam_size=5))
    for (first, *_), found in zip(best, search(model, src_ids, SearchSettings(beam_size=5, num_best=5)), strict=True):
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        assert found[0].ids == first.ids
        assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found) == 5


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_cap_holds_and_special_tokens_are_never_produced(beam_size):
    for seed in range(5):
        model, sources = tiny(seed=seed, spread=0.1), some_sources()
        settings = SearchSettings(beam_size=beam_size, max_length_ratio=0.5)
        for source, (best, *_) in zip(sources, search(model, padded(sources), settings), strict=True):
            assert len(best.ids) <= int(0.5 * len(source)) + 10
            assert not {*NEVER_PRODUCED, UNK_ID, EOS_ID} & set(best.ids)


def test_a_larger_length_penalty_never_shortens():
    model, src_ids = tiny(seed=4, spread=0.5), padded(some_sources(10))
    lengths = []
    for length_penalty in (0.0, 1.0, 3.0):
        found = search(model, src_ids, SearchSettings(beam_size=6, length_penalty=length_penalty))
        lengths.append(sum(len(best.ids) for best, *_ in found))
    assert lengths == sorted(lengths)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_learned_positions_end_a_translation_where_they_end(beam_size):
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=16, num_heads=2, positions="learned", max_positions=9)
    model = Transformer(config, 7, 7).eval()
    for best, *_ in search(model, padded(some_sources(20)), SearchSettings(beam_size=beam_size)):
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
    going = torch.ones(100, dtype=torch.bool)
    assert worth_keeping(going) is None
    going[::4] = False
    assert worth_keeping(going).tolist() == [n for n in range(100) if n % 4] + [0, 4, 8, 12, 16]
    going[:] = False
    going[7] = True
    assert worth_keeping(going)[0] == 7 and len(worth_keeping(going)) == 8
    assert worth_keeping(going[:8]) is None


@pytest.mark.parametrize("beam_size", [1, 3])
def test_unknown_words_are_produced_where_they_may_be(beam_size):
    model = tiny(seed=2, spread=0.2)
    with torch.no_grad():
        model.projection.weight[UNK_ID] = model.projection.weight[4:].mean(dim=0) * 1.5
    for may_be_unknown in (False, True):
        settings = SearchSettings(beam_size=beam_size, may_be_unknown=may_be_unknown)
        found = search(model, padded(some_sources(20)), settings)
        assert any(UNK_ID in best.ids for best, *_ in found) == may_be_unknown
