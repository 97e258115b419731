import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, STATUS_NAMES, clean, drop_repeated
from mt_cli.corpus.languages import COMMON_WORDS, scripts_of

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def status(source, target, languages=("en", "de"), **filters):
    return STATUS_NAMES[clean([(1, source, target)], FilterConfig(**filters), languages).statuses[0]]


@settings(max_examples=30)
@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=30))
def test_a_kept_pair_is_the_pair_that_was_read_with_normalised_spaces(pairs):
    block = clean([(number, *pair) for number, pair in enumerate(pairs)], FilterConfig(), ("en", "zh"))
    tidy = [tuple(" ".join(text.split()) for text in pair) for pair in pairs]
    kept = [pair for pair, code in zip(tidy, block.statuses, strict=True) if code == KEPT]
    assert list(zip(*block.kept_texts(), strict=True)) == kept
    assert all(source and target and source != target for source, target in kept)


@settings(max_examples=30)
@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=12))
def test_the_status_of_a_pair_does_not_depend_on_other_pairs(pairs):
    rows = [(number, *pair) for number, pair in enumerate(pairs)]
    together = clean(rows, FilterConfig(), ("en", "de")).statuses.tolist()
    assert together == [STATUS_CODES[status(*pair)] for pair in pairs]


@pytest.mark.parametrize(
    ("reason", "source", "target", "off"),
    [
        ("control_characters", "a NUL \0 byte", "ein Byte", {"control_characters": False}),
        ("control_characters", "fine", "nicht\x1b[0m gut", {"control_characters": False}),
        ("garbled", "a caf\ufffd", "ein Cafe", {"garbled": False}),
        ("garbled", "coffee", "ein CafÃ©", {"garbled": False}),
        ("garbled", "itâ€™s so", "so ist es", {"garbled": False}),
        ("identical", "Berlin", "Berlin", {"identical": False}),
        ("max_characters", "a " * 1_500, "b " * 1_500, {"max_characters": None}),
        ("max_length_ratio", "It is a rather long sentence that goes on.", "Ja", {"max_length_ratio": None}),
        ("min_script_share", "Это совсем не английский", "Das ist gut so", {"min_script_share": None}),
        ("min_script_share", "not at all", "这不是德语", {"min_script_share": None}),
        ("wrong_language", "Der Hund und die Katze", "Der Hund und die Katze schlafen", {"wrong_language": False}),
        ("wrong_language", "Two dogs are in the garden", "Deux chiens sont dans le jardin", {"wrong_language": False}),
    ],
)
def test_each_filter_drops_its_pairs_and_can_be_turned_off(reason, source, target, off):
    assert status(source, target) == reason
    assert status(source, target, **off) == "kept"


@pytest.mark.parametrize("text", ["12", "12:30", "3,5 %", "١٢", "१२", "—", "½", "(1)", "👍", "2024-05-06"])
def test_a_text_without_letters_may_be_its_own_translation(text):
    assert status(text, text) == "kept"
    assert status(text, text, identical=True, min_script_share=None) == "kept"


@pytest.mark.parametrize("text", ["12 km", "Berlin", "東京", "Ⅻ b", "한국", "كتاب", "1ª"])
def test_a_text_with_letters_of_any_script_is_no_translation_of_itself(text):
    assert status(text, text, min_script_share=None) == "identical"


@pytest.mark.parametrize(
    ("source", "target", "languages"),
    [
        ("A tab\tand a\u2028separator\x0b", "Ein\u00a0Tab", ("en", "de")),
        ("São João, Ångström & Õ", "Straße, Ñandú", ("pt", "de")),
        ("I like 北京 very much", "Ich mag Peking", ("en", "de")),
        ("Yes", "Jawohl, mein Herr, gerne", ("en", "de")),
        ("12:30", "12.30 ώρα", ("ru", "el")),
        ("Gå hjem", "Geh heim", ("nb", "de")),
        ("It is a déjà vu de la vie", "Es ist so", ("en", "de")),
        ("Пливе човен", "Плывёт лодка", ("uk", "ru")),
        ("Dobro došli", "Добро дошли", ("sr-Latn", "sr")),
        ("anything за не", "at all", ("klingon", "tlh")),
        ("日本語のテキスト", "한국어 텍스트", ("ja", "ko")),
    ],
)
def test_good_pairs_are_kept(source, target, languages):
    assert status(source, target, languages) == "kept"


def test_the_first_filter_counts():
    assert status("", "\0") == "blank_source"
    assert status("\0 Ã©", "\0 Ã©") == "control_characters"
    assert status("Ã© Ã©", "Ã© Ã©") == "garbled"


def test_every_filter_has_a_status_with_its_name():
    assert set(FilterConfig.model_fields) <= set(STATUS_NAMES)
    filters = [reason for reason in STATUS_NAMES if reason in FilterConfig.model_fields]
    assert filters == list(FilterConfig.model_fields)


def test_languages_with_common_words_have_a_script():
    for code, words in COMMON_WORDS.items():
        assert len(words) >= 20, code
        assert scripts_of(code) is not None
    assert scripts_of("zh-Latn") == scripts_of("eng_Latn") == ("Latin",)
    assert scripts_of("zho_Hans") == scripts_of("zh") == ("Han",)
    assert scripts_of("zh-Zzzz") is scripts_of("xx") is None
    assert scripts_of("pt_BR") == scripts_of("pt")


def naive(pairs, evaluated_sources, evaluated_targets, limit):
    seen, targets, statuses = set(), {}, []
    for source, target in pairs:
        if (source, target) in seen:
            statuses.append("duplicates")
            continue
        seen.add((source, target))
        targets[source] = targets.get(source, 0) + 1
        if targets[source] > limit:
            statuses.append("max_targets_per_source")
        else:
            statuses.append("overlap" if source in evaluated_sources or target in evaluated_targets else "kept")
    return statuses


NUMBERS = st.integers(-3, 3)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40), st.sets(NUMBERS), st.sets(NUMBERS), st.integers(1, 3))
def test_filtering_together_equals_a_loop_over_the_pairs(pairs, evaluated_sources, evaluated_targets, limit):
    statuses = np.zeros(len(pairs), np.uint8)
    hashes = [np.array([pair[side] * 7_777_777_777 for pair in pairs], np.int64) for side in (0, 1)]
    evaluated = [np.array(sorted(side), np.int64) * 7_777_777_777 for side in (evaluated_sources, evaluated_targets)]
    drop_repeated(statuses, hashes, [(len(pairs), FilterConfig(max_targets_per_source=limit))], evaluated)
    assert [STATUS_NAMES[code] for code in statuses] == naive(pairs, evaluated_sources, evaluated_targets, limit)
