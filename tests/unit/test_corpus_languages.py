"""Codes of languages: scripts, spaces, and which variety in a file is meant."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.languages import (
    NO_CODES,
    SPACELESS,
    bleu_tokenizer,
    is_common,
    is_known,
    marks_words,
    primary,
    script_of,
    scripts_of,
    writes_spaces,
)
from mt_cli.corpus.rows import ReadReport
from mt_cli.corpus.varieties import (
    chosen_varieties,
    is_same_variety,
    is_variety_of,
    merged_spellings,
    nearest_variety,
    plain_code,
    variety_of,
)
from mt_cli.errors import CorpusError


def test_spaces_are_known_by_the_script_or_the_language():
    for code in ("ja", "zh", "zh-TW", "yue", "th", "bo", "zho_Hans", "ja-Hrkt", "zh-x-corp", "tha_Thai", "my-Zzzz"):
        assert not writes_spaces(code), code
    for code in ("en", "ko", "vi", "xx", "", "pt_BR", "zh-Latn", "kor_Hang", "jav_Latn", "vi-Latn"):
        assert writes_spaces(code), code
    assert bleu_tokenizer("ko-Latn") == bleu_tokenizer("zh-Latn") == "13a"
    assert bleu_tokenizer("lzh") == bleu_tokenizer("yue-Hant") == "zh"
    assert marks_words("bo") and not marks_words("th")


def test_scripts_without_spaces_are_told_from_those_with(texts):
    for language, lines in texts.items():
        letters = [character for line in lines for character in line if character.isalpha()]
        share = sum(bool(re.match(f"[{SPACELESS}]", letter)) for letter in letters) / len(letters)
        assert share > 0.9 if not writes_spaces(language) else share < 0.01, language
    for characters, is_in in (("々ー〇ㄅ。、（！１ｱ་།།។ๆ𠮷", True), ("aＡｚ한ㅏﾡकተሀأءΩя0-. \u0301", False)):
        assert all(bool(re.match(f"[{SPACELESS}]", character)) is is_in for character in characters)


def test_codes_of_the_registry_are_known_and_no_others():
    for code in ("en", "aym", "shp", "zho_Hans", "pt-BR", "es-419", "zh-x-corp", "YOR"):
        assert is_known(code), code
    assert is_common("zho_Hans") and is_common("am") and not is_common("aym")
    for name in ("xqz", "und", "mul", "qaa", "en-yor", "en_test", "de_Xxxx", "english", "", "a", *NO_CODES):
        assert not is_known(name) and not is_common(name), name


CODES = [
    *("zh", "zh_Hant", "zh-TW", "zh-HK", "zh-CN", "zh-CHT", "yue", "sr", "sr_Latn", "sr_RS@latin", "sr-ME", "pt"),
    *("pt-BR", "por_PT", "en", "EN-us", "en-GB", "ko", "kor_Hang", "uz_Cyrl", "uz", "hch", "xx", "ca-valencia"),
]


@pytest.mark.parametrize(
    ("code", "codes", "expected"),
    [
        ("en", "en-US en it", "en"),
        ("en", "en-GB en-US", "en-US"),
        ("no", "en nb-NO", "nb-NO"),
        ("quy", "en qu", "qu"),
        ("zh_Hant", "zh-CN zh-TW", "zh-TW"),
        ("zh", "zh-TW yue", ""),
        ("sr_Latn", "sr-Cyrl-RS sr-Latn-RS", "sr-Latn-RS"),
        ("english", "en English", "English"),
    ],
)
def test_the_nearest_variety_of_the_same_script_is_meant(code, codes, expected):
    assert (nearest_variety(code, codes.split()) or "") == expected


@given(st.sampled_from(CODES), st.permutations(CODES))
def test_the_choice_is_of_its_script_in_any_order(code, codes):
    assert variety_of(nearest_variety(code, codes)) == variety_of(code), "the whole code comes first"
    others = [other for other in codes if variety_of(other) != variety_of(code)]
    chosen = nearest_variety(code, others)
    if chosen:
        assert variety_of(chosen) == variety_of(nearest_variety(code, others[::-1]))
        assert (primary(chosen), script_of(chosen)) == (primary(code), script_of(code))
    assert nearest_variety(plain_code(code), [code]) == code


def test_one_variety_may_have_several_spellings():
    for code, spelling in (("en", "eng_Latn"), ("pt_BR", "por-br"), ("sr_RS.UTF-8@latin", "sr-Latn-RS")):
        assert is_same_variety(code, spelling) and is_variety_of(code, spelling), code
    for code, other in (("sr_Cyrl", "sr_Latn"), ("pt_BR", "pt_PT"), ("nb", "nn"), ("zh_Hans", "zh-TW")):
        assert not is_same_variety(code, other) and not is_variety_of(code, other), code


@pytest.mark.parametrize(
    ("languages", "cause"),
    [
        (("en", "zh_Hant"), ".*`zh_Hant`; "),
        (("en_GB", "en_AU"), "`en_GB` and `en_AU`.* en"),
    ],
)
def test_several_varieties_are_never_mixed(languages, cause):
    varieties, report = merged_spellings({"en": 1, "pt_PT": 1_000, "pt_BR": 7, "por_PT": 200}), ReadReport()
    with pytest.raises(CorpusError, match=f"^m: {cause}"):
        chosen_varieties(varieties, languages, "m", ReadReport())
    chosen_varieties(varieties, ("en", "pt"), "m", report)
    (note,) = report.notes()
    assert note.endswith("`pt` is read from pt_BR (7 segments); not read: pt_PT (1,200 segments)")


def test_scripts_of_any_language_are_known_to_filters():
    for code, expected in (("zgh", "Tifinagh"), ("ory", "Oriya"), ("chr", "Cherokee"), ("nn", "Latin")):
        assert scripts_of(code) == (expected,)
        pc.match_substring_regex(pa.array(["a"]), rf"\p{{{expected}}}")
    assert scripts_of("sr") == ("Cyrillic", "Latin") and scripts_of("sr_Latn") == ("Latin",)
    assert scripts_of("azb") is None and scripts_of("shp") is None, "not known to langcodes"
