"""Notices on the lines of a file: the first few at once or by number, the others counted at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt_cli.machine.console import say

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation

_MOST_NAMED = 5


class LineNotices:
    """Context manager that collects what users should know about translated lines, and prints it when it ends.

    Unknown words are printed at once, of the first few lines.
    """

    def __init__(self) -> None:
        self._num_lines = self._num_with_unknown_words = 0
        self._long_lines: list[str] = []
        self._repeating_lines: list[str] = []

    def __enter__(self) -> LineNotices:
        return self

    def add(self, item: Translation) -> None:
        """Record the next line."""
        self._num_lines += 1
        if item.is_too_long:
            number = len(item.searched)
            how = f" in {number:,} segments" if number > 1 else "" if number else " copied"
            self._long_lines.append(f"{self._num_lines:,}{how}")
        if item.repeats_itself:
            self._repeating_lines.append(f"{self._num_lines:,}")
        if words := item.unknown_words:
            self._num_with_unknown_words += 1
            if self._num_with_unknown_words <= _MOST_NAMED:
                say(f"mt: not in the vocabulary: {', '.join(dict.fromkeys(words))}")

    def __exit__(self, *error: object) -> None:
        if self._num_with_unknown_words > _MOST_NAMED:
            say(f"mt: {self._num_with_unknown_words:,} lines had words that are not in the vocabulary")
        if self._long_lines:
            lines = "1 line has" if len(self._long_lines) == 1 else f"{len(self._long_lines):,} lines have"
            say(f"note: {lines} more tokens than the longest training sentence ({_listed(self._long_lines)})")
        if self._repeating_lines:
            say(f"note: {repetition_note(self._repeating_lines)}")


def repetition_note(lines: Sequence[str]) -> str:
    """A note that translations of these lines repeat themselves."""
    subject = "1 translation repeats itself" if len(lines) == 1 else f"{len(lines):,} translations repeat themselves"
    return (
        f"{subject} ({_listed(lines)}): the model has not learned such text; "
        "--set decoding.no_repeat_ngram=3 prevents loops, not wrong words"
    )


def _listed(lines: Sequence[str]) -> str:
    """The first few lines, and how many others there are."""
    others = f" and {len(lines) - _MOST_NAMED:,} more" if len(lines) > _MOST_NAMED else ""
    return f"line{'s' * (len(lines) > 1)} {', '.join(lines[:_MOST_NAMED])}{others}"
