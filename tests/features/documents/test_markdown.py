import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError
from mt_cli.features.documents.texts import one_line

MARKDOWN = """---
title: Front matter
---
# A *title* with `code` {#anchor}

Setext title
============

A paragraph that was wrapped at
a width, with a [link](http://example.org/a
"x") and **bold
text**.  
After a hard break\\
and another.

    indented code

> Quoted text
> on two lines
lazily continued

- Item one
  continued
  1. Nested item

     ```python
     code = "stays"
     ```
- [ ] A task

<div>
HTML stays
</div>

[Shortcut], [collapsed][], [full text][ref] and `[Shortcut]`.

[Shortcut]: http://example.org/1
[collapsed]: http://example.org/2
[ref]: http://example.org/3 "Title"

| Head | Other \\| head |
|------|:-----:|
| `code` | A cell |
| 12 | |

[^1]: A footnote.

::: note
Inside a container
:::

> [!NOTE]
> An alert

{% include "x.html" %}

![](image.png)
"""
TEXTS = [
    "A *title* with `code`",
    "Setext title",
    'A paragraph that was wrapped at a width, with a [link](http://example.org/a "x") and **bold text**.',
    "After a hard break",
    "and another.",
    "Quoted text on two lines lazily continued",
    "Item one continued",
    "Nested item",
    "A task",
    "[Shortcut][Shortcut], [collapsed][collapsed], [full text][ref] and `[Shortcut]`.",
    "Head",
    "Other \\| head",
    "A cell",
    "A footnote.",
    "Inside a container",
    "An alert",
]


def outline(content):
    """Blocks of a file, and the inline markup of each, without text."""
    tokens = MarkdownIt("commonmark").enable("table").parse(content)
    return [
        sorted(child.type for child in token.children if child.type not in ("text", "softbreak", "text_special"))
        if token.type == "inline"
        else (token.type, token.markup, "" if token.type == "html_block" else token.content)
        for token in tokens
    ]


def test_text_of_blocks_without_code_html_and_definitions(tmp_path):
    document = read(tmp_path, ".md", MARKDOWN)
    assert texts_of(document) == [(text,) for text in TEXTS]
    assert all(unit.is_block for unit in document.units)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_identity_keeps_each_byte(tmp_path, line_end, mark):
    raw = mark + MARKDOWN.replace("\n", line_end).encode()
    document = read(tmp_path, ".markdown", raw)
    assert translated(document) == raw and len(document.units) == len(TEXTS)


def in_capitals(text):
    """Text in upper case beside code, targets and tags."""
    pattern = r"(`[^`]*`|\]\([^()]*\)|\]\[[^\]]*\])"
    return "".join(part if index % 2 else part.upper() for index, part in enumerate(re.split(pattern, text)))


def doubled(text):
    return re.sub(r"(?<![\w/\"\[])([a-z]{2,})(?= [a-z])", r"\1 1. - # > + = \1", text)


@pytest.mark.parametrize("translate", [in_capitals, doubled])
def test_translations_keep_the_tree(tmp_path, translate):
    written = translated(read(tmp_path, ".md", MARKDOWN), translate).decode()
    assert outline(written) == outline(MARKDOWN) and written != MARKDOWN


def test_wrapped_paragraphs_are_wrapped_at_their_width_with_their_prefix(tmp_path):
    content = "> * some words in\r\n>   three lines of\r\n>   text\r\n\r\nNot wrapped at all\r\n"
    written = translated(read(tmp_path, ".md", content), lambda text: text.replace(" ", " und "))
    assert written.decode() == (
        "> * some und words\r\n>   und in und\r\n>   three und\r\n>   lines und of\r\n>   und text\r\n\r\n"
        "Not und wrapped und at und all\r\n"
    )


def test_links_by_their_text_keep_their_targets(tmp_path):
    content = "See [the guide], [Rust] and `[Rust]`.\n\n[the guide]: a.md\n[rust]: b.md\n"
    document = read(tmp_path, ".md", content)
    assert texts_of(document) == [("See [the guide][the guide], [Rust][Rust] and `[Rust]`.",)]
    written = translated(document, lambda text: text.replace("See [the guide]", "Siehe [den Leitfaden]"))
    assert written.decode() == content.replace("See [the guide]", "Siehe [den Leitfaden][the guide]")


@pytest.mark.parametrize(
    "text",
    ["# x", "1. x", "- x", "> x", "```", "+ x", "---", "=== x", "| x", "<div>", "[a]: b", "</P> x", "<h2", "<b>"],
)
def test_translations_never_begin_another_block(tmp_path, text):
    for content in ("text\n", "some text\nin lines\n", "- text\n", "> a  \n> text\n"):
        written = translated(read(tmp_path, ".md", content), lambda source: text).decode()
        assert outline(written) == outline(content)


@pytest.mark.parametrize("text", ["<a href='b'>x</a> y", "<b>x</b>", "</i> x", "<https://a.org> x", "<header-x> y"])
@pytest.mark.parametrize("content", ["text\n", "- some text\n  in lines\n", "# text\n", "| text |\n|---|\n"])
def test_translations_may_begin_with_an_inline_tag(tmp_path, text, content):
    written = translated(read(tmp_path, ".md", content), lambda source: text).decode()
    assert text in one_line(written) and len(outline(written)) == len(outline(content))
    assert "&lt;" not in MarkdownIt().enable("table").render(written)


def test_bars_of_cells_are_escaped(tmp_path):
    content = "| a |\n|---|\n| b |\n"
    document = read(tmp_path, ".md", content)
    assert translated(document, lambda text: f"{text}|\n\\|").decode() == "| a\\| \\| |\n|---|\n| b\\| \\| |\n"


markdown = st.text(st.sampled_from("ab é漢😀\n\n\t>-*+#=`~|[]()<>!\\_1.:{}"), max_size=60) | st.text(max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(markdown)
def test_any_text_comes_back_whole(tmp_path, content):
    document = read(tmp_path, ".md", content)
    assert translated(document) == content.encode()
    assert all("\n" not in text for texts in texts_of(document) for text in texts)


@pytest.mark.parametrize(
    "content",
    [
        "word " * 200_000,
        "word\n" * 50_000,
        "> " * 20_000 + "a",
        "- " * 5_000 + "a",
        "[" * 50_000 + "a" + "]" * 50_000,
        "`" * 50_000 + "a",
        "a {{" * 50_000,
        "---\n" + "a: b\n" * 50_000,
        "a|b\n-|-\n" + "a|b\n" * 5_000,
        "[a]: b\n\n" + "[a](" * 20_000,
    ],
)
def test_large_and_nested_files_are_read_in_linear_time(tmp_path, content):
    document = read(tmp_path, ".md", content)
    assert translated(document) == content.encode()


def test_other_encodings_are_refused(tmp_path):
    with pytest.raises(DocumentError, match="line 2: not utf-8"):
        read(tmp_path, ".md", b"a\n\xe4\n")
