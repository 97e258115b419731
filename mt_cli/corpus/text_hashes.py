"""Hashes of texts and pairs, in composed form, or without case, punctuation and letter forms."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import regex
import xxhash
from numpy.typing import NDArray

from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Languages

Hashes = NDArray[np.int64]
PairHashes = NDArray[np.uint64]
_BETWEEN_WORDS = regex.compile(r"[^\p{L}\p{M}\p{N}]+\p{M}*|[\u0591-\u05c7\u064b-\u0652\u0670]+")
"""Also the vowel points of Hebrew and Arabic, which most texts leave out."""


def hashes_of(texts: Iterable[str], language: str) -> Hashes:
    """64-bit hash (XXH3) of each text in a language, composed (NFC); equal on all machines."""
    seed = hash_of(primary(language))
    return np.fromiter((hash_of(unicodedata.normalize("NFC", text), seed) for text in texts), np.uint64).view(np.int64)


def hash_of(text: str, seed: int = 0) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(), seed)


def loose(text: str) -> str:
    """Letters, their marks, and digits of a text, in lower case and compatibility form (NFKC).

    A text without letters and digits stays as it is.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _BETWEEN_WORDS.sub("", folded) or text


def pair_hashes(sources: Iterable[str], targets: Iterable[str], seed: int = 0) -> PairHashes:
    """Seeded 64-bit hash of each pair of texts without tags.

    Both directions of a pair have the same hash, and so do pairs whose sides `loose` makes equal.
    """
    first, second = (
        np.fromiter((hash_of(loose(text), seed) for text in texts), np.uint64) for texts in (sources, targets)
    )
    hashes: PairHashes = first + second
    return hashes


def seed_of(languages: Languages) -> int:
    """Seed that makes `pair_hashes` differ between two languages and other languages, whatever the direction."""
    return hash_of(" ".join(sorted(map(primary, languages))))
