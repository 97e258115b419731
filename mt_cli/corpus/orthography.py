"""Stretches of `train` in another orthography than `valid` or `test`, found by their letters. Knows no language.

The letters of a text are those of its distinct words, because one sentence of a form that has a hundred rows would
count a hundred times. What `tokenizer.normalize` makes equal is equal here. Scripts without spaces are not compared.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log, log2
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FilesSource, Source
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_CODES
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import SPACELESS
from mt_cli.corpus.rows import Row, by_language, untagged
from mt_cli.corpus.sources import in_blocks
from mt_cli.corpus.spelling import APOSTROPHES

_ROWS_PER_BLOCK = 250
_MIN_LETTERS = 1_000
_WORD = re.compile(rf"[^\W\d_{APOSTROPHES}{SPACELESS}]+")
_UNLIKE = 0.1
"""Divergence in bits, beyond that of two samples of one text. Text of one orthography has at most 0.06, if other
sources write other accents; a dictionary of Shipibo in the orthography of the missions has 0.16 to 0.18."""
_BITS_A_LETTER, _SHARE_OF_TEXTS = 0.25, 0.01
"""A compared text is spelled like a stretch if its letters are more probable there by so much; of today's Shipibo,
none is like the dictionary."""
_MIN_LETTERS_OF_TEXT = 10
_NUM_TEXTS = 2_000
_SMALLEST_SHARE = 1e-3
_NUM_SHOWN = 3
_COMPARED = [
    KEPT,
    HELD_OUT,
    *(STATUS_CODES[name] for name in ("duplicates", "max_targets_per_source", "overlap", "other_orthography")),
]
"""Rows that no filter drops by themselves; so the stretches do not depend on filters that look at other rows."""

Letters = Counter[str]
Shares = Mapping[str, float]
"""The share of each letter, 0 to 1."""
Differences = tuple[tuple[str, float, float], ...]
"""Letters, each with its share here and in the compared text."""


@dataclass(frozen=True)
class Stretch:
    """Rows of a source with a side that is spelled otherwise than the compared text."""

    name: str
    """That of the file or the source."""
    language: str
    """That of the side."""
    first: int
    last: int
    """The numbers of the first and the last line."""
    rows: NDArray[np.intp]
    """The places of the rows among all rows of the corpus."""
    letters: Differences
    """The letters that differ most."""

    def __str__(self) -> str:
        return f"{self.name}, lines {self.first:,} to {self.last:,}"

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


def find_stretches(
    train: Corpus, compared: Corpus | None, config: CorpusConfig, parts: Iterable[int]
) -> Iterator[Stretch]:
    """The stretches of some sources of `train`, of 250 rows or more, with other letters than the corpus `compared`.

    That is the corpus `config.compared`; without one, none are found. Only languages that it has are compared, and
    only if no hundredth of it is spelled like the stretch.
    """
    if compared is None or config.compared is None:
        return
    texts = by_language(compared.untagged_pairs(config.languages_of(config.compared), config.tags))
    languages = config.languages_of("train")
    for number in parts:
        part, source = train.parts[number], config.train[number]
        mask = np.isin(train.statuses, _COMPARED)
        mask[: part.first_row] = mask[part.first_row + part.num_rows :] = False
        blocks = list(_blocks(train.rows(mask), config.tags))
        ends = np.cumsum([0, *(len(block.numbers) for block in blocks)])
        places = np.flatnonzero(mask)
        for side, language in enumerate(languages[number]):
            of_side = [block.letters[side] for block in blocks]
            for first, last, letters in unlike(of_side, texts.get(language, ())):
                lines = blocks[first].numbers[0], blocks[last].numbers[-1]
                rows = places[ends[first] : ends[last + 1]]
                yield Stretch(_name_of(source, part.name, side), language, *lines, rows, letters)


def divergence(one: Shares, other: Shares) -> float:
    """Jensen-Shannon divergence of two distributions in bits, 0 to 1 (Lin 1991, equation 3.8)."""
    total = 0.0
    for letter in one.keys() | other.keys():
        mean = (one.get(letter, 0) + other.get(letter, 0)) / 2
        total += sum(share * log2(share / mean) / 2 for share in (one.get(letter, 0), other.get(letter, 0)) if share)
    return total


def unlike(blocks: Sequence[Letters], compared: Sequence[str]) -> Iterator[tuple[int, int, Differences]]:
    """The first and the last of successive blocks with other letters than some texts, and those that differ most."""
    expected = letters_of(compared)
    if expected.total() < _MIN_LETTERS:
        return
    there, texts = _shares(expected), _Texts(compared, sorted(expected))
    is_unlike = [_differ(block, expected) and texts.share_like(_shares(block)) < _SHARE_OF_TEXTS for block in blocks]
    for found, group in groupby(range(len(blocks)), key=is_unlike.__getitem__):
        if found:
            numbers = list(group)
            here = _shares(sum((blocks[number] for number in numbers), Counter()))
            yield numbers[0], numbers[-1], _most_different(here, there)


def letters_of(texts: Iterable[str]) -> Letters:
    """How often each letter occurs in the distinct words, in lower case."""
    return Counter("".join(set(_words("\n".join(texts)))))


def _differ(one: Letters, other: Letters) -> bool:
    if one.total() < _MIN_LETTERS:
        return False
    # The mean of the divergence of two samples of one text, to the first order.
    by_chance = (len(one.keys() | other.keys()) - 1) * (1 / one.total() + 1 / other.total()) / (8 * log(2))
    return divergence(_shares(one), _shares(other)) - by_chance >= _UNLIKE


class _Texts:
    """Texts that are compared with blocks of `train`."""

    def __init__(self, texts: Sequence[str], letters: Sequence[str]) -> None:
        step = -(-len(texts) // _NUM_TEXTS)
        rows = [Counter("".join(_words(text))) for text in texts[::step]]
        counts = [[row[letter] for letter in letters] for row in rows if row.total() >= _MIN_LETTERS_OF_TEXT]
        self._letters = letters
        self._counts = np.array(counts, np.float32).reshape(-1, len(letters))
        """How often each text has each letter."""
        self._bits = self._information(_shares(Counter(dict(zip(letters, self._counts.sum(axis=0), strict=True)))))

    def share_like(self, shares: Shares) -> float:
        """The share of the texts, 0 to 1, whose letters are more probable by these shares than by all texts."""
        if not len(self._counts):
            return 0.0
        gains = self._counts @ (self._bits - self._information(shares)) / self._counts.sum(axis=1)
        return float((gains > _BITS_A_LETTER).mean())

    def _information(self, shares: Shares) -> NDArray[np.float32]:
        """The bits of each letter."""
        return -np.log2([max(shares.get(letter, 0), _SMALLEST_SHARE) for letter in self._letters], dtype=np.float32)


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


def _blocks(rows: Iterator[Row], tags: Sequence[str]) -> Iterator[_Block]:
    """Blocks of 250 rows; the last one has up to 499. Fewer than 250 rows are none."""
    held: list[Row] = []
    for block in in_blocks(rows, _ROWS_PER_BLOCK):
        if len(block) == _ROWS_PER_BLOCK and held:
            yield _block(held, tags)
            held = []
        held += block
    if len(held) >= _ROWS_PER_BLOCK:
        yield _block(held, tags)


def _block(rows: Sequence[Row], tags: Sequence[str]) -> _Block:
    numbers, sources, targets = zip(*rows, strict=True)
    return _Block(numbers, (letters_of(untagged(text, tags) for text in sources), letters_of(targets)))


def _name_of(source: Source, name: str, side: int) -> str:
    """The name of the file of one side or, if both are in one file, of the source."""
    if source.name is None and isinstance(source, FilesSource):
        return Path(source.files[1 - side if source.reverse else side]).name
    return name


def _shares(counts: Letters) -> Shares:
    return {letter: count / counts.total() for letter, count in counts.items()}


def _most_different(here: Shares, there: Shares) -> Differences:
    letters = sorted(here.keys() | there.keys(), key=lambda each: -abs(here.get(each, 0) - there.get(each, 0)))
    return tuple((letter, here.get(letter, 0), there.get(letter, 0)) for letter in letters[:_NUM_SHOWN])
