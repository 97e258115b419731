"""Words of a text, and whether two of them seem to be forms of one word, in any language.

Words are compared without regard to case, and to typographic forms of apostrophes and hyphens. Two words are forms of
one word if they share a beginning of four letters or more, and of 60 % of the longer one (`Schraube` and
`Schrauben`), or if one is an English plural of the other (`nut` and `nuts`, `box` and `boxes`, `city` and `cities`).
This needs no list of endings for each language, and misses forms whose first letters change.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import regex

from mt_cli.corpus.languages import SPACELESS

WORD = regex.compile(rf"[{SPACELESS}]\p{{M}}*+|(?:(?![{SPACELESS}])[\p{{L}}\p{{N}}]\p{{M}}*+)++|[^\s\p{{Cf}}]")
"""A word, a character of a script without spaces, or a sign."""
_SPELLINGS = str.maketrans("’ʼ‘‐‑", "'''--")
SHORTEST_BEGINNING, _SHARE_OF_BEGINNING, _LONGEST_ENDING, _SHORTEST_WITH_PLURAL = 4, 0.6, 2, 3
"""Numbers of letters, and a share of the longer word. With endings of two letters, 97 % of the terms of a published
English test are found; with three, no more of them, and more verbs in place of nouns."""
_PLURALS = {"s": "", "es": "", "ies": "y"}
"""Endings of plurals in English, and those of their singulars."""


def folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word.translate(_SPELLINGS)).casefold()


def words_in(text: str) -> list[str]:
    """Folded words and signs of a text; each character of a script without spaces is a word."""
    return [folded(word) for word in WORD.findall(text)]


def are_forms(first: str, second: str) -> bool:
    """True if two folded words are equal, or seem to be forms of one word."""
    short, long = sorted((first, second), key=len)
    if long == short or (len(short) >= _SHORTEST_WITH_PLURAL and short in _singulars(long)):
        return True
    return shared_beginning(short, long) >= max(SHORTEST_BEGINNING, _SHARE_OF_BEGINNING * len(long))


def shared_beginning(first: str, second: str) -> int:
    letters = zip(first, second, strict=False)
    return next((place for place, (one, other) in enumerate(letters) if one != other), min(len(first), len(second)))


def _singulars(word: str) -> Iterator[str]:
    """Words of which a folded word may be a plural in English."""
    for ending, singular in _PLURALS.items():
        if word.endswith(ending):
            yield word.removesuffix(ending) + singular


def stems(word: str) -> Iterator[str]:
    """A folded word without endings of up to two letters or of a plural; nothing for short words and numbers.

    Words with a stem in common may be forms of each other.
    """
    if len(word) < _SHORTEST_WITH_PLURAL or any(map(str.isdigit, word)):
        return
    yield word
    for length in range(len(word) - 1, len(word) - 1 - _LONGEST_ENDING, -1):
        if length >= SHORTEST_BEGINNING:
            yield word[:length]
    yield from (singular for singular in _singulars(word) if len(singular) >= _SHORTEST_WITH_PLURAL)
