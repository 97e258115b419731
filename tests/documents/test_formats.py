"""What is special to a format: which of its texts are translated, and how it writes them."""

import csv
import io
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest
from format_samples import CATALOGUE, SAMPLES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from round_trips import read, texts_of, translated

from mt_cli.documents.document import DocumentError
from mt_cli.documents.texts import one_line

some_examples = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
TIMES = "00:00:01,0 --> 00:00:02,0\n"
CUE = f"1\n{TIMES}"
XLIFF_1 = '<xliff version="1.2"><file source-language="en"{}>{}</file></xliff>'
XLIFF_2 = '<xliff version="2.0" srcLang="en"{}><file id="f"><unit id="u"><segment>{}</segment></unit></file></xliff>'
SEGMENTED = '<source>One. Two.</source><seg-source><g><mrk mtype="seg">One.</mrk> <mrk mtype="seg">Two.</mrk></g>'

TEXTS = {
    ".html": {
        "<p>a &amp; b</p><div>c<p>d</div>": ["a & b", "c", "d"],
        "<p>a<!-- no -->b <code>x y</code> c</p>": ["a<m1/>b <m4/> c"],
        "<p translate=no>a<p>b": ["b"],
        "<p>a <span translate='no'>b <i>c</i></span> d</p>": ["a <m2/> d"],
        "<p>a <img alt='b &lt; c'> d</p><img alt=''>": ["a <img alt='b &lt; c'> d", "b < c"],
        "<a href=http://a.b/ title=c>d</a>": ["d", "c"],
        "<p>a &lt;b&gt; &eacute;&#233;&nbsp;c & d &#; e &#x; <3</p>": ["a <b> éé\xa0c & d &#; e &#x; <3"],
    },
    ".md": {
        "a\nb  \nc\\\nd": ["a b", "c", "d"],
        "[a], [b][], [c d][ref] and `[a]`.\n\n[a]: x\n[b]: y\n[ref]: z": ["[a][a], [b][b], [c d][ref] and `[a]`."],
    },
    ".srt": {
        CUE + "- Yes.\n- No.": ["Yes.", "No."],
        CUE + "– ¿Sí?\n– No.": ["¿Sí?", "No."],
        CUE + "it is 1\n- x in total": ["it is 1 - x in total"],
        CUE + "映画は\nこれです": ["映画はこれです"],
        CUE + "영화는\n이것": ["영화는 이것"],
        f"{CUE}One\n2\n{TIMES}\nTwo\n\nStill two\n\n\n": ["One", "Two", "Still two"],
    },
    ".vtt": {"WEBVTT\n\n00:01.000 --> 00:02.000\nall.jpg#xywh=0,0,9,9\n": []},
    ".csv": {
        '"id, no";text\n1;a, b\n': ["a, b"],
        "text\n\n": [],
    },
    ".json": {f'[{"1" * 10_000}, "x", "\\ud83d\\ude00a\\/\\u0009b"]': ["x", "😀a/\tb"]},
    ".properties": {"a=The {0} isn''t here": ["The {0} isn't here"], "b=It isn''t": ["It isn''t"]},
    ".xlf": {
        XLIFF_1.format("", f"<trans-unit>{SEGMENTED}</seg-source></trans-unit>"): ["One.", "Two."],
        XLIFF_1.format(' target-language="en"', "<trans-unit><source>a\r\nb\rc</source></trans-unit>"): ["a\nb\nc"],
        XLIFF_1.format("", "<trans-unit><source>a</source><target state='new'>a</target></trans-unit>"): ["a"],
    },
}


@pytest.mark.parametrize("suffix", TEXTS)
def test_texts_are_divided_as_the_format_says(tmp_path, suffix):
    for content, texts in TEXTS[suffix].items():
        document = read(tmp_path, suffix, content, "text")
        assert [text for unit in document.units for text in unit.texts] == texts
        assert document.written({}) == content.encode()


