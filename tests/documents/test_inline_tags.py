"""Text with inline tags: they come back once, and nested rightly, whatever a translation does with them."""

from itertools import chain
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.documents.xml_places import escaped
from mt_cli.translation.inline_tags import LIKE_TAG, Tag, TaggedText

TEXT = st.text(st.sampled_from("ab <>&\"'é/g=1"), max_size=8)
CODES = st.sampled_from(['<x id="1"/>', '<bpt id="1">&lt;b&gt;</bpt>', '<x id="2"/>', f'<x id="{"l" * 300}"/>'])


def element(pieces):
    return [Tag('<g id="1">', "g", "start"), *pieces, Tag("</g>", "g", "end")]


PIECES = st.recursive(
    st.lists(st.one_of(TEXT, CODES.map(lambda raw: Tag(raw, ""))), max_size=4),
    lambda inner: st.lists(st.one_of(inner, inner.map(element)), max_size=3).map(lambda parts: list(chain(*parts))),
    max_leaves=6,
)


def written(pieces):
    return "".join(escaped(piece) if isinstance(piece, str) else piece.raw for piece in pieces)


def tags_of(content):
    nodes = ElementTree.fromstring(f"<a>{content}</a>").iter()
    return sorted((node.tag, *node.attrib.items()) for node in nodes)


@settings(max_examples=60)
@given(PIECES, st.randoms(use_true_random=False))
def test_any_translation_keeps_each_tag_once_and_nested(pieces, random):
    tagged = TaggedText.of(pieces)
    assert tagged.written(tagged.text, escaped) == (written(pieces), False)
    parts = [part for part in LIKE_TAG.split(tagged.text) if part]
    translation = "".join(random.choices(parts, k=len(parts) + random.choice((-1, 0, 1)))) if parts else "<g>"
    content, _ = tagged.written(translation, escaped)
    assert tags_of(content) == tags_of(written(pieces))


@pytest.mark.parametrize(
    ("translation", "content", "is_repaired"),
    [
        ('<x id="2"/>clicca <g id="1">qui</g>', '<x id="2"/>clicca <g id="1">qui</g>', False),
        ('clicca <g id="1">qui<x id="2"/>', 'clicca <g id="1">qui<x id="2"/></g>', True),
        ("clicca qui</g>", 'clicca qui<g id="1"></g><x id="2"/>', True),
        ('<g id="1"><g id="1">qui</g></g><x id="2"/>', '<g id="1">qui</g><x id="2"/>', True),
        ('<g id="1">qui</g><x id="2"/> <b>1 < 2</b>', '<g id="1">qui</g><x id="2"/> 1 &lt; 2', True),
    ],
)
def test_tags_that_are_lost_doubled_or_invented_are_repaired(translation, content, is_repaired):
    tagged = TaggedText.of(["click ", *element(["here"]), Tag('<x id="2"/>', ""), "!"])
    assert tagged.written(translation, escaped) == (content, is_repaired)


def test_tags_around_a_text_and_content_of_codes_are_hidden():
    tagged = TaggedText.of([" ", Tag("<x/>", ""), *element(element(["here ", Tag("<x/>", ""), "now"])), " "])
    assert tagged.text == "here <x/>now"
    tagged = TaggedText.of(["Press ", Tag("<ph id='1'>&lt;img src='secret'&gt;</ph>", ""), " now"])
    assert "secret" not in tagged.text and tagged.written(tagged.text, escaped)[0].count("secret") == 1
