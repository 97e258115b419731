"""The built-in corpus `reverse-words`: random strings of letters and the same strings reversed.

The attention that solves it is known beforehand, an anti-diagonal, which makes it the first thing to try on a new
model or machine.
"""

import random
import string

NUM_PAIRS = {"train": 20_000, "valid": 500, "test": 1_000}
SHORTEST, LONGEST = 4, 16


def reverse_words_pairs(split: str) -> list[tuple[str, str]]:
    """(letters, letters reversed) of one split; no string stands twice, nor in two splits.

    Raises:
        KeyError: for a split that is not `train`, `valid` or `test`.
    """
    start = 0
    for name, num_pairs in NUM_PAIRS.items():
        if name == split:
            break
        start += num_pairs
    else:
        raise KeyError(split)
    generator = random.Random(20170612)
    words: dict[str, None] = {}
    while len(words) < start + num_pairs:
        length = generator.randrange(SHORTEST, LONGEST + 1)
        words["".join(generator.choice(string.ascii_lowercase) for _ in range(length))] = None
    return [(word, word[::-1]) for word in list(words)[start:]]
