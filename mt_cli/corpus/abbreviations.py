"""Words with a full stop that do not end a sentence, and words that often begin one, by language.

`abbreviations.tsv` has the words in small letters; several languages may share a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.languages import primary

_ORDINALS = "bs cs da de et fi fo hr hu is lb lt lv nb nn no pl sk sl sr tr"
_WITH_ORDINALS = frozenset(_ORDINALS.split())


class Abbreviations(NamedTuple):
    """Words before a full stop in small letters, and what follows it."""

    never: frozenset[str]
    """Titles and the like, which are always followed by more of the sentence."""
    before_numbers: frozenset[str]
    """References such as `fig`, which are followed by a number."""
    seldom: frozenset[str]
    """Words that end a sentence only before a word that begins one."""
    starters: frozenset[str]
    """Words that begin sentences and, in the middle of one, have small letters."""
    has_ordinals: bool = False
    """True if a number with a full stop may be an ordinal."""
    is_greek: bool = False
    """True if `;` is the question mark."""


@cache
def _table() -> tuple[dict[str, Abbreviations], Abbreviations]:
    """Abbreviations by language, and those of all languages together, for languages that are not listed."""
    text = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
    codes, *words = zip(*(line.split("\t") for line in text.splitlines()[1:]), strict=True)
    rows = list(zip(*words, strict=True))
    by_language = {code: _together([row]) for group, row in zip(codes, rows, strict=True) for code in group.split()}
    return by_language, _together(rows)


def _together(rows: Iterable[Sequence[str]]) -> Abbreviations:
    never, before_numbers, seldom, starters = (frozenset(" ".join(words).split()) for words in zip(*rows, strict=True))
    return Abbreviations(never, before_numbers, seldom, starters)


@cache
def abbreviations_of(language: str) -> Abbreviations:
    code = primary(language) if language else ""
    by_language, others = _table()
    words = by_language.get(code, others)
    return words._replace(has_ordinals=not code or code in _WITH_ORDINALS, is_greek=code in ("el", "grc"))
