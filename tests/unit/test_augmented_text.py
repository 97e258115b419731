"""Laws of the changes that make training pairs resemble what people type."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.corpora import AugmentConfig
from mt_cli.corpus.augmented_text import (
    NUM_CHANCES,
    TextAugmentation,
    insert,
    is_in_capitals,
    lower,
    title,
    upper,
    with_typos,
    without_final_marks,
)
from mt_cli.corpus.protected_text import RESERVED

SPAN = RESERVED[0]


@pytest.mark.parametrize(
    ("change", "text", "language", "expected"),
    [
        (upper, "izmir ılık", "tur_Latn", "İZMİR ILIK"),
        (upper, "Ο Άρης λέει: ΐ", "el", "Ο ΑΡΗΣ ΛΕΕΙ: Ϊ"),
        (upper, f"die Straße {SPAN} 日本語 კარგი", "de", f"DIE STRASSE {SPAN} 日本語 კარგი"),
        (title, f"the dog's mcDonald l'amico {SPAN}3rd (no)", "en", f"The Dog's McDonald L'amico {SPAN}3rd (No)"),
        (title, "ọ̀rẹ́ ag̃a e\u0301cole in\xadter", "yo", "Ọ̀rẹ́ Ag̃a E\u0301cole In\xadter"),
        (lower, "ISPARTA ILIK BİR YER. İYİ", "tr", "Isparta ılık bir yer. İyi"),
        (lower, "ΚΑΛΟΣ ΟΔΟΣ ΠΟΛΗΣ", "el", "Καλος οδος πολης"),
        (lower, f"12 OLD DOCTORS {SPAN} 3. {SPAN} GO", "en", f"12 old doctors {SPAN} 3. {SPAN} Go"),
    ],
)
def test_letters_change_as_in_the_language_and_spans_stay(change, text, language, expected):
    assert change(text, language) == expected


@given(st.text(max_size=40) | st.text("AİIßΣÉ. !a", max_size=40), st.sampled_from(["en", "tr"]))
def test_small_letters_have_the_places_of_the_capitals(text, language):
    small = lower(text, language)
    assert len(small) == len(text)
    assert not is_in_capitals(small) or small == text
    if is_in_capitals(text) and not {*"İIıẞ"} & {*text}:
        assert upper(small, language) == text


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("Really?!", "你好吗？"), ("Really", "你好吗")),
        (("A dog.", "Un cane"), ("A dog.", "Un cane")),
        (("...", "."), ("...", ".")),
        (("No …", "No ..."), ("No", "No")),
        (("It is.", "ဖြစ်သည်။"), ("It is", "ဖြစ်သည်")),
    ],
)
def test_final_marks_leave_both_sides_or_none(pair, expected):
    assert without_final_marks(pair) == expected


def test_a_typing_error_changes_one_long_word_inside():
    random = np.random.default_rng(1)
    text = f"The {SPAN} quick brown foxes are jumping over 12345 houses"
    for _ in range(200):
        typed = with_typos(text, random)
        words, before = typed.split(), text.split()
        assert typed != text and [word[0] for word in words] == [word[0] for word in before]
        changed = [(old, new) for new, old in zip(words, before, strict=True) if new != old]
        assert all(len(old) >= 4 and old.isalpha() and abs(len(new) - len(old)) <= 1 for old, new in changed)
    for text in ("", "a an the", "12345 67890", "我喜欢北京的天气", SPAN * 9):
        assert with_typos(text, random) == text


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_word_is_inserted_at_about_the_same_place(place):
    source, target = insert(("a b c d", "e f g h i j k l"), "Xy Z", place)
    assert (source.replace("Xy Z ", ""), target.replace("Xy Z ", "")) == ("a b c d", "e f g h i j k l")
    places = [text.split().index("Xy") / length for text, length in ((source, 4), (target, 8))]
    assert places[0] == pytest.approx(places[1], abs=0.25)
    assert insert(("The cat sat", "猫坐着。"), "Anna", place) == ("The cat sat", "猫坐着。"), "no spaces"


def test_shares_are_shares_of_the_pairs():
    config = AugmentConfig(upper_case=0.1, title_case=0.2, typos=0.1, no_final_punctuation=0.3)
    augmentation = TextAugmentation(config, 0.1, ["Anna"])
    random = np.random.default_rng(1)
    chances = random.random((NUM_CHANCES, 3_000))
    pair = ("The house is old.", "La casa è vecchia.")
    pairs = [augmentation.change(pair, row, ("en", "it"), random) for row in chances.T.tolist()]
    assert [changed != pair for changed in pairs] == augmentation.is_changed(chances).tolist()

    def share(is_changed):
        return np.mean([is_changed(target) for _, target in pairs])

    assert share(str.isupper) == pytest.approx(0.1, abs=0.02)
    assert share(lambda target: "Casa" in target) == pytest.approx(0.2, abs=0.02)
    assert share(lambda target: not target.endswith(".")) == pytest.approx(0.3, abs=0.03)
    assert share(lambda target: "anna" in target.lower()) == pytest.approx(0.1, abs=0.02)
    assert share(lambda target: target.lower().removesuffix(".") == "la casa è vecchia") > 0.85
    with pytest.raises(ValueError, match="title_case"):
        AugmentConfig(upper_case=0.6, title_case=0.5)
