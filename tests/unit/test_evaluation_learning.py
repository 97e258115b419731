"""Whether translations have anything to do with their sources."""

import random
from types import SimpleNamespace

import pytest

from mt_cli.advice.choices import Forecast
from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import parse_config
from mt_cli.evaluation.learning import learning_of
from mt_cli.evaluation.scores import Scorer
from mt_cli.run import finish
from mt_cli.run.report import Ending
from mt_cli.training.plan import Length

WORDS = [f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in "lmnrst"]
REFERENCES = [" ".join(random.Random(number).choices(WORDS, k=9)) for number in range(60)]
SCORER = Scorer.of("it")


def learning(hypotheses, **run):
    return learning_of(SCORER, (REFERENCES, hypotheses, REFERENCES), **run)


def test_only_translations_of_their_sources_count_as_learned():
    others = REFERENCES[1:] + REFERENCES[:1]
    half = [" ".join(text.split()[:5] + other.split()[5:]) for text, other in zip(REFERENCES, others, strict=True)]
    assert not learning(REFERENCES).is_little and not learning(half).is_little
    assert learning(others).is_little and learning(["bal dem fin"] * 60).is_little
    assert learning(["bal dem fin " * 9] * 60).repeated_share == 1


def test_directions_are_shuffled_apart():
    languages = [("en", "it"), ("it", "en")] * 30
    texts = (REFERENCES, REFERENCES, ["a " * 5 if row % 2 else text for row, text in enumerate(REFERENCES)])
    assert learning_of(SCORER, texts, languages).shuffled_chrf > 0
    assert learning_of(SCORER, texts, [("en", "it")] * 50 + [("it", "en")] * 10) is None, "too few"


@pytest.mark.parametrize(("num_steps", "helps"), [(350, "minutes"), (5_000, "text")])
def test_most_helps_what_the_run_lacked(num_steps, helps):
    run = {
        "num_steps": num_steps,
        "num_planned": 5_000,
        "minutes_for_all": 70,
        "expected": (9.0, 20.0),
        "expected_of_all": (20.0, 30.0),
        "score": 3.0,
    }
    described = learning(["bal dem fin"] * 60, **run).describe()
    assert helps in described.partition("what helps most")[2] and "20 to 30" in described
    assert ("9 to 20" in described) == (num_steps < 5_000)
    assert "text" in learning(["bal dem fin"] * 60, **run, is_cut=False).describe().partition("what helps most")[2]
    assert "what helps most" not in learning(REFERENCES, **run | {"score": 99.0}).describe()


def test_a_run_that_was_cut_names_length_and_time_though_its_score_is_as_expected():
    longer = [f"{text} {text}" for text in REFERENCES]
    run = {"num_steps": 1_368, "num_planned": 4_410, "minutes_for_all": 190, "continue_with": "max_minutes=190"}
    run |= {"expected": (16.0, 36.0), "expected_of_all": (20.0, 44.0), "score": 26.3}
    *_, length, time = learning(longer, **run).describe().split("; ")
    assert length == "translations are 2.0 times as long as their references"
    assert "about 190 minutes" in time and "--set training.max_minutes=190" in time


def test_a_score_is_compared_with_what_is_expected_of_its_metric(monkeypatch):
    """Also if so few updates were made that nothing is expected of them."""
    monkeypatch.setattr(finish, "find_facts", lambda *_: None)
    monkeypatch.setattr(finish, "forecast", lambda _, tokens=None: Forecast("bleu", 13, 32) if tokens is None else None)
    corpus = {"source": "en", "target": "it", "train": {"builtin": "phrasebook-en-it", "split": "train"}}
    config = parse_config({"name": "x", "corpus": corpus | {"valid": {"fraction": 0.1}}}, "x")
    run = SimpleNamespace(config=config, data=SimpleNamespace(corpora={"train": None}))
    scores = SimpleNamespace(scores={name: SimpleNamespace(score=score) for name, score in (("bleu", 3), ("chrf", 9))})
    ending = Ending(
        state=RunState(), stopped_because="max_steps 1", num_parameters=1, length=Length(100, 10, 100, 0, 0)
    )
    signs = finish._expected(run, ending, scores)
    assert (signs["metric"], signs["score"], signs["expected_of_all"]) == ("bleu", 3, (13, 32))
