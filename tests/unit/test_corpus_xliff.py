"""XLIFF as a corpus."""

from xml.sax.saxutils import escape

import pytest
from formats import ENDINGS, each_time_a_folder, numbered, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.formats import names_in
from mt_cli.errors import CorpusError

XML = st.text(
    st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"), max_size=20
)


def version_1(units, codes='source-language="en-US" target-language="it"'):
    return f'<x:xliff version="1.2" xmlns:x="x"><x:file {codes}><x:body>\n{units}</x:body></x:file></x:xliff>'


def unit_1(source, target):
    return f"<x:trans-unit><x:source>{source}</x:source>{target}<x:note>no</x:note></x:trans-unit>\n"


def version_2(segments):
    units = "".join(f"<unit>{segment}</unit>\n" for segment in segments)
    return f'<xliff version="2.1" srcLang="en" trgLang="it-IT"><file>\n{units}</file></xliff>'


@each_time_a_folder
@given(st.lists(st.tuples(XML, XML), min_size=1), ENDINGS, st.sampled_from(["utf-8", "utf-16"]), st.booleans())
def test_xliff_gives_back_any_pairs_that_xml_can_hold(tmp_path, pairs, ending, encoding, is_version_2):
    pairs_of_xml = [tuple(map(escape, pair)) for pair in pairs]
    text = version_1("".join(unit_1(source, f"<x:target>{target}</x:target>") for source, target in pairs_of_xml))
    if is_version_2:
        text = version_2(
            f"<segment><source>{source}</source><target>{target}</target></segment>" for source, target in pairs_of_xml
        )
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    assert read(packed(tmp_path / "a.xlf", (head + text).encode(encoding), ending)) == pairs


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("", ""),
        ("<x:target/>", ""),
        ("<x:target>b</x:target>", "b"),
        ('<x:target state="translated">b</x:target>', "b"),
        ('<x:target state="needs-review-translation">b</x:target>', ""),
        ('<x:target state="new">b</x:target>', ""),
        ('<x:target state-qualifier="mt-suggestion">b</x:target>', ""),
        ("<x:alt-trans><x:source>c</x:source><x:target>d</x:target></x:alt-trans>", ""),
    ],
)
def test_drafts_are_blank(tmp_path, target, text):
    path = tmp_path / "a.xliff"
    path.write_text(version_1(unit_1("a", target)), encoding="utf-8")
    assert numbered(path)[0] == [(2, "a", text)]


def test_states_of_version_2_are_those_of_the_segment(tmp_path):
    states = [("", "b"), (' state="initial"', ""), (' state="final"', "b")]
    segment = "<segment{}><source>a</source><target>b</target></segment>"
    (tmp_path / "a.xlf").write_text(version_2(segment.format(state) for state, _ in states), encoding="utf-8")
    assert read(tmp_path / "a.xlf") == [("a", text) for _, text in states]


def test_inline_codes_are_dropped_or_kept_as_those_of_a_memory(tmp_path):
    source = 'Press<ph id="1">%s</ph>the un<g id="2">believ</g>able'
    (tmp_path / "a.xlf").write_text(
        f'<xliff version="1.2"><file source-language="en" target-language="it"><body><trans-unit><source>{source}'
        "</source><target>x</target></trans-unit></body></file></xliff>",
        encoding="utf-8",
    )
    rows, report = numbered(tmp_path / "a.xlf")
    assert rows[0][1] == "Press the unbelievable" and "1 inline code" in next(iter(report.notes()))
    assert numbered(tmp_path / "a.xlf", keep_codes=True)[0][0][1] == "Press%sthe unbelievable"


def test_languages_are_those_of_the_file(tmp_path):
    (tmp_path / "a.xlf").write_text(version_1(unit_1("a", "<x:target>b</x:target>")), encoding="utf-8")
    assert names_in(tmp_path / "a.xlf").names == ["en", "it"]
    assert read(tmp_path / "a.xlf", ("it", "en")) == [("b", "a")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (version_1(unit_1("a", "")), ": .*no segment is in `fr`"),
        (version_1(unit_1("a & b", "")), ", line 2: not well-formed XML"),
        (version_1(unit_1("a", ""))[:-9], ", line 3: not well-formed XML"),
        (version_1("<x:trans-unit/>"), ", line 2: this <x:trans-unit> has no <source>"),
        (version_1(unit_1("a", ""), ""), ": has no segment in a language that it names"),
        ("<tmx/>", ", line 1: its first element is <tmx>"),
        ('<!DOCTYPE a [<!ENTITY a "b">]>' + version_1(""), ", line 1: declares the entity 'a'"),
        (version_1(unit_1("é", "")).encode("latin-1"), ", line 2: a character is not in the encoding"),
    ],
)
def test_damage_is_one_error_with_its_place(tmp_path, content, problem):
    path = tmp_path / "a.xlf"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(CorpusError, match=f"^{path}{problem}"):
        read(path, ("en", "fr"))
