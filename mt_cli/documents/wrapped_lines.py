"""Paragraphs on lines with prefixes, such as indentation or `> `; they are wrapped again at their width."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.document import Unit
from mt_cli.documents.texts import SPACES, display_width, one_line, wrapped

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
    """Unit of a paragraph, if it has text beside its markup."""
    text = one_line(" ".join(content[line.start : line.end] for line in lines))
    if not has_letters(markup.hidden.sub("", text)):
        return None
    write = _Writer(content, lines, text, markup)
    return Unit(lines[0].start, lines[-1].end, (text,), write, is_block=True)


def with_text(unit: Unit, text: str, written: re.Pattern[str], replacement: str) -> Unit:
    """Unit with a longer text, whose additions (`written`) are replaced again in translations that keep them."""
    if text == unit.texts[0]:
        return unit
    return replace(unit, texts=(text,), write=_TextWriter(unit.write, unit.texts[0], text, written, replacement))


@dataclass(frozen=True)
class _TextWriter:
    """Writes a unit whose text has additions."""

    write: Callable[[Sequence[str], bool], str]
    text: str
    longer_text: str
    written: re.Pattern[str]
    replacement: str

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the unit."""
        is_same = translations[0] == self.longer_text
        text = self.text if is_same else self.written.sub(self.replacement, translations[0])
        return self.write([text], needs_review)


@dataclass(frozen=True)
class _Writer:
    """Writes a paragraph on several lines if it had several."""

    content: str
    lines: Sequence[Line]
    text: str
    markup: Markup

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content from the first character of the text to the last one; it cannot say that it needs a review."""
        first, last = self.lines[0], self.lines[-1]
        if translations[0] == self.text:
            return self.content[first.start : last.end]
        text = self._without_other_block(one_line(translations[0]))
        if len(self.lines) == 1:
            return text
        width = max(display_width(self.content[line.begin : line.end]) for line in self.lines)
        beginning, second = self.content[first.begin : first.start], self.lines[1]
        prefix = self.content[second.begin : second.start]
        line_end = self.content[first.end : second.begin].lstrip(" \t")
        lines = wrapped(list(self._words(text)), width, beginning, prefix)
        return line_end.join(lines)[len(beginning) :]

    def _without_other_block(self, text: str) -> str:
        """Text that begins no other kind of block, by an escape."""
        beginning = self.markup.start.match(text)
        if not beginning or self.markup.start.match(self.text):
            return text
        place = beginning.end("number") if beginning.groupdict().get("number") else 0
        return f"{text[:place]}\\{text[place:]}"

    def _words(self, text: str) -> Iterator[str]:
        """Words that a line may begin with, and others joined to the word before."""
        group = ""
        for word in SPACES.split(text):
            is_kept = group.endswith("\\") or _LONE_TAG.fullmatch(group)
            if group and not self.markup.start.match(f"{word} ") and not is_kept:
                yield group
                group = word
            else:
                group = f"{group} {word}" if group else word
        yield group
