"""Sentences and words of a text, and where to split it, by the marks of all scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate

from mt_cli.corpus.languages import SPACELESS, writes_spaces

_SENTENCE_END = re.compile(
    r"""(?<=[.!?…])["'“”’»)\]]*\ +(?=[^\w\s]*[^\W\d_a-zà-öø-ÿ]|[^\w\s]*\d)   # a mark, a space, and no small letter
      | (?<=[。！？។៕။])\ *(?=[^。！？។៕။」』”’）\s])                         # a mark that needs no space
      | (?<=[।॥؟۔።፧།])\ +""",
    re.VERBOSE,
)
_BREAKS = (
    re.compile(r"(?<=[.!?…।॥؟۔።፧]) |(?<=[。！？។៕။།]) ?(?=[^。！？។៕။།」』”’）\s])"),
    re.compile(r"(?<=[,;:،؛]) |(?<=[、，；：၊]) ?(?=\S)"),
    re.compile(r" |(?<=[་\u200b])(?=\S)"),  # Some scripts mark the end of syllables or words by other characters.
)
_SPACELESS = re.compile(f"[{SPACELESS}]")
_NO_END = re.compile(
    r"(?:^|[\s(\"'„“«])(?:\w|Mrs?|Ms|Dr|Drs|Prof|St|Hr|Fr|Sig|Sigg|Dott|Sr|Sra|Mme|Mlle|No|Nr|Nos|Art|Abs|Bd|Vol|Fig|Abb"
    r"|etc|vs|cf|ca|bzw|usw|vgl|z\.B|d\.h|u\.a|e\.g|i\.e|p\.es|[A-Z]\.(?:[A-Z]\.)*[A-Z]|pp?|ed|eds|Jan|Feb|Apr|Aug|Sept?"
    r"|Oct|Okt|Nov|Dec|Dez|Inc|Ltd|Co|Corp|Jr|approx|\d{1,2})\.$"
)
_LONGEST_NO_END = 16

_FILLERS = "\u115f\u1160\u3164\uffa0"
"""Letters of Unicode that are invisible."""
_KEYCAP = re.compile("[0-9#*]\ufe0f?\u20e3")


def has_letters(text: str) -> bool:
    """True if a text has a visible letter, of any script."""
    return any(character.isalpha() and character not in _FILLERS for character in text)


def has_words(text: str) -> bool:
    """True if a text has letters or digits; symbols with digits such as 1\ufe0f\u20e3 are symbols."""
    return any(map(_is_word_character, _KEYCAP.sub("", text) if "\u20e3" in text else text))


def _is_word_character(character: str) -> bool:
    return character.isalnum() and character not in _FILLERS


def _first_word(text: str) -> int:
    """Index of the first letter or digit; the length of the text if there is none."""
    return next((index for index, character in enumerate(text) if _is_word_character(character)), len(text))


def _last_word(text: str) -> int:
    """Index of the last letter or digit; -1 if there is none."""
    return len(text) - 1 - _first_word(text[::-1])


def sentences_of(text: str) -> list[tuple[str, str]]:
    """Sentences of a text, each with the space that follows it.

    A full stop does not end a sentence after an initial, an ordinal number, or a common abbreviation of European
    languages. Where this is wrong, two sentences stay together, which does no harm. Marks and emoji alone are not
    a sentence.
    """
    sentences, start = [], 0
    first, last = _first_word(text), _last_word(text)
    for match in _SENTENCE_END.finditer(text):
        # Closing quotation marks and brackets belong to the sentence, the spaces after them do not.
        end = match.start() + len(match[0].rstrip(" "))
        if first < end and match.end() <= last and not _NO_END.search(text[max(start, end - _LONGEST_NO_END) : end]):
            sentences.append((text[start:end], text[end : match.end()]))
            start = match.end()
    return [*sentences, (text[start:], "")]


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
    first, last = _first_word(text), _last_word(text)
    breaks_by_kind = [list(pattern.finditer(text)) for pattern in _BREAKS]
    between_words = [
        [match for match in breaks if first < match.start() and match.end() <= last] for breaks in breaks_by_kind
    ]
    for is_last, breaks in zip((False, False, True) * 2, [*between_words, *breaks_by_kind], strict=True):
        if breaks:
            nearest = min(breaks, key=lambda match: abs(match.start() - middle))
            if is_last or len(text) // 8 <= nearest.start() <= len(text) - len(text) // 8:
                return nearest.start(), nearest[0]
    return middle, ""


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
