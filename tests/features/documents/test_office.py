"""Documents of word processors: text of paragraphs changes, and the rest of the archive stays."""

import io
import zipfile
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.features.documents.document import DocumentError, Options
from mt_cli.features.documents.formats import read_document

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def run(text, properties=""):
    return f"<w:r>{properties}<w:t>{text}</w:t></w:r>"


def bold(text):
    return run(text, "<w:rPr><w:b/></w:rPr>")


def field(kind):
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def word(*paragraphs):
    body = "".join(f"<w:p><w:pPr><w:jc/></w:pPr>{paragraph}</w:p>" for paragraph in paragraphs)
    return f'<?xml version="1.0"?>\n<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'


def open_document(body):
    return f"<office:document-content {OFFICE}><office:body>{body}</office:body></office:document-content>"


def packed(path, parts):
    with zipfile.ZipFile(path, "w") as file:
        for number, (name, content) in enumerate(parts.items()):
            file.writestr(name, content, zipfile.ZIP_DEFLATED if number % 2 else zipfile.ZIP_STORED)
    return path


def read_word(tmp_path, *paragraphs):
    parts = {"[Content_Types].xml": "<Types/>", "word/document.xml": word(*paragraphs), "word/media/a.png": b"\0\xff"}
    return read_document(packed(tmp_path / "a.docx", parts), Options())


def replaced(document, translate):
    parts = {
        index: unit.write([translate(text) for text in unit.texts], False) for index, unit in enumerate(document.units)
    }
    return zipfile.ZipFile(io.BytesIO(document.replaced(parts)))


def texts(document):
    return [text for unit in document.units for text in unit.texts]


def test_runs_of_the_same_formatting_are_one_text_and_others_are_tags(tmp_path):
    paragraph = run("one t") + '<w:proofErr w:type="spellStart"/>' + run("wo ") + bold("three") + run(" four")
    document = read_word(tmp_path, paragraph)
    assert texts(document) == ["one two <m2>three</m2> four"]
    result = replaced(document, lambda text: "<m2>tre</m2> quattro uno").read("word/document.xml").decode()
    first, second = bold("tre"), run(" quattro uno")
    assert result == word((first + second).replace("<w:t>", '<w:t xml:space="preserve">'))


def test_all_other_parts_of_the_archive_stay(tmp_path):
    document = read_word(tmp_path, run("a"), run("b"))
    original = zipfile.ZipFile(tmp_path / "a.docx")
    result = replaced(document, lambda text: text.replace("b", "c & <"))
    assert [(entry.filename, entry.compress_type) for entry in result.infolist()] == [
        (entry.filename, entry.compress_type) for entry in original.infolist()
    ]
    assert {name for name in result.namelist() if result.read(name) != original.read(name)} == {"word/document.xml"}
    assert run("a") in result.read("word/document.xml").decode()
    assert "".join(ElementTree.fromstring(result.read("word/document.xml")).itertext()) == "ac & <"
    assert document.replaced({}) == (tmp_path / "a.docx").read_bytes()


def test_links_fields_breaks_and_pictures_stay(tmp_path):
    hyperlink = f'<w:hyperlink w:id="1">{bold("link")}</w:hyperlink>'
    fields = field("begin") + "<w:r><w:instrText>PAGE</w:instrText></w:r>" + field("end")
    picture = "<w:r><w:pict/></w:r>"
    document = read_word(tmp_path, run("page ") + fields + run(" see ") + hyperlink + run("<w:br/>") + picture)
    for translation in ("x", "".join(texts(document)), "</m3><m3>"):
        root = ElementTree.fromstring(replaced(document, lambda _, new=translation: new).read("word/document.xml"))
        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert [tags.count(name) for name in ("p", "hyperlink", "fldChar", "instrText", "pict", "br")] == [
            1,
            1,
            2,
            1,
            1,
            1,
        ]
        runs = [child.tag for element in root.iter(f"{{{WORD}}}r") for child in element]
        assert f"{{{WORD}}}r" not in runs


def instruction(text):
    return f"<w:r><w:instrText>{text}</w:instrText></w:r>"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        (field("begin") + instruction(" HYPERLINK 'a'") + field("separate") + run("book") + field("end"), True),
        (
            field("begin")
            + instruction("HYPER")
            + instruction("LINK a")
            + field("separate")
            + bold("book")
            + field("end"),
            True,
        ),
        (f'<w:fldSimple w:instr=" HYPERLINK a">{run("book")}</w:fldSimple>', True),
        (field("begin") + instruction(" PAGE ") + field("separate") + run("book") + field("end"), False),
        (f'<w:fldSimple w:instr="DATE">{run("book")}</w:fldSimple>', False),
        (field("begin") + instruction("HYPERLINK a") + field("separate") + field("end"), False),
    ],
)
def test_the_text_of_a_link_in_a_field_is_text(tmp_path, link, expected):
    document = read_word(tmp_path, run("reads a ") + link + run(" now"))
    assert ("book" in texts(document)[0]) == expected
    original = read_word(tmp_path, run("reads a ") + link + run(" now")).content
    result = replaced(document, lambda text: text.replace("reads", "liest")).read("word/document.xml").decode()
    plain = ["".join(ElementTree.fromstring(content).itertext()) for content in (original, result)]
    assert plain[1] == plain[0].replace("reads", "liest") and result.count("HYPER") == original.count("HYPER")


