"""Inline codes of TMX: where words stay apart, and what is kept."""

import re
from xml.etree.ElementTree import fromstring

import pytest
from formats import numbered
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.inline_codes import SegmentText


def text_of(segment, keep_codes=False):
    return SegmentText(fromstring(f"<seg>{segment}</seg>"), keep_codes).text


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Press<ph>&lt;br/&gt;</ph>the button", "Press the button"),
        ("Press<ph/>the button", "Press the button"),
        ("Press<it pos='begin'>x</it>the<ut>x</ut>big<x id='1'/>button", "Press the big button"),
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
        ("Wait.<ph/>Then go (<ph/>now<ph/>)", "Wait. Then go (now)"),
        ("Dear <bpt i='1'/> <ph>{name}</ph>, welcome", "Dear, welcome"),
        ("Bonjour <ph>{nom}</ph> !", "Bonjour !"),
        ("点击<ph/>这里<ph/>OK", "点击这里OK"),
        ("คลิก<ph/>ที่นี่", "คลิกที่นี่"),
        ("<ph/>begin and end<ph/>", "begin and end"),
        ("a<ph>{0}<sub>x</sub></ph>b", "a b"),
    ],
)
def test_a_code_separates_words_and_nothing_else(segment, text):
    assert text_of(segment) == text


def test_the_content_of_codes_can_be_kept():
    segment = (
        "Dear <ph>{name}</ph>, <bpt i='1'>&lt;b&gt;</bpt>hi<ept i='1'>&lt;/b&gt;</ept> a<ph>{0}<sub>x</sub></ph>b<ph/>c"
    )
    assert text_of(segment, keep_codes=True) == "Dear {name}, <b>hi</b> a{0}xb c"


@pytest.mark.parametrize(
    ("segment", "keep", "note"),
    [
        ("The file <ph>%s</ph> has <ph>%d</ph> pages<ph/>", False, "3 inline codes .*`%s` .*line 1.*inline_codes"),
        ("a<ph>{0}</ph>b<ph/>c", True, "1 inline code .*`<ph/>` .*inline_codes"),
        ("no <hi>code</hi>, an <bpt i='1'/>empty<ept i='1'/> pair", False, None),
    ],
)
def test_dropped_content_and_placeholders_without_content_are_counted(tmp_path, segment, keep, note):
    text = f'<tmx><tu><tuv lang="en"><seg>{segment}</seg></tuv><tuv lang="it"><seg>y</seg></tuv></tu></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    notes = list(numbered(tmp_path / "a.tmx", keep_codes=keep)[1].notes())
    assert not notes if note is None else len(notes) == 1 and re.search(note, notes[0])


CODES = ("ph", "bpt", "ept", "hi")
PARTS = st.lists(st.one_of(st.text("ab .,(é1", min_size=1, max_size=4), st.sampled_from(CODES)))


@given(PARTS)
def test_codes_never_change_letters_and_never_leave_two_spaces(parts):
    segment = "".join(f"<{part}>{'x' * (part != 'hi')}</{part}>" if part in CODES else part for part in parts)
    texts = "".join(part for part in parts if part not in CODES)
    text = text_of(segment)
    assert text.replace(" ", "") == texts.replace(" ", "")
    assert "  " in texts or "  " not in text
