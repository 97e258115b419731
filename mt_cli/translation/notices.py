"""Notices on translated lines: the first few at once or by number, the others counted at the end."""

from __future__ import annotations

from mt_cli.machine.console import say
from mt_cli.translation.lines import Translation
from mt_cli.translation.repetition import MOST_NAMED, listed_lines, repetition_note

_LONGEST_WORD = 60
"""Characters of an unknown word that are shown."""


class LineNotices:
    """Context manager that collects what users should know about translated lines, and prints it when it ends.

    Unknown words of the first few lines are printed at once.
    """

    def __init__(self) -> None:
        self._num_lines = self._num_with_unknown_words = 0
        self._long_lines: list[str] = []
        self._repeating_lines: list[str] = []

    def __enter__(self) -> LineNotices:
        return self

    def add(self, line: Translation) -> None:
        """Record the next line."""
        self._num_lines += 1
        if line.is_too_long:
            num_segments = len(line.searched)
            how = f" in {num_segments:,} segments" if num_segments > 1 else "" if num_segments else " copied"
            self._long_lines.append(f"{self._num_lines:,}{how}")
        if line.repeats_itself:
            self._repeating_lines.append(f"{self._num_lines:,}")
        if words := line.unknown_words:
            self._num_with_unknown_words += 1
            if self._num_with_unknown_words <= MOST_NAMED:
                shown = ", ".join(f"{word:.{_LONGEST_WORD}}" for word in dict.fromkeys(words))
                say(f"mt: not in the vocabulary: {shown}")

    def __exit__(self, *error: object) -> None:
        if self._num_with_unknown_words > MOST_NAMED:
            say(f"mt: {self._num_with_unknown_words:,} lines had words that are not in the vocabulary")
        if number := len(self._long_lines):
            lines = "1 line has" if number == 1 else f"{number:,} lines have"
            place = listed_lines(self._long_lines[:MOST_NAMED], number)
            say(f"note: {lines} more tokens than the longest training sentence ({place})")
        if number := len(self._repeating_lines):
            say(f"note: {repetition_note(self._repeating_lines[:MOST_NAMED], number)}")
