"""Sentences and words of a text, and the best point to split it. Knows scripts; does not know single languages."""

from __future__ import annotations

import re
import unicodedata

from mt_cli.corpus.languages import SPACELESS

_SENTENCE_END = re.compile(
    r"""(?<=[.!?…])["'”’»)\]]*\ +(?=[^\w\s]*[^\W\d_a-zà-öø-ÿ]|[^\w\s]*\d)   # a mark, a space, and no small letter
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


def sentences_of(text: str) -> list[tuple[str, str]]:
    """The sentences of a text, each with the space between it and the next.

    A full stop ends no sentence after an initial, an ordinal number, or a common abbreviation of European languages. If
    that is wrong, two sentences stay together, which does no harm.
    """
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        # Closing quotation marks and brackets belong to the sentence, the spaces after them do not.
        end = match.start() + len(match[0].rstrip(" "))
        if not _NO_END.search(text[start:end]):
            sentences.append((text[start:end], text[end : match.end()]))
            start = match.end()
    return [*sentences, (text[start:], "")]


def split_point(text: str) -> tuple[int, str]:
    """The best index to split a long text at, and the space there, if any.

    Ends of sentences are preferred to commas, and commas to spaces; among equals, the nearest to the middle is taken.
    """
    middle = len(text) // 2
    for pattern in _BREAKS:
        if breaks := list(pattern.finditer(text)):
            nearest = min(breaks, key=lambda match: abs(match.start() - middle))
            if pattern is _BREAKS[-1] or len(text) // 8 <= nearest.start() <= len(text) - len(text) // 8:
                return nearest.start(), nearest[0]
    return middle, ""


def units(text: str) -> list[tuple[int, int]]:
    """Start and end of each word; in scripts without spaces, of each character with its combining marks."""
    found: list[tuple[int, int]] = []
    was_alone = False
    for index, character in enumerate(text):
        if character.isspace():
            continue
        follows = bool(found) and found[-1][1] == index
        is_mark = follows and unicodedata.category(character).startswith("M")
        is_alone = was_alone if is_mark else _SPACELESS.match(character) is not None
        if is_mark or (follows and not is_alone and not was_alone):
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
        was_alone = is_alone
    return found
