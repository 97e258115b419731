"""The laws of all formats: bytes stay, translations are read again, damage has its place, reading is linear."""

import io
import re
import zipfile
from xml.etree import ElementTree

import pytest
from format_samples import CATALOGUE, DOCX, SAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from linear import assert_linear
from round_trips import archive, new_job, read, texts_of, translated

from mt_cli.corpus.formats.gettext import read_po
from mt_cli.documents.document import DocumentError, Options
from mt_cli.documents.formats import READERS, read_document
from mt_cli.documents.translate import translated_document
from mt_cli.errors import InputError

each_format = pytest.mark.parametrize("name", SAMPLES)
some_examples = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def in_german(text):
    """Text outside of tags in another language."""
    return re.sub("<[^<>]*>|word|kept", lambda match: {"word": "wort", "kept": "lost"}.get(match[0], match[0]), text)


def unpacked(sample, content):
    return zipfile.ZipFile(io.BytesIO(content)).read(sample.part) if sample.part else content


@each_format
def test_only_the_text_of_a_document_changes(tmp_path, name):
    sample = SAMPLES[name]
    document = read(tmp_path, sample.suffix, sample.packed(sample.content), sample.column)
    assert unpacked(sample, translated(document, in_german)).decode() == sample.expected


@each_format
def test_a_document_keeps_each_byte(tmp_path, name):
    sample = SAMPLES[name]
    sizes = set()
    for line_end in ("\n", "\r\n") if sample.suffix in (".po", ".tsv") else ("\n", "\r\n", "\r"):
        for encoding in ("utf-8",) if sample.part else ("utf-8", "utf-8-sig"):
            raw = sample.packed(sample.content.replace("\n", line_end).encode(encoding))
            document = read(tmp_path, sample.suffix, raw, sample.column)
            assert document.written({}) == raw and ("«" in sample.text or translated(document) == raw)
            sizes.add(len(document.units))
    assert len(sizes) == 1


def test_other_parts_of_an_archive_stay(tmp_path):
    document = read(tmp_path, ".docx", archive("word/document.xml", DOCX))
    old, new = (zipfile.ZipFile(io.BytesIO(raw)) for raw in (document.written({}), translated(document, in_german)))
    assert [(entry.filename, entry.compress_type) for entry in new.infolist()] == [
        (entry.filename, entry.compress_type) for entry in old.infolist()
    ]
    assert [part for part in new.namelist() if new.read(part) != old.read(part)] == ["word/document.xml"]


def translations_of(folder, sample, raw):
    """Texts of a translated document, or translations if they stand beside the texts."""
    if sample.suffix == ".po":
        (folder / "b.po").write_bytes(raw.replace(b"#, fuzzy\n", b"").replace(b", fuzzy", b""))
        pairs = [row[1:] for row in read_po(folder / "b.po")]
        return [target for source, target in pairs if source != "kept"]
    if sample.suffix.startswith(".xl"):
        targets = (node for node in ElementTree.fromstring(raw).iter() if node.tag == "target")
        texts = ("".join(node.itertext()) for node in targets)
        return [text.replace("kept", "") for text in texts if text.strip() not in ("", "kept")]
    return [text for texts in texts_of(read(folder, sample.suffix, raw, sample.column)) for text in texts]


def one_line(text):
    """Text without tags, escapes of Markdown, and line ends, which may move."""
    return " ".join(re.sub(r"</?[a-z][^<>]*>|\\", "", text).split())


PIECES = ["a ", "B", " < ", " > ", "& ", '"', "'", "é", "😀", "漢", ": ", "=", "# ", "- ", "|", ";", ",", "!", "\u2028"]
SPECIAL = {".po": "\n\t\\\a\b", ".csv": "\n\t\r\v\f\0", ".json": "\n\t\\\r\0\v/", ".properties": "\n\t\\\r\0\f"}
"""Characters that formats keep, in which each character of a text counts."""


@each_format
@some_examples
@given(st.data())
def test_any_translation_is_read_again_as_itself(tmp_path, name, data):
    sample = SAMPLES[name]
    pieces = st.sampled_from([*PIECES, *SPECIAL.get(sample.suffix, "")])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    document = read(tmp_path, sample.suffix, sample.packed(sample.content), sample.column)
    number = sum(len(unit.texts) for unit in document.units if not unit.is_translated)
    again = translations_of(tmp_path, sample, translated(document, lambda source: f"X{text} z"))
    normalized = str if sample.suffix in SPECIAL else one_line
    assert [*map(normalized, again)] == [normalized(f"X{text} z")] * number


