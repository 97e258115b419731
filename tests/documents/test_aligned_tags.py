"""Tags of a text that is translated without them: each once, nested as before, and around the words that correspond."""

import json
from contextlib import nullcontext
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import new_job

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.documents.translate import translate_documents, translated
from mt_cli.errors import MtError
from mt_cli.translation.aligned_tags import TextWithoutTags
from mt_cli.translation.drafts import SPANS_REORDERED
from mt_cli.translation.inline_marks import InlineMarks
from mt_cli.translation.inline_tags import LIKE_TAG, Tag, TaggedText

some_examples = settings(max_examples=50)
WORDS = st.lists(st.sampled_from(["click", "here,", "(now)", "é", "—", "夜", "%s", "end."]), min_size=1, max_size=4)
SEPARATORS = st.sampled_from([" ", "", "  "])
TEXTS = st.tuples(SEPARATORS, WORDS.map(" ".join), SEPARATORS).map("".join)
NAMES = st.sampled_from(["b", "a", "g"])


@st.composite
def tagged_texts(draw, texts=TEXTS, depth=2):
    """Text with pairs of tags and single tags, one of them at least."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        inner = draw(tagged_texts(texts, depth - 1)) if depth and draw(st.booleans()) else draw(texts)
        name, is_pair = draw(NAMES), draw(st.booleans())
        parts += [draw(texts), f"<{name}>{inner}</{name}>" if is_pair else f"{inner}<x/>"]
    return "".join(parts)


def parents_of(content):
    return {child.get("n"): node.get("n") for node in ElementTree.fromstring(content).iter() for child in node}


def without_tags(source):
    return TextWithoutTags.of(source, InlineMarks().without_any(source))


@some_examples
@given(tagged_texts(), WORDS.map(" ".join), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_each_tag_occurs_once_whatever_the_alignment(source, translation, alignment):
    parts = source.split("<")
    source = parts[0] + "".join(
        f"<{part}" if part[0] == "/" else f"<{part[0]} n='{number}'{part[1:]}" for number, part in enumerate(parts[1:])
    )  # Each tag has a number of its own.
    text = without_tags(source)
    content, _ = text.with_tags(translation, alignment)
    assert parents_of(f"<root>{content}</root>") == parents_of(f"<root>{source}</root>")
    words = "".join(ElementTree.fromstring(f"<root>{content}</root>").itertext())
    assert words.replace(" ", "") == translation.replace(" ", "")
    assert text.with_tags(text.plain, []) == (source, False)


SPACED = st.lists(st.sampled_from(["click", "here,", "(now)", "é", "—", "end."]), min_size=1, max_size=4)


@some_examples
@given(tagged_texts(SPACED.map(lambda words: f"{' '.join(words)} ")))
def test_words_that_keep_their_order_keep_their_tags(source):
    """The translation is in capitals, so that no word stays the same."""
    source += "end"
    text = without_tags(source)
    words = len(text.plain.split())
    expected = "".join(part if part.startswith("<") else part.upper() for part in LIKE_TAG.split(source))
    assert text.with_tags(text.plain.upper(), [(word, word) for word in range(words)]) == (expected, False)


def reverse(number):
    return [(word, number - 1 - word) for word in range(number)]


@pytest.mark.parametrize(
    ("source", "translation", "alignment", "expected"),
    [
        ("one <b>two three</b> four.", "DREI, ZWEI EINS", [(0, 2), (1, 1), (2, 0)], "<b>DREI, ZWEI</b> EINS"),
        ("one <b>two</b> <b>(x)</b>.", "(X). ZWEI EINS", reverse(3), "<b>(X)</b>. <b>ZWEI</b> EINS"),
        ("<i>a <b>b</b></i> c", "C B A", reverse(3), "C <i><b>B</b> A</i>"),
        ("a.<br/>b", "A. B", [(0, 0), (1, 1)], "A.<br/> B"),
        ("a <b>b <x/></b> c", "A C B", [(0, 0), (1, 2), (2, 1)], "A C <b><x/>B</b>"),
        ("see <li>this page", "PAGE THIS SEE", reverse(3), "PAGE <li>THIS SEE"),  # Its end tag is missing.
        ("今<b>夜</b>は", "the <night>", [(1, 1)], "the <<b>night</b>>"),
        ("List<String> is <b>new</b>", "List<String> ist neu", [(0, 0), (1, 1), (2, 2)], "List<String> ist <b>neu</b>"),
    ],
)  # fmt: skip
def test_tags_go_to_the_words_that_correspond(source, translation, alignment, expected):
    assert without_tags(source).with_tags(translation, alignment) == (expected, False)


def test_a_pair_of_tags_without_corresponding_words_is_a_guess():
    text = without_tags("one <b>two</b> three")
    assert text.with_tags("EINS ZWEI DREI", [(0, 0), (2, 2)]) == ("EINS <b>ZWEI</b> DREI", True)
    assert text.with_tags("EINS", [(0, 0)]) == ("<b>EINS</b>", True)
    assert text.with_tags("", []) == ("<b></b>", True)


@pytest.mark.parametrize("source", ["a < b", "List<String>", "a" + "<b>" * 200 + "x" + "</b>" * 200])
def test_text_without_tags_is_left_to_the_translator(source):
    assert without_tags(source) is None


def reversed_capitals(line):
    return " ".join(word if word[0] in "%{" else word.upper() for word in reversed(line.split()))


XLIFF = (
    '<xliff version="2.0" srcLang="en"><file id="f"><unit id="u"><segment><source>{}</source></segment></unit></file>'
    "</xliff>"
)
DOCUMENTS = [
    (".html", "<p>see <a href='x'>this</a> page</p>", "PAGE <a href='x'>THIS</a> SEE"),
    (".po", 'msgid "see <b>this</b> page"\nmsgstr ""\n', 'msgstr "PAGE <b>THIS</b> SEE"'),
    (".xlf", XLIFF.format('see <pc id="1">this</pc> page'), '<target>PAGE <pc id="1">THIS</pc> SEE</target>'),
    (".md", "see <b>this</b> page\n", "PAGE <b>THIS</b> SEE\n"),
]


@pytest.mark.parametrize(("suffix", "content", "expected"), DOCUMENTS)
def test_tags_of_a_document_follow_their_words(tmp_path, suffix, content, expected):
    path, job = tmp_path / f"a{suffix}", new_job(reversed_capitals, reverse)
    path.write_text(content, encoding="utf-8")
    assert expected in translated(path, job).decode() and not job.places_for_review
    assert job.translator.seen == ["see this page"]


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ('see <a href="%s">this</a> %d', [SPANS_REORDERED]),
        ('see <a href="%s">this</a> %s', []),
        ('see <a href="%1$s">this</a> %2$d', []),
    ],
)
def test_placeholders_in_another_order_are_named(tmp_path, content, problems):
    path, job = tmp_path / "a.json", new_job(reversed_capitals, reverse)
    path.write_text(json.dumps(content), encoding="utf-8")
    translated(path, job)
    assert list(job.places_for_review) == problems
    with pytest.raises(MtError, match=SPANS_REORDERED) if problems else nullcontext():
        translate_documents(path, tmp_path / "b.json", new_job(reversed_capitals, reverse), is_strict=True)


@pytest.mark.parametrize(
    "source",
    [
        'a <sc id="1"/>red <sc id="2"/>dog<ec startRef="1"/> x<ec startRef="2"/> y',
        'a <sc id="1"/>red <pc id="2">dog<ec startRef="1"/> x</pc> y',
        'a <pc id="2">red <sc id="1"/>dog</pc> x<ec startRef="1"/> y',
    ],
)
@pytest.mark.parametrize("protection", [UNPROTECTED, Protection(("markup",))])
def test_the_end_of_a_range_never_comes_before_its_beginning(tmp_path, source, protection):
    path = tmp_path / "a.xlf"
    path.write_text(XLIFF.format(source), encoding="utf-8")
    written = translated(path, new_job(reversed_capitals, reverse, protection)).decode()
    target = written[written.index("<target>") + 8 : written.index("</target>")]
    ElementTree.fromstring(f"<root>{target}</root>")
    assert sorted(LIKE_TAG.findall(target)) == sorted(LIKE_TAG.findall(source))
    for number in "12":
        assert target.find(f'<sc id="{number}"/>') <= target.find(f'<ec startRef="{number}"/>')


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<bpt rid='1' id='1'/>", "<ept rid='1' id='2'/>"),
        ("<x:bx id='4'/>", "<x:ex id='4'/>"),
        ('</w:t></w:r><w:bookmarkStart w:id="0" w:name="n"/><w:r><w:t>', '</w:t></w:r><w:bookmarkEnd w:id="0"/><w:r>'),
        ('<text:bookmark-start text:name="n" xml:id="x"/>', '<text:bookmark-end text:name="n"/>'),
    ],
)
def test_codes_of_a_range_go_around_its_words(begin, end):
    tagged = TaggedText.of(["a ", Tag(begin, ""), "red dog", Tag(end, ""), " runs"])
    content, is_guess = without_tags(tagged.text).with_tags("runs dog red a", reverse(4))
    assert tagged.written(content, str) == (f"runs {begin}dog red{end} a", False) and not is_guess
