import re

import pytest

from mt_cli.corpus.languages import (
    SPACELESS,
    bleu_tokenizer,
    language_of_texts,
    marks_words,
    primary,
    writes_spaces,
)


@pytest.mark.parametrize("language", ["ja", "zh", "zh-TW", "yue", "th", "lo", "km", "my", "bo", "zho_Hans", "jpn_Jpan"])
def test_languages_without_spaces_are_known(language):
    assert not writes_spaces(language)


@pytest.mark.parametrize(
    "language", ["en", "ko", "vi", "am", "hi", "xx", "", "pt_BR", "zh-Latn", "kor_Hang", "jav_Latn"]
)
def test_all_other_languages_have_spaces(language):
    assert writes_spaces(language)


def test_scripts_without_spaces_are_told_from_those_with(texts):
    for language, lines in texts.items():
        letters = [character for line in lines for character in line if character.isalpha()]
        share = sum(bool(re.match(f"[{SPACELESS}]", letter)) for letter in letters) / len(letters)
        assert share > 0.9 if not writes_spaces(language) else share < 0.01, language


@pytest.mark.parametrize(
    ("characters", "is_in"), [("々ー〇ㄅ。、（！１ｱ་།។။ๆ𠮷", True), ("aＡｚ한ㅏﾡकதሀאءΩя0-. \u0301", False)]
)
def test_marks_belong_to_scripts_and_full_width_letters_to_none(characters, is_in):
    assert all(bool(re.match(f"[{SPACELESS}]", character)) is is_in for character in characters)


def test_a_script_decides_where_it_is_known_and_else_the_language_does():
    for code in ("zh", "ja-Hrkt", "zh-x-corp", "ja_JP", "lzh", "zho_Hans", "tha_Thai", "my-Zzzz"):
        assert not writes_spaces(code), code
    for code in ("zh-Latn", "ja-Latn", "en", "ko", "xx", "", "no", "vi-Latn"):
        assert writes_spaces(code), code
    assert bleu_tokenizer("ko-Latn") == bleu_tokenizer("zh-Latn") == "13a"
    assert bleu_tokenizer("lzh") == bleu_tokenizer("yue-Hant") == "zh"
    assert marks_words("bo") and not marks_words("th")


def test_the_language_of_real_text_is_recognised_or_unknown_but_never_wrong(texts):
    found = {code: language_of_texts(lines) for code, lines in texts.items()}
    assert {code: each for code, each in found.items() if each not in (None, primary(code))} == {}
    assert sum(each is not None for each in found.values()) > 12
