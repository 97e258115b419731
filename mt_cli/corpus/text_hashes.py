"""Hashes of texts and pairs, after a tokenizer's spelling, or without case, punctuation and letter forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from mt_cli.corpus.rows import Pair, untagged

Hashes = NDArray[np.int64]
PairHashes = NDArray[np.uint64]
_NO_LETTER_OR_DIGIT = re.compile(r"[\W_]+")


class Spelling(NamedTuple):
    """Spelling of a text before a tokenizer splits it."""

    key: Any
    """JSON value that is equal for equal spellings."""
    spell: Callable[[str], str] | None
    """None: texts stay as they are."""


AS_WRITTEN = Spelling(None, None)


def hashes_of(texts: Iterable[str], spelling: Spelling = AS_WRITTEN) -> Hashes:
    """64-bit hash (XXH3) of each text as it is spelled, equal on all machines."""
    spelled = texts if spelling.spell is None else map(spelling.spell, texts)
    return np.fromiter((xxhash.xxh3_64_intdigest(text.encode()) for text in spelled), np.uint64).view(np.int64)


def loose(text: str) -> str:
    """Letters and digits of a text, in lower case and compatibility form (NFKC).

    A text without letters and digits stays as it is.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _NO_LETTER_OR_DIGIT.sub("", folded) or text


def _loose_hashes(texts: Iterable[str], seed: int) -> NDArray[np.uint64]:
    return np.fromiter((xxhash.xxh3_64_intdigest(loose(text).encode(), seed) for text in texts), np.uint64)


def pair_hashes(pairs: Sequence[Pair], tags: Sequence[str] = (), seed: int = 0) -> PairHashes:
    """Seeded 64-bit hash (XXH3) of each pair, without the tag of its source.

    Both directions of a pair have the same hash, and so do pairs whose sides `loose` makes equal.
    """
    sources = _loose_hashes((untagged(source, tags) for source, _ in pairs), seed)
    return sources + _loose_hashes((target for _, target in pairs), seed)