@each_format
@some_examples
@given(st.data())
def test_a_changed_document_comes_back_or_is_one_error(tmp_path, name, data):
    """The document is made of parts of another one, and one of its bytes is changed or missing."""
    sample = SAMPLES[name]
    content = sample.content.encode()
    places = st.integers(0, len(content))
    parts = data.draw(st.lists(st.tuples(places, places), max_size=3)) or [(0, len(content))]
    raw = sample.packed(b"".join(content[slice(*sorted(part))] for part in parts).decode("utf-8", "ignore"))
    raw = bytearray(raw.encode() if isinstance(raw, str) else raw)
    if raw and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + 1] = data.draw(st.binary(max_size=1))
    try:
        document = read(tmp_path, sample.suffix, bytes(raw), sample.column)
    except DocumentError as error:
        assert str(error).startswith(f"{tmp_path}/a{sample.suffix}") and "\n" not in str(error)
    else:
        assert document.written({}) == raw and ("«" in sample.text or translated(document) == raw)


def xliff(content):
    return f'<xliff version="1.2">\n<file source-language="en">{content}</file></xliff>'


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>\n'
HEADER = CATALOGUE[: CATALOGUE.index("#.")]
DAMAGED = {
    ".po": {
        HEADER + 'msgid "a" b\nmsgstr ""\n': "line 7",
        HEADER + 'msgid "a"\nmsgstr "b"\n# note\n"c"\n': "line 9",
        HEADER.encode() + b'msgid "\xff"\nmsgstr ""\n': "line 7",
        HEADER.replace("UTF-8", "martian"): "martian",
    },
    ".xlf": {
        xliff("")[:-9]: "line 2",
        xliff("<trans-unit><source>&b;</source></trans-unit>").replace("\n", f"\n{BOMB}"): "line 2",
        BOMB + xliff("&b;"): "line 1",
        xliff("<g>" * 100_000): "line 2",
        xliff("").replace('"en"', '"fr"').replace("><", "><trans-unit><source>a</source></trans-unit><"): "line 2",
        '<?xml version="1.0" encoding="rot13"?>' + xliff(""): "rot13",
    },
    ".html": {
        "<p>a</p>\n<!-- b": "line 2",
        "<p>a</p>\n\n<a href='b": "line 3",
        "<meta charset=foo>": "foo",
    },
    ".json": {
        '{"a":\n"b"': "line 2, column 4",
        b'{\n"a": "\xe4"}': "line 2",
    },
    ".properties": {"a=b\nc=\\u12 d\n": "line 2"},
    ".srt": {
        "Some text\nwithout times": "00:00:01,000",
        "1\n00:00:01,000 -> 00:00:02,000\nText\n": "line 2",
        b"1\n00:00:01,0 --> 00:00:02,0\n\xe4\n": "line 3",
    },
    ".vtt": {"1\n00:01.000 --> 00:02.000\nText\n": "line 1"},
    ".csv": {
        "id,b\n1,a\n": "2 'b'",
        "text,text\n1,2\n": "several",
        'a,text\n1,"2"3\n': "line 2",
        "a,text\n1,2,3\n": "line 2",
    },
    ".tsv": {b"a\ttext\n1\t\xe4\n": "line 2", "a\ttext\n1\t2\t3\n": "line 2", "a\ttext\n".encode("utf-16"): "UTF-16"},
    ".md": {b"a\n\xe4\n": "line 2"},
    ".docx": {
        archive("a", "b"): "word/document.xml",
        archive("word/document.xml", "<x/>"): "word/document.xml, line 1",
        archive("word/document.xml", DOCX.replace("</w:body>", "")): "word/document.xml, line 4",
        archive("content.xml", b"\0" * (2**25 + 1)): "MiB",
    },
}


@pytest.mark.parametrize("suffix", DAMAGED)
def test_damage_is_one_error_with_file_and_place(tmp_path, suffix):
    for content, place in DAMAGED[suffix].items():
        with pytest.raises(DocumentError) as caught:
            read(tmp_path, suffix, content, "text")
        message = str(caught.value)
        assert isinstance(caught.value, InputError) and "\n" not in message
        assert message.startswith(f"{tmp_path}/a{suffix}") and place in message, content[:100]


