"""XLIFF documents: only targets and states change, and damage is one error with its place."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.xml_places import escaped
from mt_cli.features.documents.document import DocumentError, Options
from mt_cli.features.documents.formats import read_document

LANGUAGES = Options(("en", "it"))
TEXT = st.text(st.one_of(st.sampled_from("<>&\"' \n\t]"), st.characters(exclude_categories=["Cs", "Cc"])), max_size=20)
TEXT = TEXT.filter(lambda text: not set(text) & {"\ufffe", "\uffff"})


def version_1(units, file='source-language="en" target-language="it"'):
    body = f"<body>\n{units}\n</body>"
    return f'<?xml version="1.0"?>\n<xliff version="1.2"><file {file}>{body}</file></xliff>\n'


def version_2(units, root='srcLang="en" trgLang="it"'):
    return f'<xliff version="2.0" {root}><file id="f">\n{units}\n</file></xliff>\n'


def unit_1(source, target="", attributes=""):
    return f'  <trans-unit id="1"{attributes}>\n    <source>{source}</source>{target}\n  </trans-unit>'


def unit_2(source, target="", attributes=""):
    return f'<unit id="1"><segment{attributes}>\n\t<source>{source}</source>{target}\n</segment></unit>'


def read(tmp_path, content, encoding="utf-8", name="a.xlf", options=LANGUAGES):
    path = tmp_path / name
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return read_document(path, options)


def translated(document, translate=str.upper, needs_review=False, every=False):
    return document.replaced(
        {
            index: unit.write([translate(text) for text in unit.texts], needs_review)
            for index, unit in enumerate(document.units)
            if every or not unit.is_translated
        }
    ).decode(document.encoding)


def test_a_target_is_added_after_its_source_and_all_else_stays(tmp_path):
    note = "\n    <note>n &amp; m</note>"
    document = read(tmp_path, version_1(unit_1("a &amp; <x id='1'/>b", note)))
    assert [unit.texts for unit in document.units] == [("a & <x id='1'/>b",)]
    target = '<target state="needs-review-translation" state-qualifier="mt-suggestion">'
    target = f"\n    {target}A &amp; <x id='1'/>B</target>"
    result = translated(document, lambda text: text.replace("a", "A").replace("b", "B"))
    assert result == version_1(unit_1("a &amp; <x id='1'/>b", target + note))


def test_version_2_marks_the_segment(tmp_path):
    document = read(tmp_path, version_2(unit_2('a <pc id="1">b</pc> c', attributes=' id="s"')))
    for needs_review, state in ((False, "translated"), (True, "initial")):
        result = translated(document, str, needs_review)
        target = '\n\t<target>a <pc id="1">b</pc> c</target>'
        assert result == version_2(unit_2('a <pc id="1">b</pc> c', target, f' id="s" state="{state}"'))
    assert 'state="initial"' in translated(document, lambda text: "x")


@pytest.mark.parametrize(
    "content",
    [
        version_1(unit_1("a", attributes=' translate="no"')),
        version_1(unit_1("a", attributes=' approved="yes"')),
        version_1(f'<group translate="no">{unit_1("a")}</group>'),
        version_1(unit_1("a", '<target state="final">b</target>')),
        version_1(unit_1("<x id='1'/> ")),
        version_2(unit_2("a", attributes=' state="final"')),
        version_2(f'<group id="g" translate="no">{unit_2("a")}</group>'),
    ],
)
def test_final_and_locked_segments_are_no_units(tmp_path, content):
    assert not read(tmp_path, content).units


def test_existing_translations_stay_unless_all_are_asked_for(tmp_path):
    target = '<target xml:lang="it" state="translated">b</target>'
    content = version_1(unit_1("a", target) + unit_1("c", "<target/>") + unit_1("d", "<target state='new'>d</target>"))
    document = read(tmp_path, content)
    assert [unit.is_translated for unit in document.units] == [True, False, False]
    assert target in translated(document)
    everything = ElementTree.fromstring(translated(document, every=True))
    assert [(node.text, node.get("state")) for node in everything.iter("target")] == [
        (text, "needs-review-translation") for text in "ACD"
    ]


def test_parts_that_a_cat_tool_has_marked_are_texts_of_their_own(tmp_path):
    marked = '<g id="1"><mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk></g>'
    document = read(tmp_path, version_1(unit_1("<g id='1'>One. Two.</g>", f"<seg-source>{marked}</seg-source>")))
    assert document.units[0].texts == ("One.", "Two.")
    assert f">{marked.replace('One', 'ONE').replace('Two', 'TWO')}</target>" in translated(document)


def test_text_in_a_cdata_section_stays_in_one(tmp_path):
    document = read(tmp_path, version_1(unit_1("<![CDATA[<p>a & b</p>]]>")))
    assert document.units[0].texts == ("<p>a & b</p>",)
    assert "><![CDATA[<p>a ]]]]><![CDATA[> b</p>]]></target>" in translated(
        document, lambda text: text.replace("&", "]]>")
    )


def test_native_code_and_protected_text_are_not_translated(tmp_path):
    source = 'a <bpt id="1">&lt;b&gt;</bpt>b<ept id="1">&lt;/b&gt;</ept> <mrk mtype="protected">keep</mrk> c'
    document = read(tmp_path, version_1(unit_1(source)))
    assert "keep" not in document.units[0].texts[0] and "&lt;" not in document.units[0].texts[0]
    assert f">{source}</target>" in translated(document, str)


def test_a_missing_target_language_is_added_before_the_first_draft(tmp_path):
    content = version_1(
        unit_1("a", attributes=' translate="no"') + unit_1("b") + unit_1("c"), file='source-language="en"'
    )
    result = translated(read(tmp_path, content, options=Options(("en", "pt_BR"))))
    assert '<file source-language="en" target-language="pt-BR">' in result and result.count("pt-BR") == 1
    assert [node.text for node in ElementTree.fromstring(result).iter("target")] == ["B", "C"]
    assert ' trgLang="it">' in translated(read(tmp_path, version_2(unit_2("a"), 'srcLang="en"')))


def test_other_languages_are_refused(tmp_path):
    for file in ('source-language="fr" target-language="it"', 'source-language="en-US" target-language="de"'):
        with pytest.raises(DocumentError, match=r"a\.xlf, line 2: .* is (fr|de), but the model"):
            read(tmp_path, version_1(unit_1("a"), file=file))
    assert read(tmp_path, version_1(unit_1("a"), file='source-language="en" target-language="en"')).units


@given(st.lists(TEXT, min_size=1, max_size=4), st.sampled_from(["utf-8", "utf-16", "iso-8859-1"]), st.booleans())
def test_texts_written_back_unchanged_are_read_again(tmp_path_factory, texts, encoding, is_version_2):
    tmp_path, unit = tmp_path_factory.mktemp("xliff"), unit_2 if is_version_2 else unit_1
    head, body = (
        f'<?xml version="1.0" encoding="{encoding}"?>\n',
        "".join(unit(escaped(text, encoding)) for text in texts),
    )
    content = (version_2(body) if is_version_2 else version_1(body)).partition("?>\n")[2] or version_2(body)
    document = read(tmp_path, head + content, encoding)
    result = document.replaced({index: unit.write(unit.texts, False) for index, unit in enumerate(document.units)})
    root = ElementTree.fromstring(result)
    pairs = [
        (node.find("source").text or "", node.find("target")) for node in root.iter() if node.find("source") is not None
    ]
    assert [source for source, _ in pairs] == [
        node.text or "" for node in ElementTree.fromstring((head + content).encode(encoding)).iter("source")
    ]
    assert all(source == target.text if target is not None else not source.strip() for source, target in pairs)
    assert document.replaced({}) == (head + content).encode(encoding)


def test_line_ends_and_a_byte_order_mark_stay(tmp_path):
    content = version_1(unit_1("a\r\nb")).replace("\n", "\r\n").replace("\r\r\n", "\r\n")
    for encoding in ("utf-8-sig", "utf-16"):
        document = read(tmp_path, content, encoding)
        assert document.units[0].texts == ("a\nb",) and document.replaced({}) == content.encode(encoding)
        assert ">A\r\nB</target>\r\n" in translated(document)


def test_mixed_line_ends_stay(tmp_path):
    content = version_1(unit_1("a") + "\r" + unit_2("b") + "\r\n" + unit_1("c\rd\r\ne"))
    document = read(tmp_path, content)
    assert [unit.texts for unit in document.units] == [("a",), ("c\nd\ne",)]
    assert re.sub(r"\n    <target.*?</target>", "", translated(document), flags=re.DOTALL) == content


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (version_1(unit_1("a"))[:-30], r"line \d+: not well-formed XML: (no element|unclosed)"),
        (version_1(unit_1("a & b")), "line 4: not well-formed"),
        (version_1(unit_1("<g>a")), "line 4: not well-formed XML: mismatched tag"),
        (version_1(unit_1("&b;")).replace("<xliff", BOMB + "\n<xliff"), "line 2: declares the entity 'a'"),
        ('<!DOCTYPE xliff SYSTEM "x.dtd">\n' + version_1(unit_1("&b;"))[22:], "line 4: the entity 'b' is unknown"),
        (version_1("<g>" * 100_000), "line 3: elements within 200 others"),
        (version_1("<trans-unit/>"), "line 3: this <trans-unit> has no <source>"),
        ("<html/>", "line 1: its first element is <html>"),
        ("", "line 1: not well-formed XML: no element"),
        (version_1(unit_1("é")).encode("latin-1"), "line 4: not utf-8"),
        ('<?xml version="1.0" encoding="rot13"?>' + version_2(""), "its encoding 'rot13' is unknown"),
        ('<?xml version="1.0" encoding="unicode_escape"?>' + version_2(""), "would not come back the same"),
        (version_1(unit_1("a")).replace("1.0", '1.0" encoding="utf-16'), "(line 1: not |would not|its encoding)"),
        (b"\0\xff\0" * 100, "line 1: not "),
    ],
)
def test_damage_is_one_error_with_its_place(tmp_path, content, problem):
    with pytest.raises(DocumentError, match=rf"^{tmp_path}/a\.xlf(, |: ){problem}"):
        read(tmp_path, content)
