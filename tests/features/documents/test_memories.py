"""Translation memories: units without the target language get a draft, and all else stays."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.xml_places import escaped
from mt_cli.features.documents.document import DocumentError, Options
from mt_cli.features.documents.formats import read_document

TEXT = st.text(st.one_of(st.sampled_from("<>&\"' \n]"), st.characters(exclude_categories=["Cs", "Cc"])), max_size=20)
TEXT = TEXT.filter(lambda text: not set(text) & {"\ufffe", "\uffff"})


def tuv(language, text, attributes=""):
    return f'  <tuv xml:lang="{language}"{attributes}>\n    <seg>{text}</seg>\n  </tuv>\n'


def memory(*units):
    body = "".join(f'<tu tuid="{number}">\n{unit}</tu>\n' for number, unit in enumerate(units))
    return f'<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="en"/><body>\n{body}</body></tmx>\n'


def read(tmp_path, content, languages=("en", "it"), encoding="utf-8"):
    path = tmp_path / "a.tmx"
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return read_document(path, Options(languages))


def translated(document, translate=str.upper, every=False, needs_review=False):
    return document.replaced(
        {
            index: unit.write([translate(text) for text in unit.texts], needs_review)
            for index, unit in enumerate(document.units)
            if every or not unit.is_translated
        }
    ).decode(document.encoding)


def test_a_unit_without_the_target_language_gets_it_after_the_others(tmp_path):
    source = tuv("en", "a &amp; b", ' usagecount="3"')
    content = memory(source + tuv("fr", "c"), tuv("fr", "d"), source + tuv("it", "e"))
    document = read(tmp_path, content)
    assert [(unit.texts, unit.is_translated) for unit in document.units] == [(("a & b",), False), (("a & b",), True)]
    draft = tuv("it", "A &amp; B", ' creationid="mt"')
    assert translated(document) == content.replace(tuv("fr", "c"), tuv("fr", "c") + draft)
    everything = translated(document, every=True)
    assert everything == content.replace(tuv("fr", "c"), tuv("fr", "c") + draft).replace(">e<", ">A &amp; B<")


def test_varieties_of_a_language_are_its_text(tmp_path):
    document = read(tmp_path, memory(tuv("EN-us", "a") + tuv("it-IT", "b"), tuv("en_US", "c")))
    assert [unit.is_translated for unit in document.units] == [True, False]
    assert 'xml:lang="pt-BR"' in translated(read(tmp_path, memory(tuv("en", "a")), ("en", "pt_BR")))


def test_codes_stay_and_lost_ones_are_noted(tmp_path):
    source = 'a <bpt i="1">&lt;b&gt;</bpt>b<ept i="1">&lt;/b&gt;</ept> <hi>c</hi>'
    document = read(tmp_path, memory(tuv("en", source)))
    assert f'creationid="mt">\n    <seg>{source}</seg>' in translated(document, str)
    assert "<note>needs review" in translated(document, lambda text: "x")
    root = ElementTree.fromstring(translated(document, lambda text: "x"))
    assert [len(list(seg.iter())) for seg in root.iter("seg")] == [4, 4]


@given(st.lists(TEXT, min_size=1, max_size=3), st.sampled_from(["utf-8", "utf-16", "iso-8859-1"]))
def test_texts_written_back_unchanged_are_read_again(tmp_path_factory, texts, encoding):
    units = memory("", *(f'<tuv lang="en"><seg>a{escaped(text, encoding)}</seg></tuv>' for text in texts))
    content = f'<?xml version="1.0" encoding="{encoding}"?>' + units
    document = read(tmp_path_factory.mktemp("tmx"), content, encoding=encoding)
    assert document.replaced({}) == content.encode(encoding)
    drafts = {index: unit.write(unit.texts, False) for index, unit in enumerate(document.units)}
    root = ElementTree.fromstring(document.replaced(drafts))
    segments = [[seg.text for seg in unit.iter("seg")] for unit in root.iter("tu")]
    assert segments == [[], *([f"a{text}"] * 2 for text in texts)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (memory(tuv("en", "a"))[:-20], r", line \d: not well-formed XML"),
        (memory(tuv("en", "&x;")), ", line 5: the entity 'x' is unknown"),
        (memory(tuv("en", "<hi>" * 300)), ", line 5: elements within 200 others"),
        (memory(tuv("fr", "a")), r": has no text in the source language `en` .* fr \(1 segment\)"),
        ("<xliff/>", ", line 1: its first element is <xliff>"),
        (memory(tuv("en", "é")).encode("latin-1"), ", line 5: not utf-8"),
    ],
)
def test_damage_is_one_error_with_its_place(tmp_path, content, problem):
    with pytest.raises(DocumentError, match=rf"^{tmp_path}/a\.tmx{problem}"):
        read(tmp_path, content)
