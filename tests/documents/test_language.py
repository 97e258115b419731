"""What is no language is copied in every format, and what is language is translated."""

import json

import pytest
from round_trips import new_job, read

from mt_cli.documents.language import is_language
from mt_cli.documents.translate import translated_document
from mt_cli.translation.inline_marks import InlineMarks

IDENTIFIERS = (
    "#ff0000 /img/house.png icons/menu.svg text/html a1b2c3 YYYY-MM-DD 2024-01-02T10:00:00Z en-US es-419 MENU_OPEN "
    "user_name useState example.org v1.2.3 10px C:\\temp 0b5f9a52-58a8-4bd6-9a5e-f2c5f6d1a111 @/assets/a.svg Ctrl+S "
    "UserName getUser() Europe/Berlin mailto:a@b.org aGVsbG8gd29ybGQ= %Y-%m-%d "
    "app_icon_16.png 76x76 2x .srt"
)
WITH_SPACES = "a \ud800", "%-4r [%t] %-5p %c %x - %m%n", "-Xmx2G -Dfile.encoding=UTF-8 -v", "-Da.b=c"
WORDS = "and/or Yes/No e-mail km/h 2nd H2O Stop. A Über слово.слово 大きい"


def in_capitals(folder, suffix, content):
    """Content of a document whose language is in capitals and whose copied texts are not."""
    return translated_document(read(folder, suffix, content), "name", new_job(str.upper)).decode()


@pytest.mark.parametrize("suffix", [".json", ".html", ".csv", ".md"])
def test_names_for_programs_are_copied_and_words_translated(tmp_path, suffix):
    def document(texts):
        lines = {".html": [f"<p>{text}</p>" for text in texts], ".md": [f"- {text}" for text in texts]}
        if suffix == ".json":
            return json.dumps({f"a{number}": text for number, text in enumerate(texts)}, ensure_ascii=False)
        return "\n".join(lines.get(suffix, ["text", *texts])) + "\n"

    names = [text for text in IDENTIFIERS.split() if suffix != ".md" or "\\" not in text]
    marks = InlineMarks()
    assert not [name for name in (*names, *WITH_SPACES) if is_language(name, marks)]
    assert all(is_language(word, marks) for word in WORDS.split())
    column = "text" if suffix == ".csv" else None
    for texts, expected in ((names, names), (WORDS.split(), WORDS.upper().split())):
        original = read(tmp_path, suffix, document(texts), column)
        changed = translated_document(original, "name", new_job(str.upper)).decode()
        assert changed == document(expected).replace("A0", "a0")


FORMULAS = r"$x_i = \frac{a}{b}$", "$$e = mc^2$$", r"\(x\)", r"\[ a + b \]", "`code`"
MARKDOWN = {
    **{f"The old {formula} sleeps.\n": f"THE OLD {formula} SLEEPS.\n" for formula in FORMULAS},
    "$$\ne = mc^2\n$$\n\n\\[ a + b \\]\n\n```math\nx\n```\n": None,
    "it costs $5 and $7 \\[see below\\].\n": "IT COSTS $5 AND $7 \\[SEE BELOW\\].\n",
    "text\n$$\na \\\\\nb\n$$ {#eq}\n\n\\begin{align}\na \\\\\nb\n\\end{align}\n": "TEXT\n$$\na \\\\\nb\n$$ {#eq}\n\n"
    "\\begin{align}\na \\\\\nb\n\\end{align}\n",
    "see [@smith; @doe, p. 3] by @anna, {f(x) + 1} or <kbd>a</kbd>\n": (
        "SEE [@smith; @doe, p. 3] BY @anna, {f(x) + 1} OR <kbd>a</kbd>\n"
    ),
    "all of {red, green} here\n": "ALL OF {RED, GREEN} HERE\n",
    "~~sleeps~~ here :smile: #house\n": "~~SLEEPS~~ HERE :smile: #house\n",
    "%count% of %APPDATA%, 5% or 10%\n": "%count% OF %APPDATA%, 5% OR 10%\n",
    "import Tabs from '@theme/Tabs';\nexport const toc = [\n  a,\n];\n\n{/* do not\nshow */}\n": None,
    "<Tabs a='b'>\na text\n</Tabs>\n": "<Tabs a='b'>\nA TEXT\n</Tabs>\n",
    ":::note my title\na text\n:::\n": ":::note MY TITLE\nA TEXT\n:::\n",
    '!!! note "my title"\n': '!!! note "MY TITLE"\n',
    '<h1 align="center">a <b>b</b></h1>\n\n<!-- c -->\n': '<h1 align="center">A <b>B</b></h1>\n\n<!-- c -->\n',
    ":::tip[the title]\na text\n:::\n": ":::tip[THE TITLE]\nA TEXT\n:::\n",
    "import duties rise, and\nexport declines.\n": "IMPORT DUTIES RISE, AND\nEXPORT DECLINES.\n",
    "---\nid: a\ntitle: a: b\n---\n": None,
    "---\nid: a\ntitle: \"a 'b'\"\nslug: c\n---\n": "---\nid: a\ntitle: \"A 'B'\"\nslug: c\n---\n",
    "+++\ndescription = 'a b'\n+++\n": '+++\ndescription = "A B"\n+++\n',
}