WRITTEN = {
    ".html": [
        ("<p title='t'></p>", "&<'", "<p title='&amp;&lt;&#39;'></p>"),
        ("<img alt=t>", "a b", '<img alt="a b">'),
    ],
    ".json": [
        ('["a", "ü"]', "</é😀", '["</é😀", "ü"]'),
        ('["a", "\\u00fc", 1]', "</é😀", '["</\\u00e9\\ud83d\\ude00", "\\u00fc", 1]'),
    ],
    ".properties": [
        ("a=x\n", "é漢😀=:", "a=\\u00E9\\u6F22\\uD83D\\uDE00=:\n"),
        ("a=The {0} isn''t\n", "l'{0}", "a=l''{0}\n"),
        ("a=one two \\\r\n    six\r\n", " one a\nsix", "a=\\ one a\\nsix\r\n"),
    ],
    ".csv": [
        ("text,n\na,1\n", "x, y", 'text,n\n"x, y",1\n'),
        ('text,n\n"a",1\n', "x", 'text,n\n"x",1\n'),
        ("text\na\n", "", 'text\n""\n'),
    ],
    ".tsv": [("text\tn\na\t1\n", 'x\t\n"y', 'text\tn\nx "y\t1\n')],
    ".md": [
        ("> * some words in\r\n>   three lines\r\n", "some und words und in", "> * some und\r\n>   words und in\r\n"),
        ("See [the guide].\n\n[the guide]: a\n", "[Der Weg][the guide]", "[Der Weg][the guide]\n\n[the guide]: a\n"),
        ("| a |\n|---|\n", "b|\n\\|", "| b\\| \\| |\n|---|\n"),
    ],
    ".srt": [
        (f"{CUE}a\nb\n", "漢字" * 8, f"{CUE}{'漢字' * 4}\n{'漢字' * 4}\n"),
        (f"{CUE}a\nb\n", "<v Roger Bingham>one two three four", f"{CUE}<v Roger Bingham>one two\nthree four\n"),
    ],
    ".vtt": [("WEBVTT\n\n00:01.0 --> 00:02.0\na\n", "b\n\n1 --> 2", "WEBVTT\n\n00:01.0 --> 00:02.0\nb 1 --&gt; 2\n")],
    ".xlf": [
        (
            XLIFF_1.format("", "<trans-unit><source><![CDATA[a & b]]></source></trans-unit>"),
            "a ]]> b",
            "<![CDATA[a ]]]]><![CDATA[> b]]></target>",
        ),
        (XLIFF_1.format("", "<trans-unit><source>a</source></trans-unit>"), "b", '"en" target-language="pt-BR">'),
        (XLIFF_2.format("", "<source>a</source>"), "b", ' trgLang="pt-BR"><file'),
        (
            XLIFF_1.format(
                "",
                "<trans-unit><source>c</source><target>d</target></trans-unit>"
                "<trans-unit><source>a</source></trans-unit>",
            ),
            "b",
            '"en" target-language="pt-BR">',
        ),
        (XLIFF_2.format("", "<source>a<x/>b</source>"), "b", 'state="initial"'),
    ],
}


@pytest.mark.parametrize("suffix", WRITTEN)
def test_translations_are_written_as_the_document_writes(tmp_path, suffix):
    for content, translation, expected in WRITTEN[suffix]:
        document = read(tmp_path, suffix, content, "text", target="pt_BR")
        texts = {next(unit for unit in document.units if not unit.is_translated).texts[0]: translation}
        written = translated(document, lambda text, texts=texts: texts.get(text, text)).decode()
        assert (expected in written) if suffix == ".xlf" else (expected == written)


