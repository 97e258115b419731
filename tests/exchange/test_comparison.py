import math
from pathlib import Path

import pytest

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding, Hypothesis
from mt_cli.errors import MtError
from mt_cli.exchange.comparison import compare

OUTPUT = Path("served")
SOURCES = [[5, 6, 7], [6], [7, 8], [8, 9], [9]]


class Engine:
    """Translates each source into itself, or as `translations` say; `log_probs` has the probabilities of tokens."""

    def __init__(self, translations=None, log_probs=None):
        self.translations, self.log_probs = translations or {}, log_probs or {}

    def search(self, sentences, decoding, num_best=1):
        return [[Hypothesis(self.translations.get(tuple(ids), list(ids)), 0.0)] for ids, *_ in sentences]

    def force_decode(self, pairs):
        return [ForcedDecoding([self.log_probs.get(token, -0.1) for token in [*ids, "end"]], None) for _, ids in pairs]


def agreement(ours, theirs):
    return compare(ours, theirs, SOURCES, DecodingConfig())


@pytest.mark.parametrize(("translation", "wrong"), [([5, 3, 7], 3), ([5], "end"), ([], "end"), ([5, 6, 7, 3], 3)])
@pytest.mark.parametrize("number_format", ["float32", "bfloat16", "int8"])
def test_another_translation_is_refused_unless_tokens_are_equally_likely(translation, wrong, number_format):
    """A wrong token, early ends and a late end; what comes before is equal. Integers agree on three quarters."""
    translations = {(5, 6, 7): translation}
    tie = agreement(Engine(log_probs={wrong: -0.101}), Engine(translations))
    assert (tie.num_equal, tie.num_ties(number_format)) == (4, 1) and abs(tie.gaps[0]) < 0.002
    likelier = agreement(Engine(log_probs={wrong: 4.8}), Engine(translations, {wrong: 4.8}))
    assert likelier.num_ties(number_format) == 0, "our search did not allow this token"
    unlikely = agreement(Engine(log_probs={wrong: -5.0}), Engine(translations, {wrong: -5.0}))
    assert unlikely.difference == 0 and unlikely.gaps == (pytest.approx(4.9),)
    if number_format == "int8":
        unlikely.check(OUTPUT, number_format)
        assert unlikely.describe("int8").startswith("4 of 5")
        unlikely = agreement(Engine(log_probs={3: -5.0}), Engine({(5, 6, 7): [3], (6,): [3]}, {3: -5.0}))
    with pytest.raises(MtError, match=r"served: .* [12] of 5 "):
        unlikely.check(OUTPUT, number_format)


def test_other_translations_after_ties_are_named_and_unlike_ones_refused():
    translations = {tuple(ids): [3, *ids] for ids in SOURCES}
    ties = agreement(Engine(), Engine(translations))
    ties.check(OUTPUT, "int8")
    assert ties.describe("int8").startswith("WARNING: only 0 of 5 sentences (0%)") and "score it" in ties.describe(
        "int8"
    )
    translations = {tuple(ids): [3, 4] for ids in SOURCES}
    with pytest.raises(MtError, match=r"served: .* 5 of 5 .* 0% of their tokens"):
        agreement(Engine(), Engine(translations)).check(OUTPUT, "int8")


@pytest.mark.parametrize("value", [-9.0, -math.inf, math.nan])
def test_other_probabilities_of_equal_translations_are_refused(value):
    result = agreement(Engine(), Engine(log_probs={5: value}))
    for number_format in ("float32", "float16", "bfloat16", "int8", "int16"):
        with pytest.raises(MtError, match="served"):
            result.check(OUTPUT, number_format)
