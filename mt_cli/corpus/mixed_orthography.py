"""Stretches of `train` in another orthography than `valid` or `test`, found by their letters. Knows no language.

Letters are counted in distinct words; otherwise a sentence that is repeated in a hundred rows would count a hundred
times. Spellings that `tokenizer.normalize` makes equal count as equal. Scripts without spaces are not compared.
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
from mt_cli.config.sections import ALL_APOSTROPHES
from mt_cli.config.sources import FilesSource, Source
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_CODES
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import SPACELESS
from mt_cli.corpus.rows import Row, by_language, untagged
from mt_cli.corpus.sources import in_blocks

_ROWS_PER_BLOCK = 250
_MIN_LETTERS = 1_000
_WORD = re.compile(rf"[^\W\d_{ALL_APOSTROPHES}{SPACELESS}]+")
_MIN_DIVERGENCE = 0.1
"""Minimum divergence in bits, beyond the divergence of two samples of one text. Text of one orthography has at most
0.06, even if sources write accents differently; a Shipibo dictionary in the missionary orthography has 0.16 to 0.18."""
_BITS_A_LETTER, _SHARE_OF_TEXTS = 0.25, 0.01
"""A compared text is spelled like a stretch if its letters are more probable there by this many bits per letter. No
text in today's Shipibo is spelled like the dictionary."""
_MIN_LETTERS_OF_TEXT = 10
_NUM_TEXTS = 2_000
_SMALLEST_SHARE = 1e-3
_NUM_SHOWN = 3
_COMPARED = [
    KEPT,
    HELD_OUT,
    *(STATUS_CODES[name] for name in ("duplicates", "max_targets_per_source", "overlap", "other_orthography")),
]
"""Statuses of rows that pass the filters of single rows. Filters that compare rows do not change the stretches."""

Letters = Counter[str]
Shares = Mapping[str, float]
"""Share of each letter, 0 to 1."""
Differences = tuple[tuple[str, float, float], ...]
"""Letters, each with its share in the stretch and in the compared text."""


@dataclass(frozen=True)
class Stretch:
    """Rows of a source in which one side is spelled differently from the compared text."""

    name: str
    """Name of the file or the source."""
    language: str
    """Language of the side."""
    first: int
    last: int
    """Numbers of the first and the last line."""
    rows: NDArray[np.intp]
    """Places of the rows among all rows of the corpus."""
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
    """Letters of each side of some rows."""

    first: int
    last: int
    """Numbers of the first and the last line."""
    num_rows: int
    letters: tuple[Letters, Letters]


def find_stretches(
    train: Corpus, compared: Corpus | None, config: CorpusConfig, parts: Iterable[int]
) -> Iterator[Stretch]:
    """Stretches of some sources of `train`, of 250 rows or more, with other letters than the corpus `compared`.

    `compared` is the corpus that `config.compared` names; there are no stretches without it. Only its languages are
    compared. A stretch counts only if less than a hundredth of the compared texts has its spelling.
    """
    if compared is None or config.compared is None:
        return
    texts = by_language(compared.untagged_pairs(config.languages_of(config.compared), config.tags))
    languages = config.languages_of("train")
    for number in parts:
        part, source = train.parts[number], config.train[number]
        mask = np.isin(train.statuses, _COMPARED)
        mask[: part.first_row] = mask[part.first_row + part.num_rows :] = False
        blocks = [_count_block(rows, config.tags) for rows in _blocks(train.rows(mask))]
        ends = np.cumsum([0, *(block.num_rows for block in blocks)])
        places = np.flatnonzero(mask)
        for side, language in enumerate(languages[number]):
            letters = [block.letters[side] for block in blocks]
            for first, last, differences in _unlike(letters, texts.get(language, ())):
                lines = blocks[first].first, blocks[last].last
                rows = places[ends[first] : ends[last + 1]]
                yield Stretch(_name_of(source, part.name, side), language, *lines, rows, differences)


