"""Made-up names and numbers, which teach a model to copy unknown ones. Knows vocabularies; does not know pairs.

Compare Song et al. 2019, "Code-Switching for Enhancing NMT with Pre-Specified Translation".
"""

from __future__ import annotations

import numpy as np
import regex

from mt_cli.corpus.languages import scripts_in
from mt_cli.tokenizer.special_tokens import BYTES, SPACE, UNK
from mt_cli.tokenizer.tokenizer import TokenizerPair

_NUM_WORDS = 5_000
_MAX_PIECE_CHARACTERS = 5
"""Maximum length of a piece of a made-up name; longer pieces are words that a model may know."""
_UNREADABLE = frozenset({UNK, *BYTES})
_SHARE_OF_NUMBERS, _SHARE_OF_ACRONYMS, _SHARE_OF_TWO_WORDS = 0.3, 0.1, 0.2


def made_up_words(tokenizers: TokenizerPair, seed: int) -> list[str]:
    """Names of one or two words, acronyms and numbers.

    Names consist of subwords of the target side that can begin with a capital letter. If there are none, or the
    subwords of both sides have several scripts, the result has only numbers.
    """
    random = np.random.default_rng([seed, _NUM_WORDS])
    source, target = (sorted({entry.removeprefix(SPACE).lower() for entry in side.subwords()}) for side in tokenizers)
    scripts = scripts_in("".join(source)) | scripts_in("".join(target))
    pieces = [
        piece
        for piece in target
        if regex.fullmatch(r"\p{L}[\p{L}\p{M}]*+", piece)
        and len(piece) <= _MAX_PIECE_CHARACTERS
        and piece.title() != piece  # Georgian has capital letters, but no title case.
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


def usable_words(tokenizers: TokenizerPair, seed: int) -> list[str]:
    """Made-up words without those that a side encodes as bytes or [UNK], or recognises as a tag."""
    words = made_up_words(tokenizers, seed)
    for tokenizer in tokenizers:
        entries = tokenizer.tokens(range(tokenizer.vocab_size))
        unusable = {index for index, entry in enumerate(entries) if entry in _UNREADABLE} | {*tokenizer.tag_ids}
        encoded = zip(words, tokenizer.encode(words), strict=True)
        words = [word for word, ids in encoded if ids and unusable.isdisjoint(ids)]
    return words