@pytest.mark.parametrize("suffix", [".md", ".mdx", ".Rmd"])
def test_markdown_keeps_formulas_and_code_of_mdx(tmp_path, suffix):
    for content, expected in MARKDOWN.items():
        assert in_capitals(tmp_path, suffix, content) == (expected or content)


JSON = {
    '{"a": {"message": "$name$ is $1", "description": "note", "placeholders": {"x": {"content": "y"}}}}': (
        '{"a": {"message": "$name$ IS $1", "description": "note", "placeholders": {"x": {"content": "y"}}}}'
    ),
    '{"@@locale": "en", "a": "the {name}", "@a": {"description": "note"}}': (
        '{"@@locale": "en", "a": "THE {name}", "@a": {"description": "note"}}'
    ),
    '{"a": "see $t(b) {{c}} @:d", "e": "no house | one house"}': (
        '{"a": "SEE $t(b) {{c}} @:d", "e": "NO HOUSE | ONE HOUSE"}'
    ),
    '{"locale": "en", "type": "submit", "icon": "fa-home", "Type": "Type"}': (
        '{"locale": "en", "type": "submit", "icon": "fa-home", "Type": "TYPE"}'
    ),
    '{"font": "Font", "class": "First class"}': '{"font": "FONT", "class": "FIRST CLASS"}',
    '{"fontColor": "red", "class": "btn big", "font": "Arial, Inter", "a": "<1>see</1> <%= b %> or {{c | d}}"}': (
        '{"fontColor": "red", "class": "btn big", "font": "Arial, Inter", "a": "<1>SEE</1> <%= b %> OR {{c | d}}"}'
    ),
    '{"a": "{0} none|[1,19] %some% :name|[20,*] many", "b": "at 50% off:all"}': (
        '{"a": "{0} NONE|[1,19] %some% :name|[20,*] MANY", "b": "AT 50% OFF:ALL"}'
    ),
    '["a", ["b"], 3, {"c": "d"}]': '["A", ["B"], 3, {"c": "D"}]',
}


@pytest.mark.parametrize("suffix", [".json", ".arb"])
def test_dialects_of_json_keep_their_placeholders(tmp_path, suffix):
    for content, expected in JSON.items():
        assert in_capitals(tmp_path, suffix, content) == expected


HTML = {
    "<p>the <ruby>old<rp>(</rp><rt>reading</rt><rp>)</rp></ruby> house</p>": "<p>THE OLD HOUSE</p>",
    "<p>a<br>b <i>c</i><br/>d</p>": "<p>A<br>B <i>C</i><br/>D</p>",
    '<ul><li translate="no">a<li>b</ul>c<table><tr><td translate=no>d<td>e<tr><td>f</table>g': (
        '<ul><li translate="no">a<li>B</ul>C<table><tr><td translate=no>d<td>E<tr><td>F</table>G'
    ),
    '<iframe title="a b"></iframe><pre title="d e">f</pre><input type="submit" value="g h"><input value="i">': (
        '<iframe title="A B"></iframe><pre title="D E">f</pre><input type="submit" value="G H"><input value="i">'
    ),
    '<select><optgroup label="a b"><option>c</select>': '<select><optgroup label="A B"><option>C</select>',
    '<script>s.replace("<!--", "")</script><p>a b</p>': '<script>s.replace("<!--", "")</script><p>A B</p>',
    '<html lang="en"><meta property="og:title" content="a b"><meta property="og:type" content="a b">c': (
        '<html lang="it"><meta property="og:title" content="A B"><meta property="og:type" content="a b">C'
    ),
    "<p>see \\(a + b\\) and $$c = d$$</p>": "<p>SEE \\(a + b\\) AND $$c = d$$</p>",
}


def test_pages_keep_what_is_no_language_and_lose_no_text(tmp_path):
    for content, expected in HTML.items():
        assert in_capitals(tmp_path, ".html", content) == expected


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".po", 'msgid "{}"\nmsgstr ""\n'),
        (".xlf", '<xliff version="1.2"><file><trans-unit><source>{}</source></trans-unit></file></xliff>'),
        (".json", '{{"a": "{}"}}'),
        (".properties", "a = {}\n"),
    ],
)
def test_forms_between_bars_are_translated_one_by_one(tmp_path, suffix, content):
    for text, expected in {
        "No {a|b} file|{1} One | %s files.": "No {a|b} file x|{1} One x | %s files. x",
        "Usage (now|never) `a|b` [all|none]": "Usage (now|never) `a|b` [all|none] x",
        "a || b": "a || b x",
        "one | 2": "one | 2 x",
    }.items():
        document = read(tmp_path, suffix, content.format(text))
        job = new_job(lambda text: f"{text} x")
        assert expected in translated_document(document, "name", job).decode()
        assert len(job.translator.seen) == expected.count("x")


def test_the_keys_of_a_label_stay_after_its_tab(tmp_path):
    document = read(tmp_path, ".properties", "a = Open the file\\tCtrl+O\n")
    assert translated_document(document, "name", new_job(lambda text: f"{text} x")) == b"a = Open the file x\\tCtrl+O\n"