@pytest.mark.parametrize(("encoding", "expected"), [("utf-16", "\u1234"), ("cp1252", "&#4660;"), ("koi8-r", "&#4660;")])
@pytest.mark.parametrize("suffix", [".xhtml", ".xlf"])
def test_characters_that_an_encoding_lacks_become_numbers(tmp_path, suffix, encoding, expected):
    content = "<p>a</p>" if suffix == ".xhtml" else XLIFF_2.format("", "<source>a</source>")
    raw = f'<?xml version="1.0" encoding="{encoding}"?>\n{content}'.encode(encoding)
    document = read(tmp_path, suffix, raw)
    assert document.written({}) == raw and expected in translated(document, lambda text: "\u1234").decode(encoding)


def test_a_catalogue_keeps_its_encoding_or_names_it(tmp_path):
    header = CATALOGUE[: CATALOGUE.index("#.")].replace("UTF-8", "ISO-8859-1")
    document = read(tmp_path, ".po", (header + 'msgid "caf\u00e9"\nmsgstr ""\n').encode("latin-1"))
    assert 'msgstr "CAF\u00c9"'.encode("latin-1") in translated(document, str.upper)
    with pytest.raises(DocumentError, match="lacks"):
        translated(document, lambda text: "日本")


PLURALS = 'msgid "%d one"\nmsgid_plural "%d two"\n'


@pytest.mark.parametrize(
    ("number", "forms", "expected"),
    [
        (3, ["a", "b"], ["a", "b", "%d two"]),
        (2, ["a", "b"], None),
        (0, ["", ""], ["%d one", "%d two"]),
    ],
)
def test_plural_forms_that_the_header_asks_for_are_added(tmp_path, number, forms, expected):
    def rows(texts):
        return "".join(f'msgstr[{index}] "{text}"\n' for index, text in enumerate(texts))

    header = CATALOGUE[: CATALOGUE.index("#.")].replace("=3", f"={number}")
    document = read(tmp_path, ".po", header + PLURALS + rows(forms))
    written = translated(document).decode().removeprefix(header)
    assert written == (f"#, fuzzy\n{PLURALS}{rows(expected)}" if expected else PLURALS + rows(forms))


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs msgfmt of GNU gettext")
def test_msgfmt_accepts_what_is_written(tmp_path):
    path = tmp_path / "b.po"
    path.write_bytes(translated(read(tmp_path, ".po", SAMPLES["gettext"].content)))
    subprocess.run(["msgfmt", "--check", "--check-format", "-o", "/dev/null", path], check=True)


