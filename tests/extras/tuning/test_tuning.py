import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.sections import DecodingConfig
from mt_cli.errors import ConfigError, InputError
from mt_cli.evaluation.texts import Scorer
from mt_cli.extras.tuning.tuning import Trial, choose, sampled_pairs, search_grid, tune

SCORES = st.integers(0, 40).map(lambda tenths: tenths / 8)  # Exact in binary, so that margins are exact.


def trials_of(scores):
    return [Trial(size, penalty, score, 1.0, 1.0) for (size, penalty), score in scores.items()]


@given(
    st.dictionaries(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([0.0, 0.5, 1.0, 1.5])), SCORES, min_size=1),
    SCORES,
)
def test_the_choice_is_the_smallest_beam_near_the_best_then_the_default_penalty_then_the_score(scores, margin):
    def rank(item):
        (size, penalty), score = item
        is_near = score >= max(scores.values()) - margin
        return (is_near, -size, penalty == 1.0, score, -abs(penalty - 1.0))

    (size, penalty), score = max(scores.items(), key=rank)
    chosen = choose(trials_of(scores), margin)
    assert (chosen.beam_size, chosen.score) == (size, score)
    assert abs(chosen.length_penalty - 1.0) == abs(penalty - 1.0)


@pytest.mark.parametrize(
    ("margin", "expected"),
    [(0.0, (8, 0.5)), (0.1, (4, 1.5)), (0.5, (4, 1.0)), (2.0, (1, 1.0))],
)
def test_a_larger_margin_gives_a_smaller_beam_and_the_default_penalty(margin, expected):
    scores = {(1, 1.0): 38.0, (4, 0.5): 39.0, (4, 1.0): 39.25, (4, 1.5): 39.5, (8, 0.5): 39.5625, (8, 1.0): 39.5}
    chosen = choose(trials_of(scores), margin)
    assert (chosen.beam_size, chosen.length_penalty) == expected


def test_translations_that_are_too_long_are_not_chosen_unless_all_are():
    trials = [Trial(4, penalty, penalty, penalty / 2, 1.0) for penalty in (1.0, 1.5, 2.0, 3.0)]
    for longest, expected in ((9.0, 3.0), (1.25, 2.0), (0.75, 1.5), (0.1, 1.0)):
        assert choose(trials, 0.0, longest).length_penalty == expected


def test_the_grid_has_every_setting_once_in_order_and_keeps_other_options():
    grid = search_grid(DecodingConfig(no_repeat_ngram=3), [4, 1, 4], [1.0, 0.0])
    assert [(each.beam_size, each.length_penalty) for each in grid] == [(1, 0.0), (1, 1.0), (4, 0.0), (4, 1.0)]
    assert {each.no_repeat_ngram for each in grid} == {3}


def test_settings_that_decoding_does_not_allow_are_refused():
    for sizes, penalties, key in (([0], [1.0], "beam_size"), ([1], [-1.0], "length_penalty")):
        with pytest.raises(ConfigError, match=key):
            search_grid(DecodingConfig(), sizes, penalties)
    with pytest.raises(InputError, match=r"decoding\.sample"):
        search_grid(DecodingConfig(sample=True), [1], [1.0])


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 3))
def test_a_sample_has_distinct_pairs_in_their_order_and_depends_on_the_seed_alone(number, limit, seed):
    pairs = [(str(index), str(index)) for index in range(number)]
    found, languages = sampled_pairs(pairs, pairs, limit, seed)
    assert len(found) == min(number, limit) and languages == found
    assert (sorted(set(found), key=pairs.index), []) == (found, []) == sampled_pairs(pairs, [], limit, seed)


class Copying:
    """Translates each text into itself."""

    def translate(self, sources, **decoding):
        return list(sources)


def test_the_score_of_several_directions_is_their_mean():
    pairs = [(f"a house {number}", f"a house {number}") for number in range(3)]
    pairs += [(f"un jardin {number}", f"der Garten {number}") for number in range(9)]
    languages = [("xx", "en")] * 3 + [("fr", "de")] * 9
    found = tune(Copying(), pairs, Scorer.of("en"), "chrf", [DecodingConfig(beam_size=2)], 0.1, languages)
    score = Scorer.of("en").score
    of_each = [score(*map(list, zip(*some, strict=True)), ["chrf"])["chrf"].score for some in (pairs[:3], pairs[3:])]
    assert found["chosen"]["score"] == pytest.approx(sum(of_each) / 2, abs=1e-3)
    assert found["signature"].startswith("mean:2|")
