"""Marks of a text: they are found, and come back whatever a translator does with them."""

import random

import pytest
from linear import assert_linear
from round_trips import new_job, read

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.documents.translate import translated
from mt_cli.translation.aligned_tags import TextWithoutTags
from mt_cli.translation.drafts import MARKS_GUESSED, SPANS_LOST
from mt_cli.translation.inline_marks import EMPHASIS, PLACEHOLDERS, InlineMarks
from mt_cli.translation.inline_tags import Tag

MARKDOWN = ("markdown", *PLACEHOLDERS, EMPHASIS)


def marks_of(text, kinds=MARKDOWN, protection=UNPROTECTED):
    """Marks of a text, with < before the start of a pair and > before its end."""
    signs = {"start": "<", "end": ">", "": ""}
    pieces = InlineMarks(kinds, protection).without_any(text)
    assert "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces) == text
    return [signs[piece.kind] + piece.raw for piece in pieces if isinstance(piece, Tag)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a **b _c_ d** e ***f*** ~~g~~", ["<**", "<_", ">_", ">**", "<***", ">***", "<~~", ">~~"]),
        (r"2*3*4 a_b_c \*d\* e * __f \[e](f) [g] [h]", []),
        ("[a *b*](x_y_z) ![i](p.png) [j [k] l](d)", ["<[", "<*", ">*", ">](x_y_z)", "<![", ">](p.png)", "<[", ">](d)"]),
        ("run `a *b* [c](d)` now", ["`a *b* [c](d)`"]),
        ("<b>a</b> **{x}** %s", ["<<b>", "></b>", "<**", "{x}", ">**", "%s"]),
        ("see http://a.b/c_d_e. or x@y.org", ["http://a.b/c_d_e", "x@y.org"]),
        ("[![a](b.png)](c) [d](e_(f)) [g](<h i> 'j') ![](k)", None),
        ("see <http://a.b> <c@d.org> [^1] ```e``` [`f`](g) <!-- h --> &nbsp;", None),
    ],
)
def test_marks_of_markdown_are_found_and_paired(text, expected):
    if expected is None:  # Nothing else than letters is left.
        text_alone = [piece for piece in InlineMarks(MARKDOWN).without_any(text) if isinstance(piece, str)]
        assert "".join(text_alone).replace(" ", "").isalpha()
    else:
        assert marks_of(text) == expected


NESTED = "{n, plural, one {a dog} other {# dogs {x, select, y {{z}}}}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**a** %d {x} <i>y</i>", ["%d", "{x}", "<<i>", "></i>"]),
        (f"{NESTED} now", [NESTED]),
        ("{0,choice,0#no|1#one|1<{0,number,integer}} now", ["{0,choice,0#no|1#one|1<{0,number,integer}}"]),
        ('<a href="http://{c}">d</a>', ['<<a href="http://{c}">', "></a>"]),
        ("<v Bob>a <c.red>b</c> <00:01.500>", ["<v Bob>", "<<c.red>", "></c>", "<00:01.500>"]),
        ("%{a} of #{b}, %<n>d %<m>05.2f at 50% or %50, $5", ["%{a}", "#{b}", "%<n>d", "%<m>05.2f"]),
        ("{% if a.b %}one{% endif %} {{ c | d }}", ["{% if a.b %}", "{% endif %}", "{{ c | d }}"]),
        ("run `mt -x`, [[${x}]] [a](b) `c' or `d' of `e`", ["[[${x}]]", "`e`"]),
    ],
)
def test_placeholders_of_any_format_are_found(text, expected):
    assert marks_of(text, PLACEHOLDERS) == expected


def test_texts_of_programs_have_links():
    marks = marks_of("Read [the *page* {a}](http://b/{c}) [{0}][{1}] [d]", ("interface", *PLACEHOLDERS))
    assert marks == ["<[", "{a}", ">](http://b/{c})", "{0}", "{1}"]


def test_marks_that_a_model_protects_are_left_to_it():
    braces = InlineMarks(MARKDOWN, Protection(("braces",)))
    assert marks_of("{a} %s", protection=braces.protection) == ["%s"]
    assert braces.has_same_marks("{a} %s", "%s") and not braces.has_same_marks("{a} %s", "{a}")
    links = InlineMarks(MARKDOWN, Protection((), (r"\[|\]\(.*?\)",)))
    assert links.without_unprotected("[a](b)") is None and links.without_unprotected("**a**")
    assert InlineMarks(MARKDOWN).without_unprotected("run `x` {y}") is None  # Tried as it is first.
    tags = InlineMarks()
    assert tags.has_same_marks("a <b>b</b>", "<b>B</b> A") and not tags.has_same_marks("a <b>b</b>", "</b>A<b> B")


