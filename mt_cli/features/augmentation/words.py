"""Made-up names and numbers, for a model to learn to copy unknown words. Knows tokenizers; knows no pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.encoded import Ids
from mt_cli.corpus.languages import scripts_in
from mt_cli.tokenizer.special import BYTES, SPACE, UNK
from mt_cli.tokenizer.tokenizer import TokenizerPair

_NUM_WORDS = 5_000
_MAX_PIECE_CHARACTERS = 5
"""Longer pieces are words that a model may know."""
_UNREADABLE = frozenset({UNK, *BYTES})
_SHARE_OF_NUMBERS, _SHARE_OF_ACRONYMS, _SHARE_OF_TWO_WORDS = 0.3, 0.1, 0.2


def made_up_words(tokenizers: TokenizerPair, seed: int) -> list[str]:
    """Names of one or two words, acronyms and numbers.

    Names are made of the subwords of the target side that can begin with a capital letter. If there are none, or the
    subwords of both sides are in several scripts, there are numbers alone.
    """
    random = np.random.default_rng([seed, _NUM_WORDS])
    source, target = (sorted({entry.removeprefix(SPACE).lower() for entry in side.subwords()}) for side in tokenizers)
    scripts = scripts_in("".join(source)) | scripts_in("".join(target))
    pieces = [
        piece
        for piece in target
        if piece.isalpha()
        and len(piece) <= _MAX_PIECE_CHARACTERS
        and piece.title() != piece  # Georgian has capital letters, and no titles.
        and len(scripts) == 1
        and scripts_in(piece) == scripts
    ]
    letters = [piece for piece in pieces if len(piece) == 1]

    def sample(texts: list[str], fewest: int, most: int) -> str:
        return "".join(texts[index] for index in random.integers(len(texts), size=random.integers(fewest, most + 1)))

    def word() -> str:
        if not letters or random.random() < _SHARE_OF_NUMBERS:
            number = int(random.integers(1, 10 ** random.integers(1, 7)))
            return f"{number:,}".replace(",", ("", ".", ",", " ")[random.integers(4)])
        return sample(letters, 2, 4).upper() if random.random() < _SHARE_OF_ACRONYMS else sample(pieces, 1, 3).title()

    return [f"{word()} {word()}" if random.random() < _SHARE_OF_TWO_WORDS else word() for _ in range(_NUM_WORDS)]


@dataclass(frozen=True)
class Words:
    """Words as ids of one side, and the entries of that side before which a word can be inserted."""

    ids: Ids  # One word after the other.
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    begins_word: NDArray[np.bool_]
    """For each entry of the vocabulary, whether it begins with a space."""


def words_of(tokenizers: TokenizerPair, seed: int) -> list[Words]:
    """Made-up words as ids of each side, the same words in the same order.

    Words that a side writes as bytes or [UNK], or takes for a tag, are left out. There are none for a tokenizer that
    puts no space before a text.
    """
    words, sides = made_up_words(tokenizers, seed), []
    vocabularies = [tokenizer.tokens(range(tokenizer.vocab_size)) for tokenizer in tokenizers]
    for tokenizer, entries in zip(tokenizers, vocabularies, strict=True):
        unusable = {index for index, entry in enumerate(entries) if entry in _UNREADABLE} | {*tokenizer.tag_ids}
        encoded = zip(words, tokenizer.encode(words), strict=True)
        words = [
            word for word, ids in encoded if ids and unusable.isdisjoint(ids) and entries[ids[0]].startswith(SPACE)
        ]
    for tokenizer, entries in zip(tokenizers, vocabularies, strict=True):
        ids, lengths = tokenizer.encode_flat(words)
        counts = lengths.astype(np.int64)
        begins_word = np.array([entry.startswith(SPACE) for entry in entries])
        begins_word[tokenizer.tag_ids] = False
        sides.append(Words(ids, np.cumsum(counts) - counts, counts, begins_word))
    return sides
