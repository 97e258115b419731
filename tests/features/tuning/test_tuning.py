from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.sections import DecodingConfig
from mt_cli.errors import ConfigError, InputError
from mt_cli.evaluation.texts import Scorer
from mt_cli.features.tuning import tuning
from mt_cli.features.tuning.tuning import Trial, TuningSet, choose, format_tuning, search_grid, tune

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


def test_if_all_translations_are_too_long_nothing_is_changed():
    trials = trials_of({(4, 1.0): 5, (4, 2.0): 9})
    trials = [replace(each, length_ratio=3 + each.length_penalty) for each in trials]
    trials.append(replace(trials[0], length_ratio=2.0, no_repeat_ngram=3, score=20))
    assert choose(trials, 0.0, 1.25) == trials[0]


def test_the_grid_has_every_setting_once_in_order_and_keeps_other_options():
    grid = search_grid(DecodingConfig(max_length=3), [4, 1, 4], [1.0, 0.0], [None])
    assert [(each.beam_size, each.length_penalty) for each in grid] == [(1, 0.0), (1, 1.0), (4, 0.0), (4, 1.0)]
    assert {each.max_length for each in grid} == {3}


def test_settings_that_decoding_does_not_allow_are_refused():
    for sizes, penalties, key in (([0], [1.0], "beam_size"), ([1], [-1.0], "length_penalty")):
        with pytest.raises(ConfigError, match=key):
            search_grid(DecodingConfig(), sizes, penalties, [None])
    with pytest.raises(InputError, match=r"decoding\.sample"):
        search_grid(DecodingConfig(sample=True), [1], [1.0], [None])


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 3))
def test_a_sample_has_distinct_pairs_in_their_order_and_depends_on_the_seed_alone(number, limit, seed):
    pairs = [(str(index), str(index)) for index in range(number)]
    found = compared_on(pairs, pairs).sampled(limit, seed)
    assert len(found.pairs) == min(number, limit) and found.languages == found.pairs
    assert sorted(set(found.pairs), key=pairs.index) == found.pairs
    assert compared_on(pairs).sampled(limit, seed).pairs == found.pairs


def compared_on(pairs, languages=()):
    return TuningSet(pairs, languages, Scorer.of("en"), "chrf")


class Copying:
    """Translates each text into itself.

    What begins with `<2de>` is the longer, the larger the length penalty, and repeats itself if it may.
    """

    tags = ("<2en>", "<2de>")
    decoding = DecodingConfig()

    def with_decoding(self, decoding):
        other = Copying()
        other.decoding = decoding
        return other

    def with_callback(self, on_done):
        return self

    @property
    def of_corpora(self):
        return self

    def translate(self, sources):
        end = int(self.decoding.length_penalty) * " was" + " hm" * (self.decoding.no_repeat_ngram is None)
        return [text[6:] + end * text.startswith("<2de>") for text in sources]


PAIRS = [(f"<2en> a house {number}", f"a house {number}") for number in range(3)]
PAIRS += [(f"<2de> un jardin {number}", f"der Garten {number} was was") for number in range(9)]
LANGUAGES = [("xx", "en")] * 3 + [("fr", "de")] * 9


def grid(penalties, ngrams=(3,), size=2):
    return search_grid(DecodingConfig(), [size], penalties, ngrams)


def test_the_score_of_several_directions_is_their_mean():
    (setting,) = grid([0])
    found = tune(Copying(), compared_on(PAIRS, LANGUAGES), [setting], 0.1)
    hypotheses = Copying().with_decoding(setting).translate([source for source, _ in PAIRS])
    score = Scorer.of("en").score
    of_each = [
        score(hypotheses[rows], [target for _, target in PAIRS[rows]], ["chrf"])["chrf"].score
        for rows in (slice(3), slice(3, None))
    ]
    assert found["chosen"]["score"] == pytest.approx(sum(of_each) / 2, abs=1e-3)
    assert found["signature"].startswith("mean:2|")


