import re

import pytest

from mt_cli.corpus.languages import (
    NO_CODES,
    SPACELESS,
    bleu_tokenizer,
    code_in_heading,
    is_common,
    is_known,
    marks_words,
    primary,
    words_of,
    writes_spaces,
)


def test_languages_without_spaces_are_known_by_their_script_or_else_by_the_language():
    codes = "ja zh zh-TW yue th lo km my bo zho_Hans jpn_Jpan ja-Hrkt zh-x-corp ja_JP lzh tha_Thai my-Zzzz"
    for code in codes.split():
        assert not writes_spaces(code), code
    for code in ("en", "ko", "vi", "am", "hi", "xx", "", "pt_BR", "zh-Latn", "kor_Hang", "jav_Latn", "no", "vi-Latn"):
        assert writes_spaces(code), code
    assert bleu_tokenizer("ko-Latn") == bleu_tokenizer("zh-Latn") == "13a"
    assert bleu_tokenizer("lzh") == bleu_tokenizer("yue-Hant") == "zh"
    assert marks_words("bo") and not marks_words("th")


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


def test_a_language_has_one_code_of_two_letters_if_it_has_any():
    codes = {"aym": "ay", "ay": "ay", "grn": "gn", "hau": "ha", "yor": "yo", "wol": "wo", "hch": "hch", "por_BR": "pt"}
    codes |= {"arb": "ar", "quy": "quy", "kmr_Latn": "kmr", "xqz": "xqz", "und": "und", "": ""}
    for code, expected in codes.items():
        assert primary(code) == primary(code.replace("_", "-")) == primary(code.upper()) == expected


def test_codes_of_the_registry_are_known_with_script_and_region():
    for code in ("en", "aym", "ay", "shp", "gn", "yor", "zho_Hans", "ayr_Latn", "pt-BR", "es-419", "zh-x-corp", "YOR"):
        assert is_known(code), code
    assert is_common("zho_Hans") and is_common("am") and not is_common("aym")


def test_what_is_no_language_is_no_code():
    names = ("xqz", "qq", "und", "mul", "zxx", "qaa", "en-yor", "en_test", "de_Xxxx", "english", "", "a")
    for name in (*names, *NO_CODES):
        assert not is_known(name) and not is_common(name), name


def test_words_are_composed_and_keep_their_marks():
    assert words_of("Àwo\u0323n o\u0323\u0300ro\u0323\u0300, café 2") == {"àwọn", "ọ\u0300rọ\u0300", "café"}
    assert words_of("a\u0331b a\u0331") == {"a\u0331b", "a\u0331"}


def test_a_column_is_in_the_language_that_its_name_has_beside_a_word_for_text():
    for name, code in {
        **{"en": "en", "German": "de", "sentence_por_Latn": "por_Latn", "text_en": "en", "en_text": "en"},
        **{"source-de": "de", "target.it": "it", "de-DE": "de-DE", "anything_zho_Hant": "zho_Hant"},
    }.items():
        assert code_in_heading(name) == code
    for name in ("text_id", "line_no", "input_ids", "is_valid", "to_text", "no_translation", "source_text", "title_en"):
        assert code_in_heading(name) is None, name
