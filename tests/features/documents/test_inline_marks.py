import random
import time
from types import SimpleNamespace

import pytest

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.features.documents.aligned_tags import TextWithoutTags
from mt_cli.features.documents.document import Options
from mt_cli.features.documents.formats import read_document
from mt_cli.features.documents.inline_marks import EMPHASIS, PLACEHOLDERS, QT, InlineMarks
from mt_cli.features.documents.inline_tags import Tag
from mt_cli.features.documents.translate import MARKS_GUESSED, SPANS_LOST, Job, translated

MARKDOWN, REST = (("markdown", *PLACEHOLDERS, EMPHASIS), ("rest", *PLACEHOLDERS, EMPHASIS))


def marks_of(text, kinds=MARKDOWN, protection=UNPROTECTED):
    """Marks of a text, with < before the start of a pair and > before its end."""
    signs = {"start": "<", "end": ">", "": ""}
    pieces = InlineMarks(kinds, protection).without_any(text)
    assert "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces) == text
    return [signs[piece.kind] + piece.raw for piece in pieces if isinstance(piece, Tag)]


@pytest.mark.parametrize(
    ("kinds", "text", "expected"),
    [
        (MARKDOWN, "a **b _c_ d** e", ["<**", "<_", ">_", ">**"]),
        (MARKDOWN, "***a*** ~~b~~", ["<***", ">***", "<~~", ">~~"]),
        (MARKDOWN, r"2*3*4 a_b_c \*d\* * e * __f", []),
        (MARKDOWN, "[a *b*](x_y_z) ![i](p.png)", ["<[", "<*", ">*", ">](x_y_z)", "<![", ">](p.png)"]),
        (MARKDOWN, "run `a *b* [c](d)` now", ["`a *b* [c](d)`"]),
        (MARKDOWN, "<b>a</b> **{x}** %s", ["<<b>", "></b>", "<**", "{x}", ">**", "%s"]),
        (MARKDOWN, "see http://a.b/c_d_e. or x@y.org", ["http://a.b/c_d_e", "x@y.org"]),
        (REST, ":ref:`a <b>` ``c`` *d* |e|", ["<:ref:`", "> <b>`", "``c``", "<*", ">*", "|e|"]),
        (MARKDOWN, "[![a](b.png)](c) [d](e_(f)) [g](<h i> 'j') ![](k)", None),
        (MARKDOWN, "see <http://a.b> <c@d.org> [^1] ```e``` [`f`](g) <!-- h --> &nbsp;", None),
        (MARKDOWN, "[a [b] c](d) \\[e](f) [g] [h]", ["<[", ">](d)"]),
        (PLACEHOLDERS, '<a href="%s">b</a> <a href="http://{c}">d</a>', None),
        (
            PLACEHOLDERS,
            "{n, plural, one {a dog} other {# dogs {x}}} now",
            ["{n, plural, one {a dog} other {# dogs {x}}}"],
        ),
        (PLACEHOLDERS, "<v Bob>a <c.red>b</c> <00:01.500>", ["<v Bob>", "<<c.red>", "></c>", "<00:01.500>"]),
        (PLACEHOLDERS, "**a** %d files in {dir}", ["%d", "{dir}"]),
        (PLACEHOLDERS, "%{a} of #{b}, %<n>d at 50% or %50, $5", ["%{a}", "#{b}", "%<n>d"]),
        (PLACEHOLDERS, "%<n>.2f %<m>05d, %<k>s", ["%<n>.2f", "%<m>05d", "%<k>s"]),
        ((*PLACEHOLDERS, QT), "%1 of %L2 at 50% %1$s", ["%1", "%L2", "%1$s"]),
        (PLACEHOLDERS, "{% if a.b %}one{% endif %} {{ c | d }}", ["{% if a.b %}", "{% endif %}", "{{ c | d }}"]),
        ((), "**a** %d {x} <i>y</i>", ["<<i>", "></i>"]),
    ],
)
def test_marks_of_a_text_are_found_and_paired(kinds, text, expected):
    if expected is None:  # Nothing else than letters is left.
        text_alone = [piece for piece in InlineMarks(kinds).without_any(text) if isinstance(piece, str)]
        assert "".join(text_alone).replace(" ", "").isalpha()
    else:
        assert marks_of(text, kinds) == expected


def test_marks_that_a_model_protects_are_left_to_it():
    braces = InlineMarks(MARKDOWN, Protection(("braces",)))
    assert marks_of("{a} %s", protection=braces.protection) == ["%s"]
    assert braces.has_same_marks("{a} %s", "%s") and not braces.has_same_marks("{a} %s", "{a}")
    links = InlineMarks(MARKDOWN, Protection(("markdown",)))
    assert links.without_unprotected("[a](b)") is None and links.without_unprotected("**a**")
    assert InlineMarks(MARKDOWN).without_unprotected("run `x` {y}") is None  # Tried as it is first.


