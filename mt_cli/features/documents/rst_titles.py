"""Titles of sections in reStructuredText, whose lines below and above are as long as the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mt_cli.features.documents.document import Unit
from mt_cli.features.documents.texts import display_width, one_line
from mt_cli.features.documents.wrapped_lines import Line, Markup, paragraph_unit

ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1*")
_SHORTEST = 4
"""Length from which a line below is a mistake if it is shorter than its title, and not text."""


def is_underline(line: str, title: str) -> bool:
    """Whether a line makes the line above it a title."""
    return bool(ADORNMENT.fullmatch(line)) and len(line) >= min(_SHORTEST, display_width(title))


def title_unit(content: str, over: Line | None, title: Line, under: Line, markup: Markup) -> Unit | None:
    """Unit of a title with the lines below and above it, if it has text."""
    unit = paragraph_unit(content, [title], markup)
    if unit is None:
        return None
    start = over.start if over else title.start
    middle = content[start : title.start], content[title.end : under.start]
    write = _TitleWriter(
        content[start : under.end], unit.texts[0], middle, content[under.start : under.end], unit.write
    )
    return replace(unit, start=start, end=under.end, write=write)


@dataclass(frozen=True)
class _TitleWriter:
    """Writes a title and the lines below and above it."""

    part: str
    text: str
    around: tuple[str, str]
    """Content from the line above to the title, and from the title to the line below."""
    line: str
    write: Callable[[Sequence[str], bool], str]

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the title; a line that was longer than the title stays longer by as much, or as long."""
        if translations[0] == self.text or not one_line(translations[0]):
            return self.part
        title = self.write(translations, needs_review)
        surplus = len(self.line) - display_width(self.text)
        width = display_width(title)
        length = max(width, len(self.line)) if surplus > 2 else width + max(surplus, 0)
        line = self.line[0] * length
        before, after = self.around
        return before.replace(self.line, line, 1) + title + after + line
