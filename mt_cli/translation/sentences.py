"""Where to split a text that is too long, and its words, by the marks of all scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

from mt_cli.corpus.languages import SPACELESS, writes_spaces
from mt_cli.corpus.sentences import first_word, last_word

_BREAKS = (
    re.compile(r"(?<=[.!?…।॥؟۔።፧]) |(?<=[。！？។៕။།]) ?(?=[^。！？។៕။།」』”’）\s])"),
    re.compile(r"(?<=[,;:،؛]) |(?<=[、，；：၊]) ?(?=\S)"),
    re.compile(r" |(?<=[་\u200b])(?=\S)"),  # Some scripts mark the end of syllables or words by other characters.
)
_FIRST_DISTANCE = 64
_SPACELESS = re.compile(f"[{SPACELESS}]")


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
    middle = len(text) // 2
    between_words = first_word(text) + 1, last_word(text)
    for start, end in (between_words, (0, len(text))):
        for pattern in _BREAKS:
            nearest = _nearest(pattern, text, middle, start, end)
            if nearest is None:
                continue
            is_last = pattern is _BREAKS[-1]
            if is_last or len(text) // 8 <= nearest.start() <= len(text) - len(text) // 8:
                return nearest.start(), nearest[0]
    return middle, ""


def _nearest(pattern: re.Pattern[str], text: str, middle: int, start: int, end: int) -> re.Match[str] | None:
    """Match from `start` to `end` that begins nearest to the middle of a text; None if there is none.

    The search begins around the middle, so that a long text is not searched at each of its splits.
    """
    distance = _FIRST_DISTANCE
    while True:
        low, high = max(0, middle - distance), middle + distance
        around = pattern.finditer(text, low, high + 3)  # A break depends on three characters.
        matches = (match for match in around if start <= match.start() <= high and match.end() <= end)
        nearest = min(matches, key=lambda match: abs(match.start() - middle), default=None)
        if nearest is not None or (low <= start and high >= end):
            return nearest
        distance *= 4


def units(text: str) -> list[tuple[int, int]]:
    """Start and end of each word or, in scripts without spaces, of each character with its combining marks."""
    spans: list[tuple[int, int]] = []
    was_alone = False
    for index, character in enumerate(text):
        if character.isspace():
            continue
        follows = bool(spans) and spans[-1][1] == index
        is_mark = follows and unicodedata.category(character).startswith("M")
        is_alone = was_alone if is_mark else _SPACELESS.match(character) is not None
        if is_mark or (follows and not is_alone and not was_alone):
            spans[-1] = (spans[-1][0], index + 1)
        else:
            spans.append((index, index + 1))
        was_alone = is_alone
    return spans
