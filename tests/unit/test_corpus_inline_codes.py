"""Inline codes of TMX: where words stay apart, and what is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.formats import read_file
from mt_cli.corpus.inline_codes import SegmentText
from mt_cli.corpus.record import Reading, Record


def read_segment(folder, segment, keep=False, record=None):
    text = f'<tmx><tu><tuv lang="en"><seg>{segment}</seg></tuv><tuv lang="it"><seg>y</seg></tuv></tu></tmx>'
    (folder / "a.tmx").write_text(text, encoding="utf-8")
    reading = Reading(keep_codes=keep, record=record or Record())
    return next(read_file(folder / "a.tmx", ("en", "it"), None, reading))[1]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Press<ph>&lt;br/&gt;</ph>the button", "Press the button"),
        ("Press<ph/>the button", "Press the button"),
        ("Press<it pos='begin'>x</it>the", "Press the"),
        ("Press<ut>x</ut>the", "Press the"),
        ("Press<x id='1'/>the", "Press the"),
        ("3<ph/>4", "3 4"),
        ("क्लिक<ph/>करें", "क्लिक करें"),
        ("clické<ph/>e\u0301l", "clické e\u0301l"),
        ("un<bpt i='1'>&lt;b&gt;</bpt>believ<ept i='1'>&lt;/b&gt;</ept>able", "unbelievable"),
        ("Title<ept i='1'>&lt;/p&gt;</ept><bpt i='2'>&lt;p&gt;</bpt>Text", "Title Text"),
        ("Title<ept i='1'>\\par </ept>Text", "Title Text"),
        ("Title<bpt i='1' type='struct'/>Text", "Title Text"),
        ("<bpt i='1'/>Bold<ept i='1'/><ph/><bpt i='2'/>text<ept i='2'/>", "Bold text"),
        ("Click <hi>here</hi>now", "Click herenow"),
        ("A <g id='1'>red</g> light", "A red light"),
        ("The file <ph>%s</ph> has <ph>%d</ph> pages.", "The file has pages."),
        ("Dear <ph>{name}</ph>, welcome<ph/>.", "Dear, welcome."),
        ("Wait.<ph/>Then go (<ph/>now<ph/>)", "Wait. Then go (now)"),
        ("Dear <bpt i='1'/> <ph>{name}</ph>, welcome", "Dear, welcome"),
        ("Bonjour <ph>{nom}</ph> !", "Bonjour !"),
        ("点击<ph/>这里", "点击这里"),
        ("点击<ph/>OK", "点击OK"),
        ("คลิก<ph/>ที่นี่", "คลิกที่นี่"),
        ("<ph/>begin and end<ph/>", "begin and end"),
        ("a<ph>{0}<sub>x</sub></ph>b", "a b"),
    ],
)
def test_a_code_separates_words_and_nothing_else(tmp_path, segment, text):
    assert read_segment(tmp_path, segment) == text


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("The file <ph>%s</ph> has <ph x='1'>%d</ph> pages.", "The file %s has %d pages."),
        ("Dear <ph>{name}</ph>, <bpt i='1'>&lt;b&gt;</bpt>hi<ept i='1'>&lt;/b&gt;</ept>", "Dear {name}, <b>hi</b>"),
        ("a<ph>{0}<sub>x</sub></ph>b<ph/>c", "a{0}xb c"),
    ],
)
def test_the_content_of_codes_can_be_kept(tmp_path, segment, text):
    record = Record()
    assert read_segment(tmp_path, segment, keep=True, record=record) == text
    assert [*record.notes()] == [] or ("<ph/>" in segment and "does not say what they stand for" in record_note(record))


def record_note(record):
    (note,) = record.notes()
    return note


def test_content_that_is_left_out_and_placeholders_without_content_are_counted(tmp_path):
    record = Record()
    read_segment(tmp_path, "The file <ph>%s</ph> has <ph>%d</ph> pages<ph/>", record=record)
    (note,) = record.notes()
    assert note.startswith("the content of 3 inline codes is left out, such as `%s` (")
    assert "a.tmx, line 1); `inline_codes: keep` keeps it" in note
    record = Record()
    read_segment(tmp_path, "no <hi>code</hi>, an <bpt i='1'/>empty<ept i='1'/> pair", record=record)
    assert not [*record.notes()]


PARTS = st.lists(st.one_of(st.text("ab .,(é1", min_size=1, max_size=4), st.sampled_from(["ph", "bpt", "ept", "hi"])))


@given(PARTS)
def test_codes_never_change_letters_and_never_leave_two_spaces(parts):
    segment = SegmentText(keep_codes=False)
    texts = [
        " ".join(part.split()) if part.isspace() else part for part in parts if part not in ("ph", "bpt", "ept", "hi")
    ]
    for part in parts:
        if part in ("ph", "bpt", "ept", "hi"):
            segment.start(part, {})
            segment.characters("x" * (part != "hi"))
            segment.end()
        else:
            segment.characters(part)
    assert segment.text.replace(" ", "") == "".join(texts).replace(" ", "")
    if not any("  " in text for text in ["".join(part for part in parts if part not in ("ph", "bpt", "ept", "hi"))]):
        assert "  " not in segment.text
