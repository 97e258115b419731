"""Where to split a text that is too long, and its words, by the marks of all scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

from mt_cli.corpus.languages import SPACELESS_CHARACTER, writes_spaces
from mt_cli.corpus.sentences import first_word, last_word

_BREAKS = (
    re.compile(r"(?<=[.!?…।॥؟۔።፧]) |(?<=[。！？។៕။།]) ?(?=[^。！？។៕။།」』”’）\s])"),
    re.compile(r"(?<=[,;:،؛]) |(?<=[、，；：၊]) ?(?=\S)"),
    re.compile(r" |(?<=[་\u200b])(?=\S)"),  # Some scripts mark the end of syllables or words by other characters.
)
_FIRST_RADIUS, _LONGEST_BREAK = 64, 3


def glue_of_translations(glue: str, source: str, target: str) -> str:
    """Text between two translations, from the text between their sources and both languages."""
    if not writes_spaces(target):
        return ""
    return glue if writes_spaces(source) else " "


def middle_of(sentences: Sequence[tuple[str, str]]) -> int:
    """Number of sentences before the sentence end nearest to the middle of a text; 0 for a single sentence."""
    ends = list(accumulate(len(sentence) + len(between) for sentence, between in sentences))
    return min(range(1, len(ends)), key=lambda number: abs(2 * ends[number - 1] - ends[-1]), default=0)


def split_point(text: str) -> tuple[int, str]:
    """Best index to split a long text at, and the space there, if any.

    Ends of sentences are preferred to commas, and commas to spaces. Among equals, the index nearest to the middle is
    best. Both parts have words, if that is possible.
    """
    middle, first, last = len(text) // 2, first_word(text), last_word(text)
    for start, end in ((first + 1, last), (0, len(text))):
        for pattern in _BREAKS:
            nearest = _nearest_match(pattern, text, middle, start, end)
            is_last = pattern is _BREAKS[-1]
            if nearest and (is_last or len(text) // 8 <= nearest.start() <= len(text) - len(text) // 8):
                return nearest.start(), nearest[0]
    return middle, ""


def _nearest_match(pattern: re.Pattern[str], text: str, middle: int, start: int, end: int) -> re.Match[str] | None:
    """Match within a part of a text that begins nearest to the middle, which is searched in growing parts."""
    radius = _FIRST_RADIUS
    while True:
        # Matches are short, and are not cut off before their end or what must follow it.
        matches = pattern.finditer(text, max(0, middle - radius), middle + radius + _LONGEST_BREAK)
        inside = (match for match in matches if start <= match.start() and match.end() <= end)
        nearest = min(inside, key=lambda match: abs(match.start() - middle), default=None)
        if (nearest and abs(nearest.start() - middle) <= radius) or radius > len(text):
            return nearest
        radius *= 4


def units(text: str) -> list[tuple[int, int]]:
    """Start and end of each word or, in scripts without spaces, of each character with its combining marks."""
    spans: list[tuple[int, int]] = []
    was_alone = False
    for index, character in enumerate(text):
        if character.isspace():
            continue
        follows = bool(spans) and spans[-1][1] == index
        is_mark = follows and unicodedata.category(character).startswith("M")
        is_alone = was_alone if is_mark else SPACELESS_CHARACTER.match(character) is not None
        if is_mark or (follows and not is_alone and not was_alone):
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
        was_alone = is_alone
    return spans
