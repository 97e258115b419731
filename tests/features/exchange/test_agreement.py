import math
from pathlib import Path

import pytest

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import MtError
from mt_cli.features.exchange.agreement import compare

OUTPUT = Path("served")
SOURCES = [[5, 6, 7], [6], [7, 8], [8, 9], [9]]


class Engine:
    """Translates each source into itself, or as `others` say; `log_probs` has the probabilities of tokens."""

    def __init__(self, others=None, log_probs=None):
        self.others, self.log_probs = others or {}, log_probs or {}

    def search(self, sources, decoding, num_best=1, prefixes=()):
        return [[Hypothesis(self.others.get(tuple(ids), list(ids)), 0.0, None)] for ids in sources]

    def force_decode(self, pairs):
        return [
            ForcedDecoding([self.log_probs.get(each, -0.1) for each in [*target, "end"]], None) for _, target in pairs
        ]


def agreement(ours, theirs, sources=SOURCES):
    return compare(ours, theirs, sources, DecodingConfig())


def test_equal_engines_agree():
    found = agreement(Engine(), Engine())
    found.check(OUTPUT)
    assert (found.num_equal, found.num_sentences, found.gaps, found.difference) == (5, 5, (), 0)
    assert found.describe().startswith("5 of 5 sentences are translated as by mt (greedy); log-probabilities differ")


@pytest.mark.parametrize("translation", [[5, 3, 7], [5], [], [5, 6, 7, 3]])
@pytest.mark.parametrize("number_format", ["float32", "float16", "bfloat16", "int8"])
def test_one_translation_that_differs_is_refused_unless_two_tokens_are_equally_likely(translation, number_format):
    """A wrong, an early and a late end, and a wrong token; what comes before is equal."""
    place = next((n for n, (a, b) in enumerate(zip(translation, SOURCES[0], strict=False)) if a != b), None)
    wrong = "end" if place is None and len(translation) < 3 else 3
    theirs = Engine({(5, 6, 7): translation})
    tie = agreement(Engine(log_probs={wrong: -0.101, "end": -0.101 if wrong == "end" else -0.1}), theirs)
    assert (tie.num_equal, tie.num_ties(number_format)) == (4, 1)
    (gap,) = tie.gaps
    assert abs(gap) < 0.002
    other = agreement(Engine(log_probs={wrong: -5.0}), Engine({(5, 6, 7): translation}, {wrong: -5.0}))
    assert other.difference == 0 and other.gaps == (pytest.approx(4.9),)
    likelier = agreement(Engine(log_probs={wrong: 4.8}), Engine({(5, 6, 7): translation}, {wrong: 4.8}))
    assert likelier.num_ties(number_format) == 0, "our search did not allow this token"
    if number_format == "int8":
        other.check(OUTPUT, number_format)
        assert "4 of 5" in other.describe("int8") and "1 otherwise because of the rounded" in other.describe("int8")
    else:
        with pytest.raises(MtError, match=r"served: .* 1 of 5 sentences are translated otherwise.*nothing was expor"):
            other.check(OUTPUT, number_format)


def test_integers_must_agree_on_three_quarters():
    engine = Engine(log_probs={3: -5.0})
    theirs = Engine({(5, 6, 7): [3], (6,): [3]}, {3: -5.0})
    with pytest.raises(MtError, match="2 of 5 sentences"):
        agreement(engine, theirs).check(OUTPUT, "int8")


@pytest.mark.parametrize("value", [-9.0, -math.inf, math.nan])
def test_other_probabilities_of_equal_translations_are_refused(value):
    found = agreement(Engine(), Engine(log_probs={5: value}))
    for number_format in ("float32", "float16", "bfloat16", "int8", "int16"):
        with pytest.raises(MtError, match="log-probabilities differ by"):
            found.check(OUTPUT, number_format)
