"""Documents of word processors: formatting, links and pictures stay with their words."""

import io
import tracemalloc
import zipfile
from xml.etree import ElementTree

import pytest
from format_samples import ODT, WORD
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import archive, read, texts_of, translated

from mt_cli.documents.document import DocumentError


def run(text, properties=""):
    return f"<w:r>{properties}<w:t>{text}</w:t></w:r>"


def bold(text):
    return run(text, "<w:rPr><w:b/></w:rPr>")


def field(kind):
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def instruction(text):
    return f"<w:r><w:instrText>{text}</w:instrText></w:r>"


def word(*paragraphs):
    body = "".join(f"<w:p><w:pPr><w:jc/></w:pPr>{paragraph}</w:p>" for paragraph in paragraphs)
    return f'<?xml version="1.0"?>\n<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'


def read_word(tmp_path, *paragraphs):
    return read(tmp_path, ".docx", archive("word/document.xml", word(*paragraphs)))


def written(document, translate):
    return zipfile.ZipFile(io.BytesIO(translated(document, translate))).read("word/document.xml").decode()


def plain(content):
    return "".join(ElementTree.fromstring(content).itertext())


def test_runs_of_the_same_formatting_are_one_text(tmp_path):
    paragraph = run("one t") + '<w:proofErr w:type="spellStart"/>' + run("wo ") + bold("three") + run(" four")
    document = read_word(tmp_path, paragraph)
    assert texts_of(document) == [("one two <m2>three</m2> four",)]
    expected = word((bold("tre") + run(" quattro uno")).replace("<w:t>", '<w:t xml:space="preserve">'))
    assert written(document, lambda text: "<m2>tre</m2> quattro uno") == expected


def test_a_line_break_ends_a_text(tmp_path):
    document = read_word(
        tmp_path, run("one") + "<w:r><w:br/></w:r>" + run("two") + bold("three") + "<w:r><w:cr/></w:r>"
    )
    assert texts_of(document) == [("one", "two<m1>three</m1>")]
    content = written(document, str.upper)
    assert plain(content) == "ONETWOTHREE" and content.index("ONE") < content.index("<w:br/>") < content.index("TWO")
    content = ODT.replace("<text:span>word</text:span>", "<text:line-break/>two<text:span>word</text:span>", 1)
    document = read(tmp_path, ".odt", archive("content.xml", content))
    assert texts_of(document)[1][:2] == ("word", "two<text:span>word</text:span><m4/> word")


def test_readings_go_and_soft_hyphens_are_no_text(tmp_path):
    ruby = f"<w:r><w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('one')}</w:rubyBase></w:ruby></w:r>"
    hyphens = "<w:r><w:t>a</w:t><w:softHyphen/><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t></w:r>"
    assert texts_of(read_word(tmp_path, ruby + run(" two"), hyphens)) == [("one two",), ("ab\u2011c",)]
    ruby = "<text:ruby><text:ruby-base>one</text:ruby-base><text:ruby-text>kan</text:ruby-text></text:ruby> two"
    document = read(tmp_path, ".odt", archive("content.xml", ODT.replace("<text:span>word</text:span>", ruby, 1)))
    assert texts_of(document)[1][0].startswith("word one two<m1/>")


def test_notes_name_the_paragraph_and_its_first_words(tmp_path):
    document = read_word(tmp_path, run("one"), run("two three four five six seven"))
    assert [*document.places()] == ["paragraph 1 (one)", "paragraph 2 (two three four five six)"]
    deleted = "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes><text:h>"
    document = read(tmp_path, ".odt", archive("content.xml", ODT.replace("<text:h>", deleted, 1)))
    assert "gone" not in str(texts_of(document))


