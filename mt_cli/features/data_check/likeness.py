"""Whether an evaluation set is like the text that a model is trained on: its new words, and entries of dictionaries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"\w+")
_FACTOR, _MARGIN = 1.5, 0.02
"""Later news of the same kind has up to 1.6 to 2 times the new words of shuffled text, another domain 2 to 20 times."""
_MIN_WORDS = 200
_WORDS_OF_ENTRY = 2
_MANY_ENTRIES, _FEW_ENTRIES = 0.05, 0.25
"""The share of entries in `train` to speak of, if an evaluation set has less than a quarter of it."""


@dataclass(frozen=True)
class NewWords:
    """The share of the words of a set that do not occur in the training text, 0 to 1."""

    found: float
    expected: float
    """In text of the same kind: the share of the training words that occur once (Good 1953)."""

    @property
    def is_unlike(self) -> bool:
        """Whether there are more than another sample of the training text would have."""
        return self.found > _FACTOR * self.expected + _MARGIN


def new_words(train: Sequence[str], other: Sequence[str]) -> NewWords | None:
    """The new words of texts; None if there are too few words to say."""
    counts = Counter(word for text in train for word in _words(text))
    words = [word for text in other for word in _words(text)]
    if min(counts.total(), len(words)) < _MIN_WORDS:
        return None
    once = sum(count == 1 for count in counts.values())
    return NewWords(sum(word not in counts for word in words) / len(words), once / counts.total())


def share_of_entries(pairs: Sequence[tuple[str, str]]) -> float:
    """The share of pairs, 0 to 1, with at most two words on both sides, as in dictionaries and glossaries."""
    short = sum(all(len(_words(side)) <= _WORDS_OF_ENTRY for side in pair) for pair in pairs)
    return short / max(1, len(pairs))


def has_many_entries(train: float, other: float) -> bool:
    """Whether `train` has many more entries than an evaluation set, by their shares."""
    return train >= _MANY_ENTRIES and other < _FEW_ENTRIES * train


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
