"""Sentences and words of a text, by the marks of all scripts."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(
    r"""(?<=[.!?…])["'“”’»)\]]*\ +(?=[^\w\s]*[^\W\d_a-zà-öø-ÿ]|[^\w\s]*\d)   # a mark, a space, and no small letter
      | (?<=[。！？។៕။])\ *(?=[^。！？។៕။」』”’）\s])                         # a mark that needs no space
      | (?<=[।॥؟۔።፧།])\ +""",
    re.VERBOSE,
)
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


def first_word(text: str) -> int:
    """Index of the first letter or digit; the length of the text if there is none."""
    return next((index for index, character in enumerate(text) if _is_word_character(character)), len(text))


def last_word(text: str) -> int:
    """Index of the last letter or digit; -1 if there is none."""
    return len(text) - 1 - first_word(text[::-1])


def sentences_of(text: str) -> list[tuple[str, str]]:
    """Sentences of a text, each with the space that follows it.

    A full stop does not end a sentence after an initial, an ordinal number, or a common abbreviation of European
    languages. Where this is wrong, two sentences stay together, which does no harm. Marks and emoji alone are not
    a sentence.
    """
    sentences, start = [], 0
    first, last = first_word(text), last_word(text)
    for match in _SENTENCE_END.finditer(text):
        # Closing quotation marks and brackets belong to the sentence, the spaces after them do not.
        end = match.start() + len(match[0].rstrip(" "))
        if first < end and match.end() <= last and not _NO_END.search(text[max(start, end - _LONGEST_NO_END) : end]):
            sentences.append((text[start:end], text[end : match.end()]))
            start = match.end()
    return [*sentences, (text[start:], "")]