def test_each_tag_has_the_penalty_that_is_best_for_its_pairs(monkeypatch):
    monkeypatch.setattr(tuning, "_FEWEST_PAIRS_OF_TAG", 3)
    found = tune(Copying(), compared_on(PAIRS, LANGUAGES), grid([1, 2, 9], [None, 3]), 0)
    chosen = found["chosen"]
    assert chosen["length_penalties"] == {"<2de>": 2, "<2en>": 1} and chosen["no_repeat_ngram"] == 3
    scores = {tag: max(each["score"] for each in trials) for tag, trials in found["tags"].items()}
    assert scores["<2en>"] == 100 and {each["no_repeat_ngram"] for each in found["tags"]["<2en>"]} == {3}
    assert chosen["score"] == pytest.approx(sum(scores.values()) / 2, abs=1e-3)
    text = format_tuning(found | {"split": "valid"})
    monkeypatch.setattr(tuning, "_FEWEST_PAIRS_OF_TAG", 4)
    few = tune(Copying(), compared_on(PAIRS, LANGUAGES), grid([1, 2, 9], [3]), 0)["chosen"]
    assert few["length_penalties"] == {"<2de>": 2}, "three pairs are too few"
    assert "each tag with its own" in text and "beam 2, no_repeat_ngram 3 " in text


def test_one_direction_and_greedy_search_have_no_penalties_by_tag():
    found = tune(Copying(), compared_on(PAIRS[3:], LANGUAGES[3:]), grid([1, 2]), 0)
    assert found["chosen"]["length_penalties"] == {} == found["tags"] and found["chosen"]["length_penalty"] == 2
    chosen = tune(Copying(), compared_on(PAIRS, LANGUAGES), grid([1, 2], size=1), 0)["chosen"]
    assert chosen["length_penalty"] is None is chosen["length_penalties"]


def test_no_limit_of_repetitions_is_preferred_if_it_is_as_good():
    plain = trials_of({(2, 1.0): 7, (2, 2.0): 8})
    ngrams = [replace(each, no_repeat_ngram=3, score=each.score + 0.05) for each in plain]
    for margin, expected in ((0.1, None), (0.01, 3)):
        chosen = choose([*plain, *ngrams], margin)
        assert (chosen.length_penalty, chosen.no_repeat_ngram) == (2.0, expected)


def test_penalties_by_tag_are_kept_only_if_they_score_at_least_as_high_as_one_for_all(monkeypatch):
    """Scores of tags can mislead: here they prefer other penalties than all pairs together."""
    monkeypatch.setattr(tuning, "_FEWEST_PAIRS_OF_TAG", 3)
    compared = compared_on(PAIRS, LANGUAGES)
    honest = TuningSet.trials_by_tag

    def misleading(self, trials, tags):
        found = honest(self, trials, tags)
        return {tag: [replace(each, score=100 - each.score) for each in of_tag] for tag, of_tag in found.items()}

    kept = tune(Copying(), compared, grid([1, 2, 9]), 0)
    assert kept["chosen"]["length_penalties"] == {"<2de>": 2, "<2en>": 1}
    monkeypatch.setattr(TuningSet, "trials_by_tag", misleading)
    found = tune(Copying(), compared, grid([1, 2, 9]), 0)
    best = max(each["score"] for each in found["trials"])
    assert found["chosen"]["length_penalties"] == {} and found["chosen"]["length_penalty"] == 2
    assert found["chosen"]["score"] == best and set(found["tags"]) == {"<2de>", "<2en>"}
    assert "one for all tags, because" in format_tuning(found | {"split": "valid"})


class Slow(Copying):
    """Needs a second of a clock that tests move for each search."""

    def __init__(self, clock):
        self.clock = clock

    def with_decoding(self, decoding):
        other = Slow(self.clock)
        other.decoding = decoding
        return other

    def translate(self, sources):
        self.clock[0] += 1
        return super().translate(sources)


@pytest.mark.parametrize(("max_seconds", "num_tried"), [(9, 3), (2.5, 2), (1.5, 1)])
def test_after_its_time_tuning_chooses_among_the_settings_that_were_tried(monkeypatch, max_seconds, num_tried):
    clock = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: clock[0])
    compared, settings = compared_on(PAIRS, LANGUAGES), grid([1, 2, 9])
    found = tune(Slow(clock), compared, settings, 0, max_seconds=max_seconds)
    assert (len(found["trials"]), found["num_settings"]) == (num_tried, 3)
    rest = tune(Copying(), compared, settings[:num_tried], 0)
    assert found["chosen"] == rest["chosen"]


def test_tuning_without_time_for_one_setting_chooses_nothing(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: clock[0])
    with pytest.raises(tuning.OutOfTimeError):
        tune(Slow(clock), compared_on(PAIRS), grid([1, 2]), 0, max_seconds=0.5)
