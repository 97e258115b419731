import random
from types import SimpleNamespace

import numpy as np
import pytest

from mt_cli.advice.correction_check import Direction, check_corrections
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.corrections import Correction
from mt_cli.corpus.text_hashes import hashes_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
RANDOM = random.Random(1)
SOURCES = sorted({" ".join(RANDOM.choices(WORDS, k=5)) + "." for _ in range(300)})
LANGUAGES = "en", "xx"
CORPUS = CorpusConfig.model_validate(
    {"source": "en", "target": "xx", "train": {"file": "a.tsv"}, "valid": {"file": "b.tsv"}}
)


class Upper:
    """A translator into capitals, for which a translation is the likelier, the more of its words it shares."""

    def score(self, sources, targets, tag):
        sides = zip(sources, targets, strict=True)
        return [SimpleNamespace(log_prob=float(len({*s.upper().split()} & {*t.split()}))) for s, t in sides]


def correction(source, target, languages=LANGUAGES):
    return Correction(
        source=source, target=target, draft="DRAFT.", source_language=languages[0], target_language=languages[1]
    )


def checked(corrections, evaluation=()):
    direction = Direction(LANGUAGES, None, [(source, source.upper()) for source in SOURCES[100:]])
    kept, refused = check_corrections(corrections, [direction], CORPUS, hashes_of(evaluation, "en"), Upper())
    return [pair for direction in kept for pair in direction.pairs], refused


def pairs(items):
    return [item.pair for item in items]


GOOD = [correction(source, source.upper()) for source in SOURCES[:60]]


def test_good_corrections_are_kept_in_their_order():
    assert checked(GOOD) == (pairs(GOOD), {})


def test_a_correction_belongs_to_the_direction_of_its_variety():
    directions = [Direction(("en", code), f"<2{code}>", []) for code in ("pt_BR", "pt_PT")]
    texts = {"pt-PT": "um facto", "pt_BR": "um fato", "por": "um dois", "fr": "un deux"}
    items = [correction("one two", text, ("eng", code)) for code, text in texts.items()]
    kept, refused = check_corrections(items, directions, CORPUS, hashes_of([], "en"), Upper())
    targets = {direction.tag: [target for _, target in direction.pairs] for direction in kept}
    assert targets == {"<2pt_BR>": ["um fato", "um dois"], "<2pt_PT>": ["um facto"]}
    assert refused == {"unknown_direction": items[3:]}


@pytest.mark.parametrize(
    ("reason", "target", "languages"),
    [
        ("blank_target", "  ", LANGUAGES),
        ("identical", SOURCES[0], LANGUAGES),
        ("garbled", "UNE PAGE CRÃ©Ã©E", LANGUAGES),
        ("length_ratio", SOURCES[0].upper() + " FOUR FIVE" * 4, LANGUAGES),
        ("processed", SOURCES[0].upper().replace(".", " ."), LANGUAGES),
        ("unrelated", "ALPHA BETA GAMMA DELTA EPSILON.", LANGUAGES),
        ("unknown_direction", SOURCES[0].upper(), ("en", "fr")),
    ],
)
def test_junk_is_refused_with_its_reason(reason, target, languages):
    junk = correction(SOURCES[0], target, languages)
    kept, refused = checked([junk, *GOOD[1:]])
    assert (kept, refused) == (pairs(GOOD[1:]), {reason: [junk]})


def test_sentences_of_evaluation_sets_are_not_learned():
    kept, refused = checked(GOOD, evaluation=[SOURCES[3]])
    assert refused == {"overlap": [GOOD[3]]} and len(kept) == len(GOOD) - 1


def test_most_exchanged_targets_are_found():
    exchanged = [correction(one.source, two.target) for one, two in zip(GOOD[:20], np.roll(GOOD[:20], 7), strict=True)]
    kept, refused = checked([*exchanged, *GOOD[20:]])
    assert len(refused["unrelated"]) >= 15 and len({*pairs(GOOD[20:])} - {*kept}) <= 1


def test_the_order_of_corrections_changes_no_comparison():
    def asked(corrections):
        class Spy(Upper):
            def score(self, sources, targets, tag):
                pairs.update(zip(sources, targets, strict=True))
                return super().score(sources, targets, tag)

        pairs = set()
        check_corrections(corrections, [Direction(LANGUAGES, None, [])], CORPUS, hashes_of([], "en"), Spy())
        return pairs

    assert asked(GOOD) == asked(GOOD[::-1])


def test_varieties_of_a_language_are_one_direction():
    items = [correction(item.source, item.target, ("en_GB", "xx")) for item in GOOD]
    assert checked(items) == (pairs(items), {})


def test_a_name_or_code_may_stay_as_it_is():
    names = [correction(text, text) for text in ("OK", "CPU 2", "GitHub", "``ONE``, ``TWO``, ``THREE``, ``FOUR``")]
    assert checked([*names, *GOOD]) == (pairs([*names, *GOOD]), {})