def divergence(shares: Shares, other_shares: Shares) -> float:
    """Jensen-Shannon divergence of two distributions in bits, 0 to 1 (Lin 1991, equation 3.8)."""
    total = 0.0
    for letter in shares.keys() | other_shares.keys():
        pair = shares.get(letter, 0), other_shares.get(letter, 0)
        total += sum(share * log2(2 * share / sum(pair)) / 2 for share in pair if share)
    return total


def _unlike(blocks: Sequence[Letters], compared: Sequence[str]) -> Iterator[tuple[int, int, Differences]]:
    """First and last of successive blocks with other letters than `compared`, and the letters that differ most."""
    expected = _letters_of(compared)
    if expected.total() < _MIN_LETTERS:
        return
    shares, letters = _shares(expected), sorted(expected)
    counts = _count_texts(compared, letters)
    bits = _bits(_shares(Counter(dict(zip(letters, counts.sum(axis=0), strict=True)))), letters)

    def is_unlike(number: int) -> bool:
        if not _differ(blocks[number], expected):
            return False
        gains = counts @ (bits - _bits(_shares(blocks[number]), letters)) / counts.sum(axis=1)
        return not len(gains) or bool((gains > _BITS_A_LETTER).mean() < _SHARE_OF_TEXTS)

    for is_stretch, group in groupby(range(len(blocks)), key=is_unlike):
        if is_stretch:
            numbers = list(group)
            total = sum((blocks[number] for number in numbers), Counter[str]())
            yield numbers[0], numbers[-1], _most_different(_shares(total), shares)


def _count_texts(texts: Sequence[str], letters: Sequence[str]) -> NDArray[np.float32]:
    """Number of each letter in each of at most 2,000 texts that have ten letters or more."""
    rows = [Counter("".join(_words(text))) for text in texts[:: -(-len(texts) // _NUM_TEXTS)]]
    counts = [[row[letter] for letter in letters] for row in rows if row.total() >= _MIN_LETTERS_OF_TEXT]
    return np.array(counts, np.float32).reshape(-1, len(letters))


def _bits(shares: Shares, letters: Sequence[str]) -> NDArray[np.float32]:
    """Information of each letter."""
    return -np.log2([max(shares.get(letter, 0), _SMALLEST_SHARE) for letter in letters], dtype=np.float32)


def _letters_of(texts: Iterable[str]) -> Letters:
    """Number of each letter in the distinct words, in lower case."""
    return Counter("".join(set(_words("\n".join(texts)))))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


def _differ(block: Letters, expected: Letters) -> bool:
    if block.total() < _MIN_LETTERS:
        return False
    # First-order mean of the divergence of two samples of one text.
    by_chance = (len(block.keys() | expected.keys()) - 1) * (1 / block.total() + 1 / expected.total()) / (8 * log(2))
    return divergence(_shares(block), _shares(expected)) - by_chance >= _MIN_DIVERGENCE


def _blocks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Blocks of 250 rows; the last one has up to 499. Fewer than 250 rows make no block."""
    held: list[Row] = []
    for block in in_blocks(rows, _ROWS_PER_BLOCK):
        if len(block) == _ROWS_PER_BLOCK and held:
            yield held
            held = []
        held += block
    if len(held) >= _ROWS_PER_BLOCK:
        yield held


def _count_block(rows: Sequence[Row], tags: Sequence[str]) -> _Block:
    numbers, sources, targets = zip(*rows, strict=True)
    letters = _letters_of(untagged(text, tags) for text in sources), _letters_of(targets)
    return _Block(numbers[0], numbers[-1], len(rows), letters)


def _name_of(source: Source, name: str, side: int) -> str:
    """Name of the file of one side or, if both are in one file, of the source."""
    if source.name is None and isinstance(source, FilesSource):
        return Path(source.files[1 - side if source.reverse else side]).name
    return name


def _shares(counts: Letters) -> Shares:
    return {letter: count / counts.total() for letter, count in counts.items()}


def _most_different(shares: Shares, compared: Shares) -> Differences:
    rows = [(letter, shares.get(letter, 0), compared.get(letter, 0)) for letter in shares.keys() | compared.keys()]
    return tuple(sorted(rows, key=lambda row: -abs(row[1] - row[2]))[:_NUM_SHOWN])
