"""Characters that begin and end a part of a text with another writing direction (Unicode Standard Annex 9)."""

from __future__ import annotations

import re

_ENDS = dict.fromkeys("\u202a\u202b\u202d\u202e", "\u202c") | dict.fromkeys("\u2066\u2067\u2068", "\u2069")
"""The end of each beginning: of embeddings and overrides, and of isolates."""
_CONTROL = re.compile("[\u202a-\u202e\u2066-\u2069]")


def with_balanced_directions(text: str, source: str) -> str:
    """Translation without beginnings that have no end, and ends without a beginning; unchanged if the source has any.

    A model may lose one of the two. The rest of the text around the translation would then change its direction.
    """
    if not (unbalanced := _unbalanced(text)) or _unbalanced(source):
        return text
    return "".join(character for place, character in enumerate(text) if place not in unbalanced)


def _unbalanced(text: str) -> set[int]:
    """Places of beginnings and ends without a partner."""
    waiting: list[int] = []
    places = set()
    for match in _CONTROL.finditer(text):
        if match[0] in _ENDS:
            waiting.append(match.start())
        elif waiting and _ENDS[text[waiting[-1]]] == match[0]:
            waiting.pop()
        else:
            places.add(match.start())
    return places | {*waiting}