@pytest.mark.parametrize("part", ["*a ", "**a** ", "<b>a</b> {x} ", "[", "`a", "{a,plural,", "{a,plural,{b}", "%"])
def test_finding_marks_takes_linear_time(part):
    assert_linear(lambda text: InlineMarks(MARKDOWN).has_same_marks(text, text), part.__mul__)


def careless(line):
    """Translation that loses everything that is not a word."""
    return " ".join(word.upper() for word in line.split() if word.strip(".,").isalpha())


def in_order(number):
    return [(word, word) for word in range(number)]


@pytest.mark.parametrize(
    ("suffix", "content", "expected", "is_guess"),
    [
        (".md", "see **this** and [that](x)\n", "SEE **THIS** AND [THAT](x)\n", False),
        (".json", '{"a": "delete %d files"}', '{"a": "DELETE %d FILES"}', True),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\nsee http://a.b now\n", "SEE http://a.b NOW", True),
        (".json", '{"a": "%s", "b": "{x} {y}"}', '{"a": "%s", "b": "{x} {y}"}', False),
    ],
)
def test_marks_that_a_model_would_lose_come_back(tmp_path, suffix, content, expected, is_guess):
    path, job = tmp_path / f"a{suffix}", new_job(careless, in_order)
    path.write_text(content, encoding="utf-8")
    assert expected in translated(path, job).decode()
    assert list(job.places_for_review) == [MARKS_GUESSED] * is_guess


def test_a_protected_span_that_is_lost_is_not_searched(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": "hello {name}"}', encoding="utf-8")
    job = new_job(careless, in_order, Protection(("braces",)), lost=("{name}",))
    translated(path, job)
    assert job.translator.seen == ["hello {name}"] and list(job.places_for_review) == [SPANS_LOST]


@pytest.mark.parametrize(
    ("source", "translation", "alignment", "expected"),
    [
        ("open (%s) now", "NUN AUF", [(0, 1), (1, 0)], "NUN %s AUF"),
        ("%s: now", "NUN", [], "%s NUN"),
        ("a <b>%s</b> plays", "A SPIELT", [(0, 0), (1, 1)], "A <b>%s</b> SPIELT"),
        ("x%d files", "DATEIEN X", [(0, 1), (1, 0)], "DATEIEN X%d"),
        ("the **red** _door_", "ROT", [(1, 0)], "**ROT**"),
    ],
)
def test_placeholders_have_the_spaces_of_the_source(source, translation, alignment, expected):
    text = TextWithoutTags.of(source, InlineMarks(MARKDOWN).without_any(source))
    assert text.with_tags(translation, alignment)[0] == expected


def test_no_mark_is_lost_or_doubled(tmp_path):
    generator = random.Random(5)
    words = ["see", "this", "**now**", "_or_", "[here](x)", "`code`", "%s", "{a}", "<b>bold</b>", "http://a.b"]
    for _ in range(30):
        path = tmp_path / "a.md"
        path.write_text(f"go {' '.join(generator.choices(words, k=9))} end\n", encoding="utf-8")
        draft = translated(path, new_job(careless, in_order))
        marks = []
        for content in (path.read_bytes(), draft):
            units = read(tmp_path, ".md", content).units
            marks.append(sorted(mark for unit in units for text in unit.texts for mark in marks_of(text)))
        assert marks[0] == marks[1]


@pytest.mark.parametrize(
    ("source", "translation", "lost"),
    [
        ("Move $1 to $2", "Verschiebe nach", ["$1", "$2"]),
        ("Move %1 to $2", "Verschiebe %1 nach $2", []),
        ("It costs $3.", "它要3美元", []),
        ("It costs $3.", "يكلف ٣ دولارات", []),
        ("It costs $2.50, $5m or $10", "Viel Geld", []),
        ("He's 100%, \\$1 %%1 a$1", "Er ist es", []),
    ],
)
def test_numbers_with_a_sign_are_lost_if_no_form_of_the_number_is_left(source, translation, lost):
    assert InlineMarks(PLACEHOLDERS).lost_numbers(source, translation) == lost
