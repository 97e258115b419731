import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, STATUS_NAMES, clean, drop_repeated

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def status(source, target, languages=("en", "de"), **filters):
    return STATUS_NAMES[clean([(1, source, target)], FilterConfig(**filters), languages).statuses[0]]


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6))
def test_a_kept_pair_is_as_read_and_independent_of_others(pairs):
    block = clean([(number, *pair) for number, pair in enumerate(pairs)], FilterConfig(), ("en", "de"))
    assert block.statuses.tolist() == [STATUS_CODES[status(*pair)] for pair in pairs]
    tidy = [tuple(" ".join(text.split()) for text in pair) for pair in pairs]
    kept = [pair for pair, code in zip(tidy, block.statuses, strict=True) if code == KEPT]
    assert list(zip(*block.kept_texts(), strict=True)) == kept
    assert all(source and target and source != target for source, target in kept)


LONG = "It is a rather long sentence that goes on."


@pytest.mark.parametrize(
    ("reason", "source", "target", "off"),
    [
        ("garbled", "fine", "nicht\x1b[0m gut", False),
        ("garbled", "a caf\ufffd", "ein Cafe", False),
        ("garbled", "itâ€™s so", "so ist es", False),
        ("identical", "Berlin", "Berlin", False),
        ("max_characters", "a " * 1_500, "b " * 1_500, None),
        ("max_length_ratio", LONG, "Ja", None),
        ("wrong_language", "not at all", "这不是德语", False),
        ("wrong_language", "Two dogs are in the garden", "Deux chiens sont dans le jardin", False),
    ],
)
def test_each_filter_drops_its_pairs_and_can_be_turned_off(reason, source, target, off):
    assert status(source, target) == reason
    assert status(source, target, **{reason: off}) == "kept"


def test_only_a_text_without_letters_is_its_own_translation():
    for text in ("12", "3,5 %", "١٢", "—", "½", "👍"):
        assert status(text, text) == "kept", text
        assert status(text, text, identical=True, wrong_language=False) == "kept", text
    for text in ("12 km", "東京", "Ⅻ b", "한국", "1ª"):
        assert status(text, text, wrong_language=False) == "identical", text


def latin(text):
    """A text in UTF-8 that was read as Latin-1."""
    return text.encode().decode("latin-1")


def test_text_read_in_another_encoding_is_garbled_and_capitals_are_not():
    damaged = ["Il va à Paris", "voilà !", "à la carte", "goût", "10\u00a0000", "«Oui»", "Noël", "Über", "Ärzte", "più"]
    for text in damaged:
        assert status(latin(text), "fine", ("fr", "xx")) == "garbled", text
    good = ["Disse «AMANHÃ» e saiu da casa", "«CHÂ»", "La lettre «Â» est rare", "« Â »", "«\u00a0Â\u00a0»"]
    for text in (*good, "AMANHÃ\u00a0!", "AMANHÃ, NÃO", "CHÂ\u00a0:", *damaged):
        assert status(text, "fine", ("pt", "xx"), max_length_ratio=None) == "kept", text


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("A tab\tand a\u2028separator\x0b", "Ein\u00a0Tab", ("en", "de")),
        ("I like 北京 very much", "Ich mag Peking", ("en", "de")),
        ("Yes", "Jawohl, mein Herr, gerne", ("en", "de")),
        ("It is a déjà vu de la vie", "Es ist so", ("en", "de")),
        ("Пливе човен", "Плывёт лодка", ("uk", "ru")),
        ("Dobro došli", "Добро дошли", ("sr-Latn", "sr")),
        ("anything за не", "at all", ("klingon", "tlh")),
    ],
)
def test_good_pairs_are_kept(source, target, languages):
    assert status(source, target, languages) == "kept"


def naive(pairs, evaluated):
    seen, statuses = set(), []
    for pair in pairs:
        is_known = bool({*pair} & evaluated)
        statuses.append("duplicates" if pair in seen else "overlap" if is_known else "kept")
        seen.add(pair)
    return statuses


NUMBERS = st.integers(-3, 3)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40), st.sets(NUMBERS))
def test_filtering_together_equals_a_loop_over_the_pairs(pairs, evaluated):
    statuses = np.zeros(len(pairs), np.uint8)
    sides = [np.array([pair[side] * 7_777_777_777 for pair in pairs], np.int64) for side in (0, 1)]
    lengths = np.full((2, len(pairs)), 20)  # No side is far longer than the other.
    hashes = np.stack([*sides, sides[0] * 17 + sides[1], *lengths])
    drop_repeated(
        statuses, hashes, [(len(pairs), FilterConfig())], np.array(sorted(evaluated), np.int64) * 7_777_777_777
    )
    assert [STATUS_NAMES[code] for code in statuses] == naive(pairs, evaluated)
