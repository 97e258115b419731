import re

import pytest

from mt_cli.corpus.languages import SPACELESS, writes_spaces


@pytest.mark.parametrize("language", ["ja", "zh", "zh-TW", "yue", "th", "lo", "km", "my", "bo", "zho_Hans", "jpn_Jpan"])
def test_languages_without_spaces_are_known(language):
    assert not writes_spaces(language)


@pytest.mark.parametrize(
    "language", ["en", "ko", "vi", "am", "hi", "xx", "", "pt_BR", "zh-Latn", "kor_Hang", "jav_Latn"]
)
def test_all_other_languages_have_spaces(language):
    assert writes_spaces(language)


def test_scripts_without_spaces_are_told_from_those_with(flores):
    for language, lines in flores.items():
        letters = [character for line in lines for character in line if character.isalpha()]
        share = sum(bool(re.match(f"[{SPACELESS}]", letter)) for letter in letters) / len(letters)
        assert share > 0.9 if not writes_spaces(language) else share < 0.01, language


@pytest.mark.parametrize(
    ("characters", "is_in"), [("々ー〇ㄅ。、（！１ｱ་།។။ๆ𠮷", True), ("aＡｚ한ㅏﾡकதሀאءΩя0-. \u0301", False)]
)
def test_marks_belong_to_scripts_and_full_width_letters_to_none(characters, is_in):
    assert all(bool(re.match(f"[{SPACELESS}]", character)) is is_in for character in characters)