def outline(content):
    """Blocks of a file, and the inline markup of each, without text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(content)
    return [
        sorted(child.type for child in token.children if child.type not in ("text", "softbreak", "text_special"))
        if token.type == "inline"
        else (token.type, token.markup, "" if token.type == "html_block" else token.content)
        for token in tokens
    ]


BLOCKS = ["text\n", "some text\nin lines\n", "- text\n", "> a  \n> text\n", "# text\n", "| text |\n|---|\n"]


@pytest.mark.parametrize("text", ["# x", "1. x", "> x", "```", "---", "<div>", "[a]: b", "<b>"])
def test_a_translation_never_begins_another_block(tmp_path, text):
    for content in BLOCKS[:4]:
        written = translated(read(tmp_path, ".md", content), lambda source: text).decode()
        assert outline(written) == outline(content)


@pytest.mark.parametrize("text", ["<a href='b'>x</a> y", "</i> x", "<https://a.org> x"])
def test_a_translation_may_begin_with_an_inline_tag(tmp_path, text):
    for content in BLOCKS:
        written = translated(read(tmp_path, ".md", content), lambda source: text).decode()
        assert text in one_line(written) and len(outline(written)) == len(outline(content))


@pytest.mark.parametrize("text", ["x", "<script>x & <b", "</p></b>", "<b title='1'>"])
def test_a_translation_neither_adds_nor_loses_markup(tmp_path, text):
    content = "<p>word <b title='1'>word</b></p><p>x</p>"
    written = translated(read(tmp_path, ".html", content), lambda source: text + source.replace("word", text)).decode()
    assert re.findall(r"<[/a-z][^<>]*>", written) == re.findall(r"<[/a-z][^<>]*>", content)
    ElementTree.fromstring(f"<a>{written}</a>")


def test_translations_stay_unless_all_are_asked_for(tmp_path):
    content = SAMPLES["xliff 1"].content
    kept, replaced = (translated(read(tmp_path, ".xlf", content), str.upper, has_all=all_) for all_ in (False, True))
    state = '<target xml:lang="it" state="{}"{}>{}</target>'
    assert state.format("translated", "", "kept") in kept.decode()
    marked = "needs-review-translation", ' state-qualifier="mt-suggestion"', "KEPT"
    assert state.format(*marked) in replaced.decode()


def test_a_column_has_a_name_or_a_number(tmp_path):
    content = SAMPLES["csv"].content
    assert texts_of(read(tmp_path, ".csv", content, "2"))[0] == ("text",)  # A number is for tables without a header.
    assert texts_of(read(tmp_path, ".csv", "2,1\na,b\n", "1")) == [("b",)]
    for column in (None, "txt", "4"):
        with pytest.raises(DocumentError, match=r"1 'kept', 2 'text', 3 'note'|no column '4'"):
            read(tmp_path, ".csv", content, column)


cells = st.text(st.sampled_from('ab ,;"\t\\\n\r\0\x85é😀\u2028'), max_size=12)


@some_examples
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=4), st.sampled_from([",", ";"]), st.booleans())
def test_any_table_is_read_as_the_csv_module_reads_it(tmp_path, pairs, separator, is_quoted):
    table = io.StringIO()
    csv.writer(table, delimiter=separator, quoting=int(is_quoted)).writerows(
        [("key", "text"), *((f"k{key}", f"x{text}") for key, text in pairs)]
    )
    document = read(tmp_path, ".csv", table.getvalue().encode(), "text")
    assert [text for (text,) in texts_of(document)] == [f"x{text}" for _, text in pairs]
    written = translated(document, lambda text: f'{text},;"\n')
    rows = list(csv.reader(io.StringIO(written.decode(), newline=""), delimiter=separator, strict=True))
    assert [row[0] for row in rows] == ["key", *(f"k{key}" for key, _ in pairs)]


def test_a_sentence_over_cues_is_one_text(tmp_path):
    times = "{0}\n00:00:0{0},000 --> 00:00:0{0},900\n"
    cues = ["The old house,", "where we were\nborn, is", "red.", "- and now?"]
    content = "\n".join(times.format(number) + f"{text}\n" for number, text in enumerate(cues, 1))
    document = read(tmp_path, ".srt", content)
    assert texts_of(document) == [("The old house, where we were born, is red.",), ("and now?",)]
    changed = translated(document, lambda text: text.upper().replace("OLD HOUSE", "VERY OLD HOUSE")).decode()
    again = [line for line in changed.splitlines() if line.isupper() and "-->" not in line]
    assert " ".join(again) == "THE VERY OLD HOUSE, WHERE WE WERE BORN, IS RED. - AND NOW?"
    assert changed.count("-->") == 4 and translated(document).decode() == content


def test_tags_around_cues_stay_around_their_parts_of_a_sentence(tmp_path):
    cues = ["<v Ann>one two", "<v Ann>three", "<v Bob>and four", "<i>five <b>six</b></i>", "<i>seven.</i>"]
    times = "00:0{0}.000 --> 00:0{0}.900"
    content = "WEBVTT\n" + "".join(f"\n{times.format(number)}\n{text}\n" for number, text in enumerate(cues))
    document = read(tmp_path, ".vtt", content)
    assert texts_of(document) == [("one two three",), ("and four",), ("five <b>six</b> seven.",)]
    changed = translated(document, lambda text: text.replace("one two three", "aaa bbb ccccc")).decode()
    assert changed == content.replace("one two", "aaa bbb").replace("three", "ccccc")