@pytest.mark.parametrize("suffix", sorted(READERS))
def test_a_document_that_is_too_large_is_refused(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(DocumentError, match=rf"^{path}[^\n]*bytes"):
        read_document(path, Options())


CUE = "1\n00:00:01,0 --> 00:00:02,0\n"
LONG = {
    ".po": [(HEADER, 'msgid "a"\nmsgstr ""\n\n', ""), (HEADER + 'msgid ""\n', '"a "\n', 'msgstr ""\n')],
    ".xlf": [
        ('<xliff version="1.2"><file>', "<trans-unit><source>a</source></trans-unit>\n", "</file></xliff>"),
        ('<xliff version="1.2"><file><trans-unit><source>a', "<x/>b", "</source></trans-unit></file></xliff>"),
    ],
    ".html": [
        ("", part, "a'\"-->")
        for part in ("<p>a", "<b>", "<a b='", "<i translate=no>", "&#", "<!-->", "<![", "<meta ", "<a \n/")
    ]
    + [("<a ", "/", ">x</a>"), ("<b>" * 100, "a ", "</b>" * 100)],
    ".md": [
        *(("", part, "a") for part in ("word ", "word\n", "> ", "- ", "[", "`", "a {{", "<a ")),
        ("---\n", "a: b\n", ""),
        ("a|b\n-|-\n", "a|b\n", ""),
        ("[a]: b\n\n", "[a](", ""),
    ],
    ".srt": [("", CUE + "a\n\n", ""), (CUE, "there\n", ""), (CUE, "<", "a")],
    ".vtt": [("WEBVTT\n\n00:01.000 --> 00:02.000\n", "&amp;a -->", "")],
    ".csv": [("a,text\n", '1,"x ""y"""\n', ""), ('a,text\n1,"', '""', 'x"\n')],
    ".tsv": [("a\ttext\n", "1\tx\n", "")],
    ".json": [('["', "a\\n", '"]'), ("[", '"abc", ', "1]"), ('["', "\\\\", 'a"]')],
    ".properties": [("", "a=b\n", ""), ("a=", "b \\\n", ""), ("", "# c\n", "a=b"), ("", "=", "")],
    ".docx": [(DOCX[: DOCX.index("<w:p>")], "<w:p><w:r><w:t>a</w:t></w:r></w:p>", "</w:body></w:document>")],
}


@pytest.mark.parametrize("suffix", LONG)
def test_reading_and_writing_take_linear_time(tmp_path, suffix):
    def work(raw):
        document = read(tmp_path, suffix, raw, "text")
        assert document.written({}) == (raw if isinstance(raw, bytes) else raw.encode())
        translated(document, str.upper)

    for before, part, after in LONG[suffix]:

        def content(number, before=before, part=part, after=after):
            whole = before + part * number + after
            return archive("word/document.xml", whole) if suffix == ".docx" else whole

        assert_linear(work, content)


@each_format
@pytest.mark.parametrize("lost", ["", "word"])
def test_each_segment_is_translated_copied_or_named_in_a_note(tmp_path, name, lost):
    sample = SAMPLES[name]
    document = read(tmp_path, sample.suffix, sample.packed(sample.content), sample.column)
    job = new_job(lambda text: "" if lost and lost in text else text.replace("word", "wort"))
    raw = unpacked(sample, translated_document(document, "a", job)).decode()
    counts = job.counts
    kinds = ("translated", "had a translation", "copied", "not translated")
    assert counts["texts"] == len(document.units) == sum(counts[kind] for kind in kinds)
    named = {place for places in job.places_for_review.values() for place in places}
    for place, unit in zip(document.places(), document.units, strict=True):
        words = {word for text in unit.texts for word in re.findall(r"\w+", re.sub(r"</?[a-z][^<>]*>|\\", " ", text))}
        expected = words if lost or unit.is_translated else {word.replace("word", "wort") for word in words}
        assert not [word for word in expected if word not in raw and word.isascii()]
        if lost and not unit.is_translated and any(lost in text for text in unit.texts):
            assert f"a, {place}" in named
