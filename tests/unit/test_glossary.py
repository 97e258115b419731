"""Glossaries: files of other people, terms in texts, and what translations have of them."""

import csv
import io

import pytest
from formats import each_time_a_folder
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.glossary import Glossary, term_uses
from mt_cli.corpus.sentences import has_words
from mt_cli.errors import InputError

LANGUAGES = ("en", "de")
TERMS = [("brake drum", "Bremstrommel"), ("drum", "Trommel"), ("screw (long)", "Schraube; lang"), ("C++", "C++")]
WORDS = st.text("abcdeé𝛼字ก.*+?([\\|\u0301' -", min_size=1, max_size=12)


def spreadsheet(separator, header, rows=TERMS):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows([*header, *rows])
    return text.getvalue()


def tbx(version_3, rows=TERMS):
    entry, section, group = ("conceptEntry", "langSec", "termSec") if version_3 else ("termEntry", "langSet", "tig")
    status = '<termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote>'

    def side(code, *terms):
        groups = "".join(f"<{group}><term>{term}</term>{status * (term == 'Blech')}</{group}>" for term in terms)
        return f'<{section} xml:lang="{code}">{groups}</{section}>'

    entries = (f"<{entry}>{side('en-US', row[0])}{side('de', 'Blech', row[1])}</{entry}>" for row in rows)
    return f"<tbx><text><body>{''.join(entries)}</body></text></tbx>"


FILES = {
    "a.csv": spreadsheet(",", [("en", "de")]),
    "semicolons.csv": "\ufeff" + spreadsheet(";", [("English", "German", "Note")], [(*TERMS[0], "x"), *TERMS[1:]]),
    "sep.csv": "sep=;\r\n" + spreadsheet(";", [("de", "en")], [row[::-1] for row in TERMS]),
    "deepl.csv": spreadsheet(",", [], [(*row, "en", "de") for row in TERMS]),
    "a.tsv": spreadsheet("\t", [("source", "target")]),
    "2008.tbx": tbx(False),
    "2019.tbx": tbx(True),
    "de.po": "".join(f'msgid "{source}"\nmsgstr "{target}"\n\n' for source, target in TERMS),
}


@pytest.mark.parametrize("name", FILES)
def test_glossaries_of_other_programs_have_the_same_terms(tmp_path, name):
    (tmp_path / name).write_text(FILES[name], encoding="utf-8", newline="")
    glossary = Glossary.read([tmp_path / name], LANGUAGES)
    assert [(term.source, *term.targets) for term in glossary.terms] == TERMS
    assert "4 terms" in glossary.notes[0] and len(glossary.notes) == 1


def test_rows_that_are_no_terms_are_counted(tmp_path):
    rows = [
        "house\tHaus",
        "\u200fnut \u200e\t\u00a0Mut\u00adter",
        "empty\t",
        "\tleer",
        "",
        "a\tb\tc",
        "...\t...",
        "It is a house, long.\tEs ist ein Haus.",
    ]
    (tmp_path / "a.tsv").write_text("\n".join([*rows, "x " * 80 + "\ty"]), encoding="utf-8")
    glossary = Glossary.read([tmp_path / "a.tsv"], LANGUAGES)
    assert [term[:2] for term in glossary.terms] == [("house", ("Haus",)), ("nut", ("Mutter",))]
    (note,) = glossary.notes
    for count in ("2 without a translation", "1 without a source", "2 with sentences", "1 with", "line 6"):
        assert count in note


def test_several_translations_and_contradictions_are_said_once(tmp_path):
    first, second = tmp_path / "first.tsv", tmp_path / "second.tsv"
    first.write_text("drum\tTrommel|Fass\ndrum\tWalze\nnut\tMutter\n", encoding="utf-8")
    second.write_text("Drum\tTonne\nnut\tMutter\nbolt\tBolzen\n", encoding="utf-8")
    glossary = Glossary.read([first, second], LANGUAGES)
    assert [(term.source, term.targets) for term in glossary.terms] == [
        ("drum", ("Trommel", "Fass", "Walze")),
        ("nut", ("Mutter",)),
        ("bolt", ("Bolzen",)),
    ]
    several, contradicting = (note for note in glossary.notes if "`drum`" in note.lower() and "such as" not in note)
    assert "Fass" in several and "Tonne" not in several
    assert str(second) in contradicting and "nut" not in contradicting


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "\tx\n"),
        ("a.csv", '"a,b\n'),
        ("a.csv", "fr,de\nun,ein\n"),
        ("es.po", 'msgid ""\nmsgstr "Language: es\\n"\n\nmsgid "house"\nmsgstr "casa"\n'),
        ("a.tbx", tbx(True)[:-20]),
        ("a.xlsx", "x"),
    ],
)
def test_a_file_that_is_no_glossary_of_the_languages_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=name):
        Glossary.read([tmp_path / name], LANGUAGES)


