"""Translations that repeat themselves, as those of a decoder in a loop."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LOOP = re.compile(r"(.{2,80}?)\1{3,}", re.DOTALL)
"""The same characters four times or more, one after the other."""
_FEWEST_CHARACTERS, _SHARE, _MOST_CHARACTERS = 24, 1 / 3, 20_000


def repeats_itself(source: str, translation: str) -> bool:
    """Whether a translation repeats some words again and again where the source does not."""
    longest = _longest_loop(translation)
    return longest >= max(_FEWEST_CHARACTERS, _SHARE * len(translation)) and longest > 2 * _longest_loop(source)


def repeating(sources: Sequence[str], translations: Sequence[str]) -> list[int]:
    """Numbers, from 1, of the lines whose translations repeat themselves."""
    rows = enumerate(zip(sources, translations, strict=True), start=1)
    return [number for number, (source, translation) in rows if repeats_itself(source, translation)]


def _longest_loop(text: str) -> int:
    """Number of characters of the longest stretch that repeats itself."""
    return max((len(match[0]) for match in _LOOP.finditer(text[:_MOST_CHARACTERS])), default=0)
