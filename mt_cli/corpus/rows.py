"""Types of rows and pairs of texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Pair = tuple[str, str]
"""Source and target."""
Row = tuple[int, str, str]
"""Number of a line, record or table row, from 1, with source and target."""
Languages = tuple[str, str]
"""Codes of the source and the target language."""
Columns = tuple[str, str] | None
"""Columns of the source and the target; None if the languages decide."""


@dataclass(frozen=True)
class BlankRow:
    """A row of an evaluation corpus that is not scored, because a side is blank."""

    num_before: int
    """Number of pairs of the corpus before this row."""
    number: int
    """Number of the row in its source, from 1."""
    status: str
    """`blank_source`, `blank_target` or `blank_pair`."""
    origin: str = ""
    """Name of the source of the row, if the corpus has several sources."""
    languages: Languages | None = None


class Names(NamedTuple):
    """Names of the sides of the texts in a file."""

    names: list[str]
    are_languages: bool
    """True if all names are languages; otherwise they are columns, or the first cells of a table."""


def by_language(pairs: Iterable[tuple[Languages, Pair]]) -> dict[str, list[str]]:
    """Texts of each language in pairs with their languages."""
    texts = defaultdict[str, list[str]](list)
    for languages, pair in pairs:
        for language, text in zip(languages, pair, strict=True):
            texts[language].append(text)
    return dict(texts)


def untagged(text: str, tags: Sequence[str]) -> str:
    """Text without its tag, if it has one."""
    first, _, rest = text.partition(" ")
    return rest if first in tags else text