def test_many_marks_take_a_moment():
    for text in ("*a " * 20_000, "**a** " * 20_000, "<b>a</b> {x} " * 10_000, "[" * 20_000):
        started_at = time.process_time()
        InlineMarks(MARKDOWN).has_same_marks(text, text)
        assert time.process_time() - started_at < 20


class Careless:
    """A translator that loses marks of some kinds, and everything that is not a word."""

    protection, languages = UNPROTECTED, ("en", "de")

    def __init__(self, protection=UNPROTECTED, lost=frozenset()):
        self.protection, self.lost, self.seen = protection, lost, []

    def translate_fully(self, lines, **search):
        self.seen += lines
        texts = [" ".join(word.upper() for word in line.split() if word.strip(".,").isalpha()) for line in lines]
        return [SimpleNamespace(text=text, lost_spans=self.lost, reordered_spans=()) for text in texts]

    def word_alignments(self, items):
        return [[(word, word) for word in range(len(item.text.split()))] for item in items]


@pytest.mark.parametrize(
    ("suffix", "content", "expected", "is_guess"),
    [
        (".md", "see **this** and [that](x)\n", "SEE **THIS** AND [THAT](x)\n", False),
        (".md", "run `mt` now\n", "RUN `mt` NOW\n", True),
        (".rst", "see *this* and `that <x>`_\n", "SEE *THIS* AND `THAT <x>`_\n", False),
        (".json", '{"a": "delete %d files"}', '{"a": "DELETE %d FILES"}', True),
        (".properties", "a = hello {name} there\n", "a = HELLO {name} THERE\n", True),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\nsee http://a.b now\n", "SEE http://a.b NOW", True),
        (".json", '{"a": "hello you"}', '{"a": "HELLO YOU"}', False),
        (".json", '{"a": "%s", "b": "{x} {y}"}', '{"a": "%s", "b": "{x} {y}"}', False),
    ],
)
def test_marks_that_a_model_would_lose_come_back_and_placeholders_are_named(
    tmp_path, suffix, content, expected, is_guess
):
    path, job = tmp_path / f"a{suffix}", Job(Careless(), {}, Options(("en", "de")))
    path.write_text(content, encoding="utf-8")
    assert expected in translated(path, job).decode()
    assert list(job.places_for_review) == [MARKS_GUESSED] * is_guess


def test_a_protected_span_that_is_lost_is_not_searched_for_in_vain(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": "hello {name}"}', encoding="utf-8")
    job = Job(Careless(Protection(("braces",)), ("{name}",)), {}, Options(("en", "de")))
    translated(path, job)
    assert job.translator.seen == ["hello {name}"] and list(job.places_for_review) == [SPANS_LOST]


@pytest.mark.parametrize(
    ("source", "translation", "alignment", "expected"),
    [
        ("open %s, now", "MACH AUF NUN", [(0, 0), (2, 2)], "MACH %s AUF NUN"),
        ("open (%s) now", "NUN AUF", [(0, 1), (1, 0)], "NUN %s AUF"),
        ("%s: now", "NUN", [], "%s NUN"),
        ("now: (%s)", "NUN", [(0, 0)], "NUN %s"),
        ("a <b>%s</b> plays", "A SPIELT", [(0, 0), (1, 1)], "A <b>%s</b> SPIELT"),
        ("[%s](u): a dog", "EIN HUND", [], "[%s](u) EIN HUND"),
        ("x%d files", "DATEIEN X", [(0, 1), (1, 0)], "DATEIEN X%d"),
        ("the **red** _door_", "ROT", [(1, 0)], "**ROT**"),
    ],
)
def test_placeholders_have_the_spaces_of_the_source_and_emphasis_of_nothing_is_left_out(
    source, translation, alignment, expected
):
    text = TextWithoutTags.of(source, InlineMarks(MARKDOWN).without_any(source))
    assert text.with_tags(translation, alignment)[0] == expected


def test_no_mark_is_lost_or_doubled_whatever_a_translator_does(tmp_path):
    generator = random.Random(5)
    words = [
        "see",
        "this",
        "**now**",
        "_or_",
        "[here](x)",
        "`code`",
        "%s",
        "{a}",
        "<b>bold</b>",
        "http://a.b",
    ]
    for number in range(60):
        path = tmp_path / f"{number}.md"
        path.write_text(f"go {' '.join(generator.choices(words, k=9))} end\n", encoding="utf-8")
        path.with_suffix(".draft.md").write_bytes(translated(path, Job(Careless(), {}, Options(("en", "de")))))
        source, target = (
            [text for unit in read_document(each, Options()).units for text in unit.texts]
            for each in (path, path.with_suffix(".draft.md"))
        )
        assert sorted(mark for text in source for mark in marks_of(text)) == sorted(
            mark for text in target for mark in marks_of(text)
        )
