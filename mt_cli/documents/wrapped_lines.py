"""Paragraphs on lines with prefixes, such as indentation or `> `; they are wrapped again at their width."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.document import Unit
from mt_cli.documents.texts import SPACES, one_line, wrapped
from mt_cli.runtime.console import display_width

_LONE_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
"""A tag that would begin a block if it were alone on a line."""


class Line(NamedTuple):
    """Text on a line of a document."""

    begin: int
    """Start of the line."""
    start: int
    """Start of the text, after the prefix."""
    end: int
    """End of the text."""


@dataclass(frozen=True)
class Markup:
    """Syntax of a format that matters to lines of text."""

    start: re.Pattern[str]
    """First words of a line that would begin another block."""
    hidden: re.Pattern[str]
    """Markup without text, such as code."""


def paragraph_unit(content: str, lines: Sequence[Line], markup: Markup) -> Unit | None:
    text = one_line(" ".join(content[line.start : line.end] for line in lines))
    if not has_letters(markup.hidden.sub("", text)):
        return None
    write = partial(_written, content=content, lines=lines, text=text, markup=markup)
    return Unit(lines[0].start, lines[-1].end, (text,), write, is_block=True)


def _written(texts: Sequence[str], content: str, lines: Sequence[Line], text: str, markup: Markup) -> str:
    """Content from the first character of a paragraph (`text`) to the last one, on several lines if it had several."""
    first = lines[0]
    translation = _without_other_block(texts[0], text, markup)
    if len(lines) == 1:
        return translation
    width = max(display_width(content[line.begin : line.end]) for line in lines)
    beginning, second = content[first.begin : first.start], lines[1]
    line_end = content[first.end : second.begin].lstrip(" \t")
    words = list(_words(translation, markup))
    return line_end.join(wrapped(words, width, beginning, content[second.begin : second.start]))[len(beginning) :]


def _without_other_block(translation: str, text: str, markup: Markup) -> str:
    """Translation that begins no other kind of block than its text, by an escape."""
    beginning = markup.start.match(translation)
    if not beginning or markup.start.match(text):
        return translation
    place = beginning.end("number") if beginning.groupdict().get("number") else 0
    return f"{translation[:place]}\\{translation[place:]}"


def _words(text: str, markup: Markup) -> Iterator[str]:
    """Words that a line may begin with, and others joined to the word before."""
    group = ""
    for word in SPACES.split(text):
        is_kept = group.endswith("\\") or _LONE_TAG.fullmatch(group)
        if group and not markup.start.match(f"{word} ") and not is_kept:
            yield group
            group = word
        else:
            group = f"{group} {word}" if group else word
    yield group
