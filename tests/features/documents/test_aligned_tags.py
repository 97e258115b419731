"""Tags of a text that is translated without them: each once, nested as before, and around the words that correspond."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.errors import MtError
from mt_cli.features.documents.aligned_tags import TextWithoutTags
from mt_cli.features.documents.document import Options
from mt_cli.features.documents.inline_marks import InlineMarks
from mt_cli.features.documents.inline_tags import LIKE_TAG, Tag, TaggedText
from mt_cli.features.documents.translate import MARKS_GUESSED, SPANS_REORDERED, Job, translate_documents, translated

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


@given(tagged_texts(), WORDS.map(" ".join), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20))))
def test_each_tag_occurs_once_and_is_nested_as_before_whatever_the_alignment(source, translation, alignment):
    parts = source.split("<")
    source = parts[0] + "".join(
        f"<{part}" if part[0] == "/" else f"<{part[0]} n='{number}'{part[1:]}" for number, part in enumerate(parts[1:])
    )  # Each tag has a number of its own.
    text = without_tags(source)
    content, _ = text.with_tags(translation, alignment)
    assert parents_of(f"<root>{content}</root>") == parents_of(f"<root>{source}</root>")
    words = "".join(ElementTree.fromstring(f"<root>{content}</root>").itertext())
    assert words.replace(" ", "") == translation.replace(" ", "")


@given(tagged_texts())
def test_words_that_stay_the_same_keep_their_tags_byte_for_byte(source):
    text = without_tags(source)
    assert text.with_tags(text.plain, []) == (source, False)


SPACED = st.lists(st.sampled_from(["click", "here,", "(now)", "é", "—", "end."]), min_size=1, max_size=4)


@given(tagged_texts(SPACED.map(lambda words: f"{' '.join(words)} ")))
def test_words_that_keep_their_order_keep_their_tags(source):
    """The translation is in capitals, so that no word stays the same."""
    source += "end"
    text = without_tags(source)
    words = len(text.plain.split())
    content, is_guess = text.with_tags(text.plain.upper(), [(word, word) for word in range(words)])
    expected = "".join(part if part.startswith("<") else part.upper() for part in text_and_tags(source))
    assert (content, is_guess) == (expected, False)


def text_and_tags(source):
    parts = source.replace("<", "\0<").replace(">", ">\0").split("\0")
    return [part for part in parts if part]


def reverse(number):
    return [(word, number - 1 - word) for word in range(number)]


@pytest.mark.parametrize(
    ("source", "translation", "alignment", "expected"),
    [
        ("one <b>two three</b> four.", "DREI, ZWEI EINS", [(0, 2), (1, 1), (2, 0)], "<b>DREI, ZWEI</b> EINS"),
        ("one <b>two</b>.", "ZWEI. EINS", reverse(2), "<b>ZWEI</b>. EINS"),
        ("one <b>(two)</b>", "(ZWEI) EINS", reverse(2), "<b>(ZWEI)</b> EINS"),
        ("<i>a <b>b</b></i> c", "C B A", reverse(3), "C <i><b>B</b> A</i>"),
        ("<b>a</b> <i>b</i>", "B und A", [(0, 2), (1, 0)], "<i>B</i> und <b>A</b>"),
        ("a<br/>b", "A B", [(0, 0), (1, 1)], "A<br/> B"),
        ("a.<br/>b", "A. B", [(0, 0), (1, 1)], "A.<br/> B"),
        ("a <b><x/></b> b", "A B", [(0, 0), (1, 1)], "A <b><x/></b> B"),
        ("a <b>b <x/></b> c", "A B C", [(0, 0), (1, 1), (2, 2)], "A <b>B <x/></b> C"),
        ("a <b>b <x/></b> c", "A C B", [(0, 0), (1, 2), (2, 1)], "A C <b><x/>B</b>"),
        ("a <x/> b", "B A", reverse(2), "<x/> B A"),
        ("今<b>夜</b>は", "the <night>", [(1, 1)], "the <<b>night</b>>"),
        ("List<String> is <b>new</b>", "List<String> ist neu", [(0, 0), (1, 1), (2, 2)], "List<String> ist <b>neu</b>"),
    ],
)  # fmt: skip
def test_tags_go_to_the_words_that_correspond(source, translation, alignment, expected):
    assert without_tags(source).with_tags(translation, alignment) == (expected, False)


def test_a_pair_of_tags_whose_words_have_no_correspondence_is_a_guess():
    text = without_tags("one <b>two</b> three")
    assert text.with_tags("EINS ZWEI DREI", [(0, 0), (2, 2)]) == ("EINS <b>ZWEI</b> DREI", True)
    assert text.with_tags("EINS", [(0, 0)]) == ("<b>EINS</b>", True)
    assert text.with_tags("", []) == ("<b></b>", True)


@pytest.mark.parametrize("source", ["a < b", "List<String>", "a" + "<b>" * 200 + "x" + "</b>" * 200])
def test_text_without_tags_is_left_to_the_translator(source):
    assert without_tags(source) is None


@pytest.mark.parametrize(
    ("source", "plain", "expected"),
    [
        ("<p>see this page", "see this page", "<p>PAGE THIS SEE"),
        ("see <li>this page", "see this page", "PAGE <li>THIS SEE"),
        ("see <a href='x'>this", "see this", "<a href='x'>THIS SEE"),
    ],
)
def test_a_start_tag_whose_end_tag_is_missing_is_a_tag(source, plain, expected):
    text = without_tags(source)
    words = plain.split()
    assert text.plain == plain
    assert text.with_tags(" ".join(reversed(words)).upper(), reverse(len(words))) == (expected, False)


def test_tags_that_are_protected_are_left_to_the_model():
    for protection in (Protection(("markup",)), Protection((), ("<[^>]+>",))):
        assert InlineMarks(protection=protection).without_unprotected("a <b>b</b>") is None
    for protection in (Protection(("printf",)), Protection((), ("</b>",))):
        assert InlineMarks(protection=protection).without_unprotected("a <b>b</b>")
    marks = InlineMarks()
    assert marks.has_same_marks("a <b>b</b>", "<b>B</b> A")
    assert not marks.has_same_marks("a <b>b</b>", "</b>A<b> B") and not marks.has_same_marks("a <b>b</b>", "A B")


class Reverser:
    """A translator that reverses the words of a line and writes them in capitals."""

    protection, languages = UNPROTECTED, ("en", "de")

    def __init__(self, is_aligned=True):
        self.seen, self.is_aligned = [], is_aligned

    def translate_fully(self, lines, **search):
        self.seen += lines
        words = ([word if word[0] == "%" else word.upper() for word in line.split()] for line in lines)
        texts = [" ".join(reversed(of_line)) for of_line in words]
        orders = [("%d", "%s") if "%s" in line else () for line in lines]
        rows = zip(texts, orders, strict=True)
        return [SimpleNamespace(text=text, lost_spans=(), reordered_spans=order) for text, order in rows]

    def word_alignments(self, items):
        return [reverse(len(item.text.split())) if self.is_aligned else [] for item in items]


DOCUMENTS = [
    (".html", "<p>see <a href='x'>this</a> page</p>", "PAGE <a href='x'>THIS</a> SEE"),
    (".po", 'msgid "see <b>this</b> page"\nmsgstr ""\n', 'msgstr "PAGE <b>THIS</b> SEE"'),
    (
        ".xlf",
        '<xliff version="2.0" srcLang="en"><file id="f"><unit id="u"><segment><source>see <pc id="1">this</pc> page'
        "</source></segment></unit></file></xliff>",
        '<target>PAGE <pc id="1">THIS</pc> SEE</target>',
    ),
    (".json", '{"a": "see <b>this</b> page"}', '"PAGE <b>THIS</b> SEE"'),
    (".md", "see <b>this</b> page\n", "PAGE <b>THIS</b> SEE\n"),
]


@pytest.mark.parametrize(("suffix", "content", "expected"), DOCUMENTS)
def test_tags_of_a_document_follow_their_words(tmp_path, suffix, content, expected):
    path, job = tmp_path / f"a{suffix}", Job(Reverser(), {}, Options(("en", "de")))
    path.write_text(content, encoding="utf-8")
    assert expected in translated(path, job).decode() and not job.places_for_review
    assert job.translator.seen == ["see this page"]


def test_guessed_places_are_named_and_marked(tmp_path, capsys):
    path = tmp_path / "a.xlf"
    path.write_text(DOCUMENTS[2][1], encoding="utf-8")
    translate_documents(path, tmp_path / "b.xlf", Job(Reverser(False), {}, Options(("en", "de"))), is_strict=True)
    assert f"note: review {path}, line 1: {MARKS_GUESSED}" in capsys.readouterr().err
    assert 'state="initial"' in (tmp_path / "b.xlf").read_text(encoding="utf-8")


def test_placeholders_in_another_order_are_named_and_an_error_if_strict(tmp_path, capsys):
    path, job = tmp_path / "a.po", Job(Reverser(), {}, Options(("en", "de")))
    path.write_text('msgid "copy %s to %d"\nmsgstr ""\n', encoding="utf-8")
    translate_documents(path, tmp_path / "b.po", job, is_strict=False)
    assert f"note: review {path}, line 1: {SPANS_REORDERED}" in capsys.readouterr().err
    with pytest.raises(MtError, match=SPANS_REORDERED):
        translate_documents(path, tmp_path / "b.po", job, is_strict=True)


class PlainReverser(Reverser):
    """A translator that reverses the words of a line."""

    def translate_fully(self, lines, **search):
        texts = [" ".join(reversed(line.split())) for line in lines]
        return [SimpleNamespace(text=text, lost_spans=(), reordered_spans=()) for text in texts]


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ('see <a href="%s">this</a> %d', [SPANS_REORDERED]),
        ("<a b='{}'>x</a> {:d}", [SPANS_REORDERED]),
        ('see <a href="%s">this</a> %s', []),
        ('see <a href="%1$s">this</a> %2$d', []),
    ],
)
def test_placeholders_in_tags_count_for_the_order(tmp_path, content, problems):
    path, job = tmp_path / "a.json", Job(PlainReverser(), {}, Options(("en", "de")))
    path.write_text(json.dumps(content), encoding="utf-8")
    translated(path, job)
    assert list(job.places_for_review) == problems


RANGES = [
    ('a <sc id="1"/>red dog<ec startRef="1"/> runs', 'RUNS <sc id="1"/>DOG RED<ec startRef="1"/> A'),
    ('a <sc id="1"/>red <sc id="2"/>dog<ec startRef="2"/> x<ec startRef="1"/> y', None),
    ('a <sc id="1"/>red <sc id="2"/>dog<ec startRef="1"/> x<ec startRef="2"/> y', None),
    ('a <sc id="1"/>red <pc id="2">dog<ec startRef="1"/> x</pc> y', None),
    ('a <pc id="2">red <sc id="1"/>dog</pc> x<ec startRef="1"/> y', None),
]


@pytest.mark.parametrize(("source", "expected"), RANGES)
@pytest.mark.parametrize("protection", [UNPROTECTED, Protection(("markup",))])
def test_the_end_of_a_range_never_comes_before_its_beginning(tmp_path, source, expected, protection):
    path, job = tmp_path / "a.xlf", Job(Reverser(), {}, Options(("en", "de")))
    job.translator.protection = protection
    start, end = DOCUMENTS[2][1].split('see <pc id="1">this</pc> page')
    path.write_text(start + source + end, encoding="utf-8")
    target = translated(path, job).decode().split("<target>")[1].split("</target>")[0]
    ElementTree.fromstring(f"<root>{target}</root>")
    assert sorted(LIKE_TAG.findall(target)) == sorted(LIKE_TAG.findall(source))
    for number in "12":
        beginning, ending = f'<sc id="{number}"/>', f'<ec startRef="{number}"/>'
        assert target.find(beginning) <= target.find(ending)
    assert target == (expected or target)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<bpt id='1'>&lt;b></bpt>", "<ept id='1'>&lt;/b></ept>"),
        ("<bpt i='1' x='i' type='bold'/>", "<ept i='1'/>"),
        ("<bpt rid='1' id='1'/>", "<ept rid='1' id='2'/>"),
        ("<x:bx id='4'/>", "<x:ex id='4'/>"),
        ('</w:t></w:r><w:bookmarkStart w:id="0" w:name="n"/><w:r><w:t>', '</w:t></w:r><w:bookmarkEnd w:id="0"/><w:r>'),
        ('<text:bookmark-start text:name="n" xml:id="x"/>', '<text:bookmark-end text:name="n"/>'),
    ],
)
def test_codes_that_begin_and_end_a_range_go_around_its_words(begin, end):
    tagged = TaggedText.of(["a ", Tag(begin, ""), "red dog", Tag(end, ""), " runs"])
    text = without_tags(tagged.text)
    content, is_guess = text.with_tags("runs dog red a", reverse(4))
    assert tagged.written(content, str) == (f"runs {begin}dog red{end} a", False) and not is_guess
