"""Detection of translations that repeat themselves, as a decoder in a loop does."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_NAMED = 5
"""Largest number of lines that a note names."""
_LOOP = re.compile(r"(.{2,80}?)\1{3,}", re.DOTALL)
"""The same characters, four times or more in a row."""
_FEWEST_CHARACTERS, _SHARE, _MOST_CHARACTERS = 24, 1 / 3, 20_000


def repeats_itself(source: str, translation: str) -> bool:
    """Whether a translation repeats the same words again and again, and the source does not."""
    longest = _longest_loop(translation)
    return longest >= max(_FEWEST_CHARACTERS, _SHARE * len(translation)) and longest > 2 * _longest_loop(source)


def note_on_repetition(sources: Sequence[str], translations: Sequence[str]) -> str | None:
    """A note on the lines whose translations repeat themselves; None if there are none."""
    rows = enumerate(zip(sources, translations, strict=True), start=1)
    lines = [f"{number:,}" for number, (source, translation) in rows if repeats_itself(source, translation)]
    return repetition_note(lines[:MOST_NAMED], len(lines)) if lines else None


def repetition_note(first_lines: Sequence[str], num_lines: int) -> str:
    """A note on a number of lines, which names the first few of them."""
    subject = "1 translation repeats itself" if num_lines == 1 else f"{num_lines:,} translations repeat themselves"
    return (
        f"{subject} ({listed_lines(first_lines, num_lines)}): the model has not learned such text; "
        "--set decoding.no_repeat_ngram=3 prevents loops, not wrong words"
    )


def listed_lines(first_lines: Sequence[str], num_lines: int) -> str:
    """The first lines by number, and how many more there are."""
    rest = f" and {num_lines - len(first_lines):,} more" if num_lines > len(first_lines) else ""
    return f"line{'s' * (num_lines > 1)} {', '.join(first_lines)}{rest}"


def _longest_loop(text: str) -> int:
    """Length of the longest part of a text that repeats itself, in characters."""
    return max((len(match[0]) for match in _LOOP.finditer(text[:_MOST_CHARACTERS])), default=0)
