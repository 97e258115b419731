"""Markdown (`.md`, `.mdx`, `.Rmd`, `.qmd`): paragraphs, headings, list items, quotations, cells and HTML are units.

The text of a unit is its source, with emphasis, links, code and formulas. Titles and descriptions of the front matter
and of containers are units too. Blocks of code and formulas, the rest of the front matter, definitions of links, lines
of templates (`{% ... %}`, `[!NOTE]`), and the imports, exports, comments and components of MDX stay. A link by its text
alone, `[text]`, is written in full, `[text][text]`, so that a translation keeps its target.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.document import MAX_MARKS, Document, DocumentError, Options, Unit, read_content
from mt_cli.documents.html import html_document
from mt_cli.documents.texts import SPACES, one_line, wrapped
from mt_cli.runtime.console import display_width
from mt_cli.translation.inline_marks import EMPHASIS, MARKDOWN, PLACEHOLDERS, displayed_formula

if TYPE_CHECKING:
    from markdown_it.token import Token

_LINE_END = re.compile(r"\r\n?|\n")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?=.*\S)(?:.*\n)*?\1[ \t]*(?:\n|\Z)")
_FIXED = re.compile(
    r":::+.*|\{%.*%\}|\{\{.*\}\}|\[!\w+\]|(?:!!!|\?{3}\+?|===) .*|\{[:#.][^{}]*\}|\[TOC\]|\[\[_?TOC_?\]\]",
    re.IGNORECASE,
)
_FRONT_TEXT = re.compile(
    r"^(?:title|subtitle|description|summary|excerpt|sidebar_label)[ \t]*[:=][ \t]*(\S[^\n]*?)[ \t]*$", re.MULTILINE
)
_PLAIN_SCALAR = re.compile(r"(?![\s\"'&*!|>%@`#\[\]{},?:-])(?:(?!: | #).)*(?<![:\s])")
_TITLE_OF_CONTAINER = re.compile(
    r":::+[ \t]*\w+(?:\[(?P<a>[^\[\]]+)\][ \t]*(?:\{[^{}]*\})?[ \t]*|[ \t]+(?P<b>[^\s{:].*))"
    r"|:::+[ \t]*\{[\w-]+\}[ \t]+(?P<c>\S.*)|(?:!!!|\?{3}\+?|===\+?!?)(?: [\w-]+)* \"(?P<d>[^\"]+)\""
)
"""Line that begins a container, with its title: of Docusaurus, VitePress, MyST and MkDocs."""
_IMPORT = r"import\s(?:[\w*${},\s]{1,500}\sfrom\s{1,9})?(?:\"[^\"\n]{1,300}\"|'[^'\n]{1,300}')"
_EXPORT = (
    r"export\s(?:default\s(?:function|class)\b|(?:const|let|var)\s[^=\n]{1,300}=|(?:async\s)?function\s)"
    r".*(?:\n.*\S.*)*"
)
_COMMENT_OF_MDX, _COMPONENT = r"\{/\*[\s\S]{0,3000}?\*/\}", r"</?[A-Z][\w.]*(?:\s[^<>]{0,3000})?>"
_OF_FORMULA = r"(?:[^$`\n\\]|\\(?!\[)|\n(?![ \t]*\n)){1,3000}?"
_FORMULA = rf"{displayed_formula(_OF_FORMULA)}[ \t]*(?:\{{#[^{{}}\n]*\}}|\(\d+\))?"
_CODE_OF_MDX = re.compile(
    rf"^(?:{_IMPORT};?|{_EXPORT}|[ \t]*(?:{_COMMENT_OF_MDX}|{_COMPONENT}|{_FORMULA}))[ \t]*$",
    re.MULTILINE,
)
"""Statements, comments, formulas and tags of components, which have lines of their own. Text between such tags is
Markdown."""
_NOT_LINE_END = re.compile(r"[^\n]")
_LABEL = re.compile(r"\[\^[^\]\s]+\]:(?:[ \t]+|\Z)|:[ \t]+|\[[ xX]\][ \t]+(?=\S)")
"""Beginning of a footnote, of a definition or of a task, before its text."""
_HARD_BREAK = re.compile(r"(?:(?<! ) {2,}+|\\)\Z")
_ATTRIBUTES = re.compile(r"(?<![ \t])[ \t]++\{[#.:][^{}]*\}\Z")
_BARE_BAR = re.compile(r"(?<!\\)\|")
_CODE = r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)"
_LINK = re.compile(
    rf"{_CODE}|(?<!\])\[(?P<label>(?:[^\[\]\\]|\\.){{1,999}})\](?P<rest>\[\]|\[[^\[\]]*\]|\([^()]*\)|(?![\[(]))",
    re.DOTALL,
)
_FULL_LINK = re.compile(r"\[([^\[\]]+)\]\[\1\]")
_HTML_BLOCKS = (
    "address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link "
    "main menu menuitem nav noframes ol optgroup option p param pre script search section style summary table tbody td "
    "textarea tfoot th thead title tr track ul"
)
"""Elements whose tags begin a block of HTML. Other tags do if they are alone on a line."""
_HTML = rf"(?i:</?(?:{'|'.join(_HTML_BLOCKS.split())})(?=[\s/>]|\Z))|<[!?]|</?[A-Za-z][^<>]*>\s*\Z"
_START = re.compile(
    r"(?P<number>\d{1,9})[.)](?:\s|\Z)|[-+*](?:\s|\Z)|#{1,6}(?:\s|\Z)|>|`{3}|~{3}|[=|]|:?-+:?(?:\s|\Z)"
    rf"|{_HTML}|(?:[-*_]\s*){{3,}}\Z|:{{3}}|:\s|\[[^\]]+\]:"
)
"""First words of a line that would begin another block."""
_HIDDEN = re.compile(
    rf"{_CODE}|\]\([^()\s]*\)|\]\[[^\[\]]*\]|</?[a-zA-Z!][^<>]*>|https?://\S+|&#?\w+;|\{{\{{[^{{}}]*\}}\}}"
)
"""Markup without text."""
_LONE_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
"""A tag that would begin a block if it were alone on a line."""


class _Line(NamedTuple):
    """Text on a line of a file."""

    begin: int
    """Start of the line, before its prefix."""
    start: int
    end: int


def read_markdown(path: Path, options: Options) -> Document:
    """Blocks of text of a Markdown file, by CommonMark with tables of GitHub."""
    from markdown_it import MarkdownIt

    content, encoding, mark = read_content(path, max_marks=MAX_MARKS // 2)  # Its parser makes several tokens of each.
    ends = [*_LINE_END.finditer(content)]
    places = [0, *(end.end() for end in ends)]
    ends_of_lines = [*(end.start() for end in ends), len(content)]
    lines = [_Line(begin, begin, end) for begin, end in zip(places, ends_of_lines, strict=True)]
    texts = [content[line.begin : line.end] for line in lines]
    parser = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
    env: dict[str, Any] = {}
    front = _FRONT_MATTER.match("\n".join(texts))
    body = "\n".join(texts)[front.end() :] if front else "\n".join(texts)
    body = _CODE_OF_MDX.sub(lambda match: _NOT_LINE_END.sub("", match[0]), body)
    tokens = parser.parse("\n" * front[0].count("\n") + body if front else body, env)
    blocks = _Blocks(content, lines, env.get("references", {}))
    units = [*_units_of_front_matter(front[0], places, content)] if front else []
    for before, token in pairwise([*tokens[:1], *tokens]):
        if token.type == "inline":
            units += blocks.units(before, token)
        elif token.type == "html_block":
            units += blocks.units_of_html(token)
    return Document(content, units, encoding, mark, marks=(MARKDOWN, *PLACEHOLDERS, EMPHASIS))


def _units_of_front_matter(front: str, places: Sequence[int], content: str) -> Iterator[Unit]:
    """Titles and descriptions of a page, each on a line."""
    for match in _FRONT_TEXT.finditer(front):
        start = content.find(match[1], places[front.count("\n", 0, match.start(1))])
        try:
            text = yaml.safe_load(match[1])
        except yaml.YAMLError:
            continue
        if isinstance(text, str):
            yield Unit(start, start + len(match[1]), (text,), partial(_front_value, part=match[1]))


def _front_value(texts: Sequence[str], part: str) -> str:
    """Value of YAML or TOML, in quotation marks if it needs them or had them (`part`)."""
    text = texts[0]
    if part[0] not in "\"'" and _PLAIN_SCALAR.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return json.dumps(text, ensure_ascii=False)


class _Blocks:
    def __init__(self, content: str, lines: Sequence[_Line], references: Mapping[str, Any]) -> None:
        self._content = content
        self._lines = lines
        self._references = references
        self._row = -1
        """Line of the last cell of a table."""
        self._place = 0
        """End of this cell."""

    def units(self, before: Token, token: Token) -> Iterator[Unit]:
        """Units of a block, from the token before its text."""
        if before.type in ("th_open", "td_open"):
            yield from self._cell(token)
            return
        for lines in self._runs(before, token):
            if unit := _paragraph_unit(self._content, lines):
                yield self._with_full_links(unit)

    def units_of_html(self, token: Token) -> Iterator[Unit]:
        """Units of a block of HTML; none if its lines have prefixes, or if a tag or comment ends in another block."""
        first, after = token.map or (0, 0)
        begin, end = self._lines[first].begin, self._lines[after - 1].end
        part = self._content[begin:end]
        if _LINE_END.sub("\n", part).strip() == token.content.strip():
            with suppress(DocumentError):
                for unit in html_document(part).units:
                    yield replace(unit, start=begin + unit.start, end=begin + unit.end)

    def _cell(self, token: Token) -> Iterator[Unit]:
        """Unit of a cell, which is searched for after the cell before it."""
        number = token.map[0] if token.map else 0
        line = self._lines[number]
        if number != self._row:
            self._row, self._place = number, line.begin
        source = token.content.replace("|", "\\|")
        start = self._content.find(source, self._place, line.end) if source else -1
        if start < 0:
            return
        self._place = start + len(source)
        if unit := _paragraph_unit(self._content, [_Line(line.begin, start, self._place)]):
            linked = self._with_full_links(unit)
            yield replace(linked, write=lambda texts: _BARE_BAR.sub(r"\|", linked.write(texts)))

    def _runs(self, before: Token, token: Token) -> list[list[_Line]]:
        runs: list[list[_Line]] = [[]]
        for number, source in enumerate(token.content.split("\n"), start=token.map[0] if token.map else 0):
            line = self._located(self._lines[number], source.strip(), before)
            text = self._content[line.start : line.end] if line else ""
            if line and (title := _TITLE_OF_CONTAINER.fullmatch(text)):
                start, end = title.span(title.lastgroup or 0)
                runs += [[line._replace(start=line.start + start, end=line.start + end)], []]
                continue
            if line is None or _FIXED.fullmatch(text):
                runs.append([])
                continue
            if label := _LABEL.match(text):
                runs.append([])
                line = line._replace(start=line.start + label.end())
            if line.start == line.end:
                continue
            is_broken = _HARD_BREAK.search(self._content[line.start : self._lines[number].end])
            runs[-1].append(line._replace(end=line.end - text.endswith("\\")) if is_broken else line)
            if is_broken:
                runs.append([])
        return [run for run in runs if run]

    def _located(self, line: _Line, text: str, before: Token) -> _Line | None:
        source = self._content[line.begin : line.end]
        if before.type == "heading_open" and before.markup.startswith("#"):
            hashes = source.find(before.markup)
            start = source.find(text, hashes + len(before.markup)) if hashes >= 0 else -1
        else:
            start = len(source.rstrip()) - len(text)
        if start < 0 or not text or not source.startswith(text, start):
            return None
        attributes = _ATTRIBUTES.search(text) if before.type == "heading_open" else None
        start += line.begin
        return _Line(line.begin, start, start + (attributes.start() if attributes else len(text)))

    def _with_full_links(self, unit: Unit) -> Unit:
        """Unit in whose text a link by its text names its definition, too."""
        text = _LINK.sub(self._full_link, unit.texts[0]) if self._references else unit.texts[0]
        if text == unit.texts[0]:
            return unit
        return replace(unit, texts=(text,), write=lambda texts: unit.write([_FULL_LINK.sub(r"[\1]", texts[0])]))

    def _full_link(self, match: re.Match[str]) -> str:
        from markdown_it.common.utils import normalizeReference

        label = match["label"]
        if not label or match["rest"] not in ("", "[]") or normalizeReference(label) not in self._references:
            return match[0]
        return f"[{label}][{label}]"


def _paragraph_unit(content: str, lines: Sequence[_Line]) -> Unit | None:
    text = one_line(" ".join(content[line.start : line.end] for line in lines))
    if not has_letters(_HIDDEN.sub("", text)):
        return None
    write = partial(_written_paragraph, content=content, lines=lines, text=text)
    return Unit(lines[0].start, lines[-1].end, (text,), write, is_block=True)


def _written_paragraph(texts: Sequence[str], content: str, lines: Sequence[_Line], text: str) -> str:
    """Content from the first character of a paragraph (`text`) to the last one, on several lines if it had several."""
    first = lines[0]
    translation = _without_other_block(texts[0], text)
    if len(lines) == 1:
        return translation
    width = max(display_width(content[line.begin : line.end]) for line in lines)
    beginning, second = content[first.begin : first.start], lines[1]
    line_end = content[first.end : second.begin].lstrip(" \t")
    words = list(_words(translation))
    return line_end.join(wrapped(words, width, beginning, content[second.begin : second.start]))[len(beginning) :]


def _without_other_block(translation: str, text: str) -> str:
    """Translation that begins no other kind of block than its text, by an escape."""
    beginning = _START.match(translation)
    if not beginning or _START.match(text):
        return translation
    place = beginning.end("number") if beginning["number"] else 0
    return f"{translation[:place]}\\{translation[place:]}"


def _words(text: str) -> Iterator[str]:
    """Words that a line may begin with, and others joined to the word before."""
    group = ""
    for word in SPACES.split(text):
        is_kept = group.endswith("\\") or _LONE_TAG.fullmatch(group)
        if group and not _START.match(f"{word} ") and not is_kept:
            yield group
            group = word
        else:
            group = f"{group} {word}" if group else word
    yield group
