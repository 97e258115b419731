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
    ("text", "language", "expected"),
    [
        ("It is l'amico di Zoë.", "it", "IT IS L'AMICO DI ZOË."),
        ("izmir ılık", "tr", "İZMİR ILIK"),
        ("izmir", "tur_Latn", "İZMİR"),
        ("die Straße", "de", "DIE STRASSE"),
        ("Ο Άρης λέει: ΐ", "el", "Ο ΑΡΗΣ ΛΕΕΙ: Ϊ"),
        ("კარგი day", "ka", "კარგი DAY"),
        (f"see {SPAN} now", "en", f"SEE {SPAN} NOW"),
        ("日本語 नमस्ते", "ja", "日本語 नमस्ते"),
    ],
)
def test_capitals_are_those_of_the_language_and_spans_stay(text, language, expected):
    assert upper(text, language) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("the dog's mcDonald l'amico 3rd (no)", "en", "The Dog's McDonald L'amico 3rd (No)"),
        ("iyi izmir", "tr", "İyi İzmir"),
        (f"see {SPAN}here", "en", f"See {SPAN}Here"),
        ("ọ̀rẹ́ ag̃a e\u0301cole in\xadter", "yo", "Ọ̀rẹ́ Ag̃a E\u0301cole In\xadter"),
    ],
)
def test_in_title_case_each_word_begins_with_a_capital_letter(text, language, expected):
    assert title(text, language) == expected


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("A dog.", "Un cane."), ("A dog", "Un cane")),
        (("Really?!", "你好吗？"), ("Really", "你好吗")),
        (("A dog.", "Un cane"), ("A dog.", "Un cane")),
        (("...", "."), ("...", ".")),
        (("No …", "No ..."), ("No", "No")),
        (("It is.", "ነው።"), ("It is", "ነው")),
        (("It is.", "ဖြစ်သည်။"), ("It is", "ဖြစ်သည်")),
    ],
)
def test_final_marks_leave_both_sides_or_none(pair, expected):
    assert without_final_marks(pair) == expected


def test_a_typing_error_changes_a_long_word_and_never_its_first_letter_or_a_span():
    random = np.random.default_rng(1)
    text = f"The {SPAN} quick brown foxes are jumping over 12345 houses"
    for _ in range(500):
        typed = with_typos(text, random)
        words, before = typed.split(), text.split()
        assert typed != text and [word[0] for word in words] == [word[0] for word in before]
        different = [old for new, old in zip(words, before, strict=True) if new != old]
        assert all(len(word) >= 4 and word.isalpha() for word in different)
        assert all(abs(len(new) - len(old)) <= 1 for new, old in zip(words, before, strict=True))


@pytest.mark.parametrize("text", ["", "a an the", "12345 67890", "我喜欢北京的天气", SPAN * 9])
def test_text_without_long_words_gets_no_typing_error(text):
    assert with_typos(text, np.random.default_rng(1)) == text


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_word_is_inserted_at_about_the_same_place(place):
    source, target = insert(("a b c d", "e f g h i j k l"), "Xy Z", place)
    assert (source.replace("Xy Z ", ""), target.replace("Xy Z ", "")) == ("a b c d", "e f g h i j k l")
    places = [text.split().index("Xy") / length for text, length in ((source, 4), (target, 8))]
    assert places[0] == pytest.approx(places[1], abs=0.25)


def test_no_word_is_inserted_in_a_script_without_spaces():
    assert insert(("The cat sat", "猫坐着。"), "Anna", 0.3) == ("The cat sat", "猫坐着。")


def test_shares_are_shares_of_the_pairs_and_a_pair_that_is_not_chosen_stays():
    augmentation = TextAugmentation(
        AugmentConfig(upper_case=0.1, title_case=0.2, typos=0.1, no_final_punctuation=0.3), 0.1, ["Anna"]
    )
    random = np.random.default_rng(1)
    chances = random.random((NUM_CHANCES, 5_000))
    pair = ("The house is old.", "La casa è vecchia.")
    pairs = [augmentation.change(pair, row, ("en", "it"), random) for row in chances.T.tolist()]
    assert [changed != pair for changed in pairs] == augmentation.is_changed(chances).tolist()

    def share(is_changed):
        return np.mean([is_changed(changed) for changed in pairs])

    assert share(lambda changed: changed[1].isupper()) == pytest.approx(0.1, abs=0.02)
    assert share(lambda changed: "Casa" in changed[1]) == pytest.approx(0.2, abs=0.02)
    assert share(lambda changed: not changed[1].endswith(".")) == pytest.approx(0.3, abs=0.02)
    assert share(lambda changed: "anna" in changed[1].lower()) == pytest.approx(0.1, abs=0.02)
    assert share(lambda changed: changed[1].lower() in ("la casa è vecchia.", "la casa è vecchia")) > 0.85


def test_two_cases_of_one_pair_are_refused():
    with pytest.raises(ValueError, match="sum of at most 1"):
        AugmentConfig(upper_case=0.6, title_case=0.5)


@given(st.text(max_size=40) | st.text("AİIßΣÉ. !a", max_size=40), st.sampled_from(["en", "tr"]))
def test_small_letters_have_the_places_of_the_capitals(text, language):
    small = lower(text, language)
    assert len(small) == len(text)
    assert not is_in_capitals(small) or small == text
    if is_in_capitals(text) and not {*"İIıẞ"} & {*text}:
        assert upper(small, language) == text


def test_small_letters_are_those_of_the_language_and_sentences_begin_with_a_capital():
    assert lower("ISPARTA ILIK BİR YER. İYİ", "tr") == "Isparta ılık bir yer. İyi"
    assert lower("12 OLD DOCTORS. 3 MORE. AND", "en") == "12 old doctors. 3 more. And"
    assert lower("ΚΑΛΟΣ ΟΔΟΣ ΠΟΛΗΣ", "el") == "Καλος οδος πολης"
    assert lower(f"SEE {SPAN} NOW. {SPAN} GO", "en") == f"See {SPAN} now. {SPAN} Go"
