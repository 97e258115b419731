from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.sections import DecodingConfig
from mt_cli.config.tags import Tagging
from mt_cli.errors import ConfigError, InputError
from mt_cli.evaluation import tuning
from mt_cli.evaluation.scores import Scorer
from mt_cli.evaluation.tuning import Trial, TuningSet, choose, search_grid, tune

SCORES = st.integers(0, 40).map(lambda tenths: tenths / 8)  # Exact in binary, so that margins are exact.


def trials_of(scores):
    return [Trial(size, penalty, score, 1.0, 1.0) for (size, penalty), score in scores.items()]


@given(
    st.dictionaries(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([0.0, 0.5, 1.0, 1.5])), SCORES, min_size=1),
    SCORES,
)
def test_the_choice_is_the_smallest_beam_near_the_best(scores, margin):
    def rank(item):
        (size, penalty), score = item
        is_near = score >= max(scores.values()) - margin
        return (is_near, -size, penalty == 1.0, score, -abs(penalty - 1.0))

    (size, penalty), score = max(scores.items(), key=rank)
    chosen = choose(trials_of(scores), margin)
    assert (chosen.beam_size, chosen.score) == (size, score)
    assert abs(chosen.length_penalty - 1.0) == abs(penalty - 1.0)


def test_translations_that_are_too_long_are_not_chosen():
    trials = [Trial(4, penalty, penalty, penalty / 2, 1.0) for penalty in (1.0, 1.5, 2.0, 3.0)]
    for longest, expected in ((9.0, 3.0), (1.25, 2.0), (0.75, 1.5), (0.1, 1.0)):
        assert choose(trials, 0.0, longest).length_penalty == expected
    trials = [replace(each, length_ratio=3 + each.length_penalty) for each in trials_of({(4, 1.0): 5, (4, 2.0): 9})]
    trials.append(replace(trials[0], length_ratio=2.0, no_repeat_ngram=3, score=20))
    assert choose(trials, 0.0, 1.25) == trials[0], "nothing is changed"


def test_the_choice_says_what_was_too_long():
    chosen = {"beam_size": 4, "length_penalty": 1.0, "no_repeat_ngram": None}
    result = {"metric": "chrf", "num_sentences": 9, "split": "valid", "signature": "", "margin": 1, "confidence_95": 1}
    for ratios, said in (((0.9, 1.1), "best score."), ((0.9, 1.2), "(too long)."), ((1.2, 1.3), "defaults are kept.")):
        trials = [vars(Trial(4, 1.0, 20.0, ratio, 1.0)) for ratio in ratios]
        text = tuning.format_tuning(result | {"trials": trials, "chosen": chosen})
        assert next(line for line in text.splitlines() if line.startswith("Chosen")).endswith(said)


def test_a_limit_of_repetitions_must_be_better():
    plain = trials_of({(2, 1.0): 7, (2, 2.0): 8})
    ngrams = [replace(each, no_repeat_ngram=3, score=each.score + 0.05) for each in plain]
    for margin, expected in ((0.1, None), (0.01, 3)):
        chosen = choose([*plain, *ngrams], margin)
        assert (chosen.length_penalty, chosen.no_repeat_ngram) == (2.0, expected)


def test_the_grid_has_every_setting_once_in_order():
    grid = search_grid(DecodingConfig(max_length_ratio=0.5), [4, 1, 4], [1.0, 0.0], [None])
    settings = [(each.beam_size, each.length_penalty, each.max_length_ratio) for each in grid]
    assert settings == [(1, 0.0, 0.5), (4, 0.0, 0.5), (4, 1.0, 0.5)]
    with pytest.raises(ConfigError, match="length_penalty"):
        search_grid(DecodingConfig(), [1], [-1.0], [None])
    with pytest.raises(InputError, match=r"decoding\.sample"):
        search_grid(DecodingConfig(sample=True), [1], [1.0], [None])


@given(st.integers(0, 30), st.integers(1, 30), st.integers(0, 3))
def test_a_sample_has_distinct_pairs_in_their_order(number, limit, seed):
    pairs = [(str(index), str(index)) for index in range(number)]
    sample = compared_on(pairs, pairs).sampled(limit, seed)
    assert len(sample.pairs) == min(number, limit) and sample.languages == sample.pairs
    assert sorted(set(sample.pairs), key=pairs.index) == sample.pairs
    assert compared_on(pairs).sampled(limit, seed).pairs == sample.pairs


def compared_on(pairs, languages=()):
    return TuningSet(pairs, languages, Scorer.of("en"), "chrf")


GREEDY, TAGGING = DecodingConfig(beam_size=1), Tagging(("<2en>", "<2de>"))


@dataclass(frozen=True)
class Copying:
    """Translates each text into itself.

    What begins with `<2de>` is the longer, the larger the length penalty, and repeats itself if it may.
    """

    decoding: DecodingConfig = GREEDY
    tagging: Tagging = TAGGING
    engine: None = None
    tags = TAGGING.tags

    def translate(self, sources):
        end = int(self.decoding.length_penalty) * " was" + " hm" * (self.decoding.no_repeat_ngram is None)
        return [text[6:] + end * text.startswith("<2de>") for text in sources]


PAIRS = [(f"<2en> a house {number}", f"a house {number}") for number in range(50)]
PAIRS += [(f"<2de> un jardin {number}", f"der Garten {number} was was") for number in range(60)]
LANGUAGES = [("xx", "en")] * 50 + [("fr", "de")] * 60
BOTH = compared_on(PAIRS, LANGUAGES)


def grid(penalties, ngrams=(3,), size=2):
    return search_grid(DecodingConfig(), [size], penalties, ngrams)


def test_the_score_of_several_directions_is_their_mean():
    (setting,) = grid([0])
    result = tune(Copying(), BOTH, [setting], 0.1)
    hypotheses = Copying(setting).translate([source for source, _ in PAIRS])
    score = Scorer.of("en").score
    scores = [
        score(hypotheses[rows], [target for _, target in PAIRS[rows]], ["chrf"])["chrf"].score
        for rows in (slice(50), slice(50, None))
    ]
    assert result["chosen"]["score"] == pytest.approx(sum(scores) / 2, abs=1e-3)
    assert result["signature"].startswith("mean:2|")


def test_after_its_time_tuning_chooses_among_settings_tried(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(Copying):
        def translate(self, sources):
            clock[0] += 1
            return super().translate(sources)

    compared, settings = compared_on(PAIRS), grid([1, 2, 9])
    with pytest.raises(tuning.OutOfTimeError):
        tune(Slow(), compared, settings, 0, max_seconds=0.5)
    result = tune(Slow(), compared, settings, 0, max_seconds=2.5)
    assert (len(result["trials"]), result["num_settings"]) == (2, 3)
    assert result["chosen"] == tune(Copying(), compared, settings[:2], 0)["chosen"]
