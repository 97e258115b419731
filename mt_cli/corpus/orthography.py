"""Stretches of `train` in another orthography than `valid`, found by their letters. Knows no language.

The letters of a text are those of its distinct words, because one sentence of a form that has a hundred rows would
count a hundred times. What `tokenizer.normalize` makes equal is equal here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log2

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.rows import Row, untagged
from mt_cli.corpus.sources import in_blocks
from mt_cli.corpus.spelling import APOSTROPHES

_ROWS_PER_BLOCK = 250
_MIN_LETTERS = 1_000
_WORD = re.compile(rf"[^\W\d_{APOSTROPHES}]+")
_UNLIKE = 0.1
"""Divergence in bits. Text of one orthography has at most 0.06, if other sources write other accents; a dictionary of
Shipibo in the orthography of the missions has 0.16 to 0.18 from today's."""
_NUM_SHOWN = 3

Letters = Counter[str]
Shares = Mapping[str, float]
"""The share of each letter, 0 to 1."""
Differences = tuple[tuple[str, float, float], ...]
"""Letters, each with its share here and in the validation text."""


@dataclass(frozen=True)
class Stretch:
    """Pairs of a source with a side that is spelled otherwise than the validation text."""

    part: int
    """The number of their source."""
    language: str
    """That of the side."""
    first: int
    last: int
    """The numbers of the first and the last line."""
    rows: NDArray[np.intp]
    """The places of the pairs among the rows of the corpus."""
    letters: Differences
    """The letters that differ most."""

    @property
    def difference(self) -> str:
        """The letters that differ most, for people."""
        return ", ".join(f"{letter} {here:.1%} instead of {there:.1%}" for letter, here, there in self.letters)


@dataclass(frozen=True)
class _Block:
    numbers: Sequence[int]
    """Those of the lines."""
    letters: tuple[Letters, Letters]
    """Those of each side."""

    def __add__(self, other: _Block) -> _Block:
        (one, two), (three, four) = self.letters, other.letters
        return _Block([*self.numbers, *other.numbers], (one + three, two + four))


def find_stretches(train: Corpus, valid: Corpus, config: CorpusConfig, parts: Iterable[int]) -> Iterator[Stretch]:
    """The stretches of some sources of `train`, of 250 pairs or more, whose letters are unlike those of `valid`.

    Only languages that write spaces and are in `valid` are compared.
    """
    expected, languages = _letters_by_language(valid, config), config.languages_of("train")
    for number in parts:
        part = train.of_parts([number])
        blocks = _blocks(part.rows(), config.tags)
        ends = np.cumsum([0, *(len(block.numbers) for block in blocks)])
        places = np.flatnonzero(part.statuses == part.code)
        for side, language in enumerate(languages[number]):
            if language not in expected or not writes_spaces(language):
                continue
            for first, last, letters in unlike([block.letters[side] for block in blocks], expected[language]):
                rows = places[ends[first] : ends[last + 1]]
                lines = blocks[first].numbers[0], blocks[last].numbers[-1]
                yield Stretch(number, language, *lines, rows, letters)


def divergence(one: Shares, other: Shares) -> float:
    """Jensen-Shannon divergence of two distributions in bits, 0 to 1 (Lin 1991, equation 3.8)."""
    total = 0.0
    for letter in one.keys() | other.keys():
        mean = (one.get(letter, 0) + other.get(letter, 0)) / 2
        total += sum(share * log2(share / mean) / 2 for share in (one.get(letter, 0), other.get(letter, 0)) if share)
    return total


def unlike(blocks: Sequence[Letters], expected: Letters) -> Iterator[tuple[int, int, Differences]]:
    """The first and the last of successive blocks with other letters than expected, and those that differ most."""
    if expected.total() < _MIN_LETTERS:
        return
    shares = _shares(expected)
    is_unlike = [each.total() >= _MIN_LETTERS and divergence(_shares(each), shares) >= _UNLIKE for each in blocks]
    for found, group in groupby(range(len(blocks)), key=is_unlike.__getitem__):
        if found:
            numbers = list(group)
            here = _shares(sum((blocks[number] for number in numbers), Counter()))
            yield numbers[0], numbers[-1], _most_different(here, shares)


def letters_of(texts: Iterable[str]) -> Letters:
    """How often each letter occurs in the distinct words, in lower case."""
    whole = unicodedata.normalize("NFC", "\n".join(texts)).lower()
    return Counter("".join(set(_WORD.findall(whole))))


def _blocks(rows: Iterator[Row], tags: Sequence[str]) -> list[_Block]:
    blocks = []
    for block in in_blocks(rows, _ROWS_PER_BLOCK):
        numbers, sources, targets = zip(*block, strict=True)
        blocks.append(_Block(numbers, (letters_of(untagged(text, tags) for text in sources), letters_of(targets))))
    if len(blocks) > 1 and len(blocks[-1].numbers) < _ROWS_PER_BLOCK:
        blocks[-2:] = [blocks[-2] + blocks[-1]]
    return blocks


def _letters_by_language(corpus: Corpus, config: CorpusConfig) -> Mapping[str, Letters]:
    texts = defaultdict[str, list[str]](list)
    languages = corpus.languages(config.languages_of("valid"))
    for (one, other), (source, target) in zip(languages, corpus.pairs, strict=True):
        texts[one].append(untagged(source, config.tags))
        texts[other].append(target)
    return {language: letters_of(own) for language, own in texts.items()}


def _shares(counts: Letters) -> Shares:
    return {letter: count / counts.total() for letter, count in counts.items()}


def _most_different(here: Shares, there: Shares) -> Differences:
    letters = sorted(here.keys() | there.keys(), key=lambda each: -abs(here.get(each, 0) - there.get(each, 0)))
    return tuple((letter, here.get(letter, 0), there.get(letter, 0)) for letter in letters[:_NUM_SHOWN])