def test_no_more_is_unpacked_than_an_archive_claims(tmp_path):
    packed = bytearray(archive("word/document.xml", b"\0" * 2**24))
    size = (2**24).to_bytes(4, "little")
    with pytest.raises(DocumentError, match="archive"):
        tracemalloc.start()
        read(tmp_path, ".docx", bytes(packed.replace(size, (100).to_bytes(4, "little"))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_links_fields_breaks_and_pictures_stay(tmp_path):
    hyperlink = f'<w:hyperlink w:id="1">{bold("link")}</w:hyperlink>'
    fields = field("begin") + instruction("PAGE") + field("end")
    picture = "<w:r><w:pict/></w:r>"
    document = read_word(tmp_path, run("page ") + fields + run(" see ") + hyperlink + run("<w:br/>") + picture)
    for translation in ("x", "".join(map("".join, texts_of(document))), "</m3><m3>"):
        root = ElementTree.fromstring(written(document, lambda _, new=translation: new))
        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        names = ("p", "hyperlink", "fldChar", "instrText", "pict", "br")
        assert [tags.count(name) for name in names] == [1, 1, 2, 1, 1, 1]
        assert f"{{{WORD}}}r" not in [child.tag for element in root.iter(f"{{{WORD}}}r") for child in element]


def test_a_field_over_several_paragraphs_is_counted_and_stays(tmp_path):
    document = read_word(tmp_path, field("begin") + run("a"), run("b") + field("end"), run("c"))
    assert texts_of(document) == [("c",)] and document.counts == {"paragraphs in fields": 2}


def test_text_boxes_and_notes_are_texts_of_their_own(tmp_path):
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('box')}</w:p></w:txbxContent></w:pict></w:r>"
    document = read_word(tmp_path, run("a ") + box + run(" b"))
    assert texts_of(document)[0][1:] == ("box",)
    assert plain(written(document, lambda text: text.replace("box", "BOX"))).split() == ["a", "BOX", "b"]


TEXT = st.text(st.sampled_from("ab <>&é\u2028\xa0"), max_size=9)


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXT, st.booleans()), min_size=1, max_size=5), TEXT.filter(lambda text: "<" not in text))
def test_any_formatted_text_is_read_again(tmp_path_factory, runs, added):
    escaped = [(text.replace("&", "&amp;").replace("<", "&lt;"), is_bold) for text, is_bold in runs]
    paragraph = "".join(bold(text) if is_bold else run(text) for text, is_bold in escaped)
    document = read_word(tmp_path_factory.mktemp("docx"), paragraph)
    text = "".join(text for text, _ in runs)
    expected = f"{text}|{added}" if text.strip() else text
    result = plain(written(document, lambda text: f"{text}|{added}"))
    assert "".join(result.split()) == "".join(expected.split())  # White space may move.


def packed(**parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return file.getvalue()


def test_pictures_charts_and_comments_are_translated_in_word_and_open_document(tmp_path):
    names = "".join(
        f' xmlns:{name}="{name}"' for name in ("a", "c", "wp", "v", "office", "text", "draw", "svg", "chart")
    )
    picture = (
        """<w:drawing><wp:docPr id="1" name="kept" descr='old "picture" &amp; b' title="old title"/></w:drawing>"""
    )
    shape = '<w:pict><v:shape alt="old shape"/></w:pict>'
    body = word(f"<w:r><w:lastRenderedPageBreak/>{picture}</w:r><w:r>{shape}</w:r>" + run("old text"))
    runs = '<a:r><a:rPr lang="en" b="1"/><a:t>old </a:t></a:r><a:r><a:rPr b="1" baseline="0"/><a:t>chart</a:t></a:r>'
    title = f"<c:title {names}><a:p><a:pPr/>{runs}<a:endParaRPr/></a:p></c:title>"
    comments = f'<w:comments xmlns:w="{WORD}"><w:comment><w:p>{run("old comment")}</w:p></w:comment></w:comments>'
    body = body.replace("<w:document", f"<w:document{names}")
    parts = {"word/document.xml": body, "word/charts/chart1.xml": title, "word/comments.xml": comments}
    frame = "<draw:frame><svg:title>old title</svg:title><svg:desc>old picture</svg:desc></draw:frame>"
    comment = "<office:annotation><text:p>old comment</text:p></office:annotation>"
    text = f"<office:document{names}><text:p>old text{frame}{comment}</text:p></office:document>"
    chart = f"<office:document{names}><chart:title><text:p>old chart</text:p></chart:title></office:document>"
    others = {"content.xml": text, "Object 1/content.xml": chart, "Object 2/content.xml": "<math/>"}
    for suffix, archive_of_parts in {".docx": packed(**parts), ".odt": packed(**others)}.items():
        document = read(tmp_path, suffix, archive_of_parts)
        texts = {text for texts in texts_of(document) for text in texts}
        shared = {"old text", "old title", "old chart", "old comment"}
        assert texts == shared | ({"old picture"} if suffix == ".odt" else {'old "picture" & b', "old shape"})
        new = zipfile.ZipFile(io.BytesIO(translated(document, lambda text: text.replace("old", "<n'&\""))))
        for name in new.namelist():
            root = ElementTree.fromstring(new.read(name))
            values = [*root.itertext(), *(value for element in root.iter() for value in element.attrib.values())]
            assert "old" not in " ".join(values)
