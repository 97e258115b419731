"""`reverse-words`: random strings of letters and the same strings reversed.

The right attention is known, an anti-diagonal, so the task is a good first test of a new model or machine.
"""

import random
import string
from itertools import accumulate

SIZES = {"train": 20_000, "valid": 500, "test": 1_000}
_MIN_LETTERS, _MAX_LETTERS = 4, 16


def reversed_words(split: str) -> list[tuple[str, str]]:
    """Strings and their reversals; no string occurs twice, in one split or in two."""
    end = dict(zip(SIZES, accumulate(SIZES.values()), strict=True))[split]
    generator = random.Random(20170612)
    words: dict[str, None] = {}
    while len(words) < end:
        length = generator.randrange(_MIN_LETTERS, _MAX_LETTERS + 1)
        words["".join(generator.choice(string.ascii_lowercase) for _ in range(length))] = None
    return [(word, word[::-1]) for word in list(words)[end - SIZES[split] :]]
