"""Notices on the lines of a file: the first few at once or by number, the others counted at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mt_cli.machine.console import say
from mt_cli.translation.repetition import MOST_NAMED, listed_lines, repetition_note

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation

_LONGEST = 60
"""Characters of an unknown word that are shown."""


class LineNotices:
    """Context manager that collects what users should know about translated lines, and prints it when it ends.

    Unknown words are printed at once, of the first few lines.
    """

    def __init__(self) -> None:
        self._num_lines = self._num_with_unknown_words = 0
        self._long_lines, self._repeating_lines = _Lines(), _Lines()

    def __enter__(self) -> LineNotices:
        return self

    def add(self, item: Translation) -> None:
        """Record the next line."""
        self._num_lines += 1
        if item.is_too_long:
            number = len(item.searched)
            how = f" in {number:,} segments" if number > 1 else "" if number else " copied"
            self._long_lines.add(f"{self._num_lines:,}{how}")
        if item.repeats_itself:
            self._repeating_lines.add(f"{self._num_lines:,}")
        if words := item.unknown_words:
            self._num_with_unknown_words += 1
            if self._num_with_unknown_words <= MOST_NAMED:
                say(f"mt: not in the vocabulary: {', '.join(f'{word:.{_LONGEST}}' for word in dict.fromkeys(words))}")

    def __exit__(self, *error: object) -> None:
        if self._num_with_unknown_words > MOST_NAMED:
            say(f"mt: {self._num_with_unknown_words:,} lines had words that are not in the vocabulary")
        if number := self._long_lines.number:
            lines = "1 line has" if number == 1 else f"{number:,} lines have"
            place = listed_lines(self._long_lines.first, number)
            say(f"note: {lines} more tokens than the longest training sentence ({place})")
        if number := self._repeating_lines.number:
            say(f"note: {repetition_note(self._repeating_lines.first, number)}")


@dataclass
class _Lines:
    """Some lines of a file: the first few, and how many there are."""

    first: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, line: str) -> None:
        self.number += 1
        if self.number <= MOST_NAMED:
            self.first.append(line)
