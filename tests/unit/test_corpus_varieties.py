import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.varieties import (
    Varieties,
    chosen_varieties,
    is_same_variety,
    is_variety_of,
    notes_on_mixtures,
    plain_code,
    varieties_for,
    variety_of,
)
from mt_cli.errors import CorpusError

CODES = [
    *("zh", "zh_Hant", "zh-TW", "zh-HK", "zh-MO", "zh-CN", "zh-SG", "zh-CHT", "yue", "sr", "sr_Latn", "sr-Latn-RS"),
    *("sr_RS@latin", "sr-ME", "pt", "pt-BR", "por_PT", "en", "EN-us", "en-GB", "eng_AU", "ko", "kor_Hang", "ur"),
    *("uz_Cyrl", "uz", "az", "hch", "xx", "ca-valencia", "en-x-corp"),
]


@pytest.mark.parametrize(
    ("code", "codes", "expected"),
    [
        ("en", "it en-US", "en-US"),
        ("en", "en-US en it", "en"),
        ("en", "en-US en-GB", "en-US en-GB"),
        ("en_GB", "en-US en-GB", "en-GB"),
        ("EN_au", "en-US en", "en"),
        ("EN_au", "en-US en-GB", "en-US en-GB"),
        ("en_AU", "en-US", "en-US"),
        ("eng_GB", "en-US EN_gb", "EN_gb"),
        ("fr", "fre-FR", "fre-FR"),
        ("pt", "pt-PT pt-BR", "pt-PT pt-BR"),
        ("pt_BR", "pt-PT pt-BR", "pt-BR"),
        ("zh_Hant", "zh-CN zh-TW", "zh-TW"),
        ("zh_Hant", "zh-CN", ""),
        ("zh_Hant", "zh-TW zh-HK", "zh-TW zh-HK"),
        ("zh_Hant_TW", "zh-Hant zh-TW zh-HK", "zh-TW"),
        ("zh-TW", "zh zh-CN zh-Hant", "zh-Hant"),
        ("zho_Hans", "zh-TW zh", "zh"),
        ("zh", "zh-TW zh-CN", "zh-CN"),
        ("zh", "zh-TW", ""),
        ("cmn", "zh-CHS zh-CHT", "zh-CHS"),
        ("zh_Hant", "zh-CHS zh-CHT", "zh-CHT"),
        ("zh", "yue zh-yue", ""),
        ("sr_Latn", "sr-Cyrl-RS sr-Latn-RS", "sr-Latn-RS"),
        ("sr_Latn", "sr-RS", ""),
        ("sr", "sr-Latn-RS sr-Cyrl-RS", "sr-Cyrl-RS"),
        ("sr@latin", "sr sh", "sh"),
        ("kor_Hang", "ko-KR", "ko-KR"),
        ("uz_Cyrl", "uz", ""),
        ("ca", "ca-valencia", "ca-valencia"),
        ("hch", "hch-MX", "hch-MX"),
        ("english", "en English", "English"),
        ("e", "en", ""),
        ("fr", "en it", ""),
    ],
)  # fmt: skip
def test_the_nearest_variety_of_the_same_script_is_meant(code, codes, expected):
    assert varieties_for(code, codes.split()) == expected.split()


@given(st.sampled_from(CODES), st.lists(st.sampled_from(CODES), unique=True))
def test_text_in_another_script_or_language_is_never_read(code, codes):
    wanted = variety_of(code)
    for variety in map(variety_of, varieties_for(code, codes)):
        assert (variety.language, variety.script) == (wanted.language, wanted.script)


@given(st.sampled_from(CODES), st.permutations(CODES))
def test_the_choice_does_not_depend_on_the_order_of_a_file(code, codes):
    assert variety_of(varieties_for(code, codes)[0]) == variety_of(code), "the whole code comes first"
    others = [other for other in codes if variety_of(other) != variety_of(code)]
    assert set(varieties_for(code, others)) == set(varieties_for(code, sorted(others)))


@given(st.sampled_from(CODES))
def test_the_plain_code_of_the_only_variety_finds_it(code):
    assert varieties_for(plain_code(code), [code]) == [code]


SAME = "en eng, en EN, eng_Latn en, zh cmn, pt_BR por-br, ru_Cyrl rus, sr srp_Cyrl, zh-CHT zh_Hant, xx xx"
SAME += ", ca@valencia ca-valencia, sr_RS.UTF-8@latin sr-Latn-RS"
DIFFERENT = "sr_Cyrl sr_Latn, pt_BR pt_PT, zh_Hans zh_Hant, en-GB en-US, nb nn, en en_GB, en en-x-plain, xx yy, a b"
DIFFERENT += ", source target, en xx"
TEXT_OF = "en-US en, en en-US, zh-TW zh_Hant, sr sr_Cyrl, eng_Latn en-GB"
NO_TEXT_OF = "en-US en-GB, zh-TW zh_Hans, zh zh_Hant, sr sr_Latn, a b"


def pairs_in(text):
    return [pair.split() for pair in text.split(", ")]


def test_one_variety_may_have_several_spellings():
    for code, spelling in pairs_in(SAME):
        assert is_same_variety(code, spelling), code
        assert is_variety_of(code, spelling) and is_variety_of(spelling, code), code
    for code, second_code in pairs_in(DIFFERENT):
        assert not is_same_variety(code, second_code), code


def test_text_of_a_variety_is_text_of_its_language_unless_script_or_region_differ():
    for name, language in pairs_in(TEXT_OF):
        assert is_variety_of(name, language), (name, language)
    for name, language in pairs_in(NO_TEXT_OF):
        assert not is_variety_of(name, language), (name, language)


def counted(**counts):
    varieties = Varieties()
    for code, number in counts.items():
        varieties.add(code, number)
    return varieties


def test_spellings_of_one_variety_are_counted_together():
    assert counted(pt_BR=2, por_BR=3, PT_br=1, pt=1).counts == {"pt_BR": 6, "pt": 1}


@pytest.mark.parametrize(
    ("languages", "cause"),
    [
        (("en", "pt"), r"`pt` fits several varieties.*: pt_PT \(1,200 segments\), pt_BR \(7\);"),
        (("en", "zh_Hant"), r"no segment is in `zh_Hant`; .* en \(1 segment\), pt_PT \(1,200\), pt_BR"),
        (("en_GB", "en_AU"), "`en_GB` and `en_AU` are both read from en"),
    ],
)
def test_several_varieties_are_never_mixed_nor_one_text_both_sides(languages, cause):
    with pytest.raises(CorpusError, match=f"^m: {cause}"):
        chosen_varieties(counted(en=1, pt_PT=1_200, pt_BR=7), languages, "m")


def test_a_variety_that_is_not_read_is_named_and_an_only_one_is_silent():
    chosen = chosen_varieties(counted(en_US=3, sr_Latn=1, sr_Cyrl=2), ("en", "sr"), "m")
    assert chosen.notes == ["m: `sr` is read from sr_Cyrl (2 segments); not read: sr_Latn (1 segment)"]
    chosen = chosen_varieties(counted(en_US=3, pt_PT=1), ("en", "pt_BR"), "m")
    assert chosen.notes == ["m: has no `pt_BR`; pt_PT (1 segment) is read instead"]


def test_one_language_from_two_territories_in_two_corpora_is_noted():
    readings = [("a", {"en": "en-US", "pt": "pt-BR"}), ("b", {"en": "en", "pt": "pt-PT"})]
    assert [*notes_on_mixtures(readings)] == ["`pt` is pt-BR in a, and pt-PT in b"]
    assert not [*notes_on_mixtures(readings[:1])]