def found(text, *pairs):
    return [(text[start:end], term.targets[0]) for start, end, term in Glossary.of(pairs).find(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Brake drums, BRAKE DRUM; a drum.", ["Brake drums", "BRAKE DRUM", "drum"]),
        ("The brake-drum and drumming", ["drum"]),
        ("engines and engineering, C++ and C", ["engines", "C++"]),
        ("ABS, abs and ABSs", ["ABS", "ABSs"]),
        ("用刹车鼓。刹车", ["刹车鼓", "刹车"]),
        ("את התוף (התוף)", ["התוף", "התוף"]),
        ("nuts, a nuthatch; Python, Pythonica; engiot, engio", ["nuts", "Pythonica", "engio"]),
        ("${brake} a.b* 2023 20231", ["a.b*", "2023"]),
        ("Cities, boxes; a pie, the axes, boxer", ["Cities", "boxes"]),
    ],
)
def test_the_longest_terms_are_found_in_any_form(text, expected):
    terms = ["brake drum", "drum", "engine", "C++", "ABS", "刹车", "刹车鼓", "התוף", "nut", "a.b*", "2023", "Pythonic"]
    terms += ["city", "box"]
    assert [source for source, _ in found(text, *((term, term) for term in terms))] == expected


def test_capitals_mean_nothing_where_all_terms_are_in_capitals():
    assert found("it shows us IT", ("IT", "EDV"), ("US", "USA")) == [("IT", "EDV")]
    assert found("it has a drum", ("IT", "EDV"), ("BRAKE DRUM", "Trommel"), ("DRUM", "Fass")) == [
        ("it", "EDV"),
        ("drum", "Fass"),
    ]


@each_time_a_folder
@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(WORDS, max_size=5))
def test_every_term_is_found_alone_and_terms_never_overlap(terms, others):
    glossary = Glossary.of([(term, "x") for term in terms if has_words(term)])
    for term in glossary.terms:
        assert [row.term for row in glossary.find(f" {term.source} ")] == [term]
    text = " ".join([*others, *terms])
    places = [place for start, end, _ in glossary.find(text) for place in (start, end)]
    assert places == sorted(places)
    assert all(start < end for start, end, _ in glossary.find(text))


def test_terms_of_a_request_go_before_those_of_the_server():
    server = Glossary.of([("brake drum", "Bremstrommel"), ("nut", "Mutter")])
    both = Glossary.of([("drum", "Fass")], server)
    assert [row.term.targets[0] for row in both.find("brake drum and nut")] == ["Fass", "Mutter"]
    assert both.digest != server.digest


@pytest.mark.parametrize(
    ("target", "translation", "status"),
    [
        ("Bremstrommel", "Die bremstrommel.", "used"),
        ("Bremstrommel", "Die Bremstrommeln.", "inflected"),
        ("Bremstrommel", "Die Trommel der Bremse.", "missing"),
        ("sistema de archivos", "los sistemas de archivos", "inflected"),
        ("Rad", "Das Rat.", "missing"),
        ("casa", "le case", "inflected"),
        ("utaski", "utaskinakapaxa", "inflected"),
        ("刹车鼓", "这个刹车鼓。", "used"),
        ("刹车鼓", "鼓刹车。", "missing"),
    ],
)
def test_a_term_is_used_inflected_or_missing(target, translation, status):
    (row,) = Glossary.of([("term", target)]).find("term")
    assert term_uses([row], translation) == [("term", target, status)]


def test_a_word_of_a_translation_counts_for_one_term():
    rows = Glossary.of([("drum", "Trommel")]).find("drum and drum")
    assert [use.status for use in term_uses(rows, "Trommel und Trommeln")] == ["used", "inflected"]
    assert [use.status for use in term_uses(rows, "Eine Trommel")] == ["used", "missing"]


def test_common_words_as_terms_are_warned_of(tmp_path):
    (tmp_path / "a.tsv").write_text("the\tdie\nUSB\tUSB\nin\tin\nx\ty\nnut\tMutter\n", encoding="utf-8")
    (note,) = Glossary.read([tmp_path / "a.tsv"], LANGUAGES).notes[1:]
    assert all(f"`{term}`" in note for term in ("the", "in", "x")) and "USB" not in note and "nut" not in note


def test_a_large_glossary_finds_what_a_small_one_finds():
    text = "The brake drum 49999 and brake 7 drums"
    small, large = ([(f"brake {number} drum", "x") for number in range(size)] for size in (8, 50_000))
    assert found(text, *small) == found(text, *large) == [("brake 7 drums", "x")]
