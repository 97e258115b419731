"""Made-up names and numbers, for a model to learn to copy what it does not know. Knows tokenizers; knows no pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.encoded import Ids
from mt_cli.tokenizer.special import SPACE
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair

_NUM_WORDS = 5_000
_MOST_CHARACTERS = 5
"""Of the pieces of a name: longer ones are words that a model may know."""
_SHARE_OF_NUMBERS, _SHARE_OF_ACRONYMS, _SHARE_OF_TWO_WORDS = 0.3, 0.1, 0.2


def made_up_words(tokenizer: Tokenizer, seed: int) -> list[str]:
    """Names of one or two words, acronyms and numbers.

    Names are made of subwords of the tokenizer that have capital letters; if it has none, there are numbers alone.
    """
    random = np.random.default_rng([seed, _NUM_WORDS])
    subwords = sorted({entry.removeprefix(SPACE).lower() for entry in tokenizer.subwords()})
    pieces = [each for each in subwords if each.isalpha() and each != each.upper() and len(each) <= _MOST_CHARACTERS]
    letters = [each for each in pieces if len(each) == 1]

    def word() -> str:
        if not letters or random.random() < _SHARE_OF_NUMBERS:
            digits = str(random.integers(1, 10 ** random.integers(1, 7)))
            return f"{int(digits):,}".replace(",", str(random.choice(["", ".", ",", " "])))
        if random.random() < _SHARE_OF_ACRONYMS:
            return "".join(random.choice(letters, random.integers(2, 5))).upper()
        return "".join(random.choice(pieces, random.integers(1, 4))).title()

    return [f"{word()} {word()}" if random.random() < _SHARE_OF_TWO_WORDS else word() for _ in range(_NUM_WORDS)]


@dataclass(frozen=True)
class Words:
    """Words as ids of one side, and the places of a text of that side where a word can be inserted."""

    ids: Ids  # One word after the other.
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    begins_word: NDArray[np.bool_]
    """For each entry of the vocabulary, whether it begins with a space."""


def words_of(tokenizers: TokenizerPair, seed: int) -> list[Words]:
    """The same made-up words for each side."""
    words, found = made_up_words(tokenizers[1], seed), []
    for tokenizer in tokenizers:
        ids, lengths = tokenizer.encode_flat(words)
        counts = lengths.astype(np.int64)
        begins_word = [token.startswith(SPACE) for token in tokenizer.tokens(range(tokenizer.vocab_size))]
        found.append(Words(ids, np.cumsum(counts) - counts, counts, np.array(begins_word)))
    return found