def test_a_field_over_several_paragraphs_is_counted_and_stays(tmp_path):
    document = read_word(tmp_path, field("begin") + run("a"), run("b") + field("end"), run("c"))
    assert texts(document) == ["c"] and document.counts == {"paragraphs in fields": 2}


def test_notes_and_text_boxes_are_texts_of_their_own(tmp_path):
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('box')}</w:p></w:txbxContent></w:pict></w:r>"
    document = read_word(tmp_path, run("a ") + box + run(" b"))
    assert texts(document)[1:] == ["box"]
    root = ElementTree.fromstring(replaced(document, lambda text: text.replace("box", "BOX")).read("word/document.xml"))
    assert "".join(root.itertext()).split() == ["a", "BOX", "b"]
    note = "<text:note><text:note-body><text:p>n</text:p></text:note-body></text:note>"
    body = f"<text:h>t</text:h><text:p>a <text:span>b</text:span>{note} c<text:s/></text:p>"
    path = packed(tmp_path / "a.odt", {"mimetype": "application/x", "content.xml": open_document(body)})
    document = read_document(path, Options())
    assert texts(document) == ["t", "a <text:span>b</text:span><m5/> c", "n"]
    result = replaced(document, lambda text: text.replace("n<", "n").replace("a ", "A ") if text != "n" else "N & M")
    assert result.read("content.xml").decode() == open_document(
        body.replace("a <", "A <").replace(">n<", ">N &amp; M<")
    )


TEXT = st.text(st.one_of(st.sampled_from("ab <>&"), st.characters(exclude_categories=["Cs", "Cc"])), max_size=9)
TEXT = TEXT.filter(lambda text: not set(text) & {"\ufffe", "\uffff"})


@given(st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=5), TEXT.filter(lambda text: "<" not in text))
def test_any_text_is_read_again(tmp_path_factory, runs, added):
    escaped = [(text.replace("&", "&amp;").replace("<", "&lt;"), is_bold) for text, is_bold in runs]
    paragraph = "".join(bold(text) if is_bold else run(text) for text, is_bold in escaped)
    document = read_word(tmp_path_factory.mktemp("docx"), paragraph)
    root = ElementTree.fromstring(replaced(document, lambda text: f"{text}|{added}").read("word/document.xml"))
    text = "".join(text for text, _ in runs)
    expected = f"{text}|{added}" if text.strip() else text
    assert "".join("".join(root.itertext()).split()) == "".join(expected.split())  # White space may move.


GOOD = {"word/document.xml": word(run("a" * 50))}


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"a": "b"}, ": has neither word/document.xml nor content.xml"),
        ({"word/document.xml": word("<w:r>")}, ", word/document.xml, line 2: not well-formed XML"),
        ({"word/document.xml": "<x/>"}, ", word/document.xml, line 1: its first element is <x>"),
        ({"word/document.xml": b"\xff"}, ", word/document.xml: not UTF-8"),
        ({"word/document.xml": "a\0"}, ", word/document.xml: has a NUL character"),
        ({"a": "", **GOOD, "b": "", "c": b"\0" * 2**25}, r": its 4 parts have 33,\d+,\d+ bytes, which is too much"),
    ],
)
def test_a_damaged_document_is_one_error(tmp_path, parts, problem):
    path = packed(tmp_path / "a.docx", parts)
    with pytest.raises(DocumentError, match=f"^{path}{problem}"):
        read_document(path, Options())


@given(st.integers(0, 2**16), st.integers(0, 255), st.booleans())
def test_a_cut_or_changed_archive_is_one_error_or_is_read(tmp_path_factory, place, value, is_cut):
    path = packed(tmp_path_factory.mktemp("docx") / "a.docx", {"a.xml": "<a/>", **GOOD})
    content = bytearray(path.read_bytes())
    place %= len(content)
    content[place] = value
    path.write_bytes(content[:place] if is_cut else content)
    try:
        document = read_document(path, Options())
    except DocumentError as error:
        assert str(error).startswith(f"{path}")
    else:
        assert document.replaced({}) == path.read_bytes()
