"""Words of a training text that are translations of each other, and base forms of the translations.

IBM model 1 in both directions (Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1),
over the words of a sample. `eflomal` and `sil-thot` align better, but have to be compiled, or have no packages for
every system; only pairs of words that are likely in both directions are used, for which counts suffice.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.corpus.languages import SPACELESS_CHARACTER
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.corpus.word_forms import WORD, are_forms, folded
from mt_cli.data.encode import starts_of

MOST_PAIRS = 200_000
"""Maximum number of pairs that a lexicon is made from."""
_MOST_CELLS = 8_000_000
"""Maximum number of pairs of words that occur together; each takes about 50 bytes."""
_NUM_ITERATIONS = 5
_FREQUENT, _SHARE_OF_FREQUENT = 100, 0.05
"""Number, and maximum share of all words, of the most frequent words, which are not terms."""
_FEWEST_LETTERS, _FEWEST_PAIRS = 3, 2
_LOWEST, _LOWEST_OF_LIKELIER = 0.1, 0.4
"""Lowest probabilities of two words as translations of each other: of both directions, and of the likelier one."""
_SHARED_LETTERS = 3
"""Letters that forms of one word share at least; see `are_forms`."""
_folded = lru_cache(2**17)(folded)
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Lexicon:
    """Translations of words of one direction; words are folded."""

    bases: Mapping[str, Mapping[str, str]]
    """For each word, its translations, each with the base form: the most frequent one of the forms of both words."""
    counts: Mapping[str, int]
    """Number of pairs of the sample with each word."""
    targets: Sequence[str]
    """Words of the target language as they are written, in alphabetical order."""


def lexicons_of(pairs: Iterable[tuple[Languages, Pair]]) -> dict[Languages, Lexicon]:
    """Lexicons of both directions of all languages, from pairs of texts without tags. A function of the pairs."""
    by_languages = defaultdict[Languages, list[Pair]](list)
    for (source, target), pair in pairs:
        is_reverse = (target, source) in by_languages
        by_languages[(target, source) if is_reverse else (source, target)].append(pair[::-1] if is_reverse else pair)
    lexicons = dict[Languages, Lexicon]()
    for languages, of_languages in by_languages.items():
        lexicons[languages], lexicons[languages[::-1]] = _both_lexicons(of_languages)
    return lexicons


def save_lexicons(path: Path, lexicons: Mapping[Languages, Lexicon]) -> None:
    rows = [[languages, asdict(lexicon)] for languages, lexicon in lexicons.items()]
    path.write_text(json.dumps(rows), encoding="utf-8")


def load_lexicons(path: Path) -> dict[Languages, Lexicon]:
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {(source, target): Lexicon(**lexicon) for (source, target), lexicon in rows}


def _both_lexicons(pairs: Sequence[Pair]) -> tuple[Lexicon, Lexicon]:
    sides = [_Side.of([pair[side] for pair in pairs]) for side in (0, 1)]
    num_cells = int((sides[0].lengths * sides[1].lengths).sum())
    step = -(-num_cells // _MOST_CELLS) or 1
    links = _links(*(side.every(step) for side in sides))
    names = [side.words for side in sides]
    words = [(names[0][source], names[1][target], count) for source, target, count in links]
    return _lexicon(words, sides), _lexicon([(target, source, count) for source, target, count in words], sides[::-1])


@dataclass(frozen=True)
class _Side:
    """One side of pairs, as ids of words that may be terms, each once in a text."""

    words: Sequence[str]
    ids: Integers
    lengths: Integers
    """Number of ids of each text."""
    spellings: Mapping[str, str]
    """Most frequent spelling of each word."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Side:
        counts, spelled = Counter[str](), defaultdict[str, Counter[str]](Counter)
        words_of_texts = list[list[str]]()
        for text in texts:
            words = dict[str, str]()
            for number, word in enumerate(WORD.findall(text)):
                if word[0].isalpha() and (len(word) >= _FEWEST_LETTERS or SPACELESS_CHARACTER.match(word)):
                    key = _folded(word)
                    words.setdefault(key, word if number else key)
            counts.update(words.keys())
            for key, word in words.items():
                spelled[key][word] += 1
            words_of_texts.append([*words])
        num_frequent = min(_FREQUENT, int(_SHARE_OF_FREQUENT * len(counts)))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))[num_frequent:]
        numbers = {word: number for number, word in enumerate(ordered) if counts[word] >= _FEWEST_PAIRS}
        rows = [[numbers[word] for word in words if word in numbers] for words in words_of_texts]
        spellings = {word: max(spelled[word], key=lambda spelling: spelled[word][spelling]) for word in numbers}
        ids = np.array([number for row in rows for number in row], np.int64)
        return cls([*numbers], ids, np.array([*map(len, rows)], np.int64), spellings)

    def every(self, step: int) -> _Side:
        is_kept = np.arange(len(self.lengths)) % step == 0
        return _Side(self.words, self.ids[np.repeat(is_kept, self.lengths)], self.lengths[is_kept], self.spellings)


def _links(source: _Side, target: _Side) -> list[tuple[int, int, int]]:
    """Ids of words that are likely translations of each other, and the number of pairs with both."""
    in_text = np.repeat(np.arange(len(source.lengths)), source.lengths)
    counts = target.lengths[in_text]
    source_places = np.repeat(np.arange(len(in_text)), counts)
    first = starts_of(target.lengths)[in_text]
    target_places = np.repeat(first - starts_of(counts), counts) + np.arange(len(source_places))
    keys = source.ids[source_places] * len(target.words) + target.ids[target_places]
    distinct, cells, num_pairs = np.unique(keys, return_inverse=True, return_counts=True)
    words = np.divmod(distinct, max(1, len(target.words)))
    forward = _probabilities(cells, target_places, words[0])
    backward = _probabilities(cells, source_places, words[1])
    both = np.stack([forward, backward])
    is_likely = (both.min(axis=0) >= _LOWEST) & (both.max(axis=0) >= _LOWEST_OF_LIKELIER) & (num_pairs >= _FEWEST_PAIRS)
    return [
        *zip(words[0][is_likely].tolist(), words[1][is_likely].tolist(), num_pairs[is_likely].tolist(), strict=True)
    ]


def _probabilities(cells: Integers, given_places: Integers, sources: Integers) -> NDArray[np.float64]:
    """Probability of the second word of each distinct pair as a translation of the first one.

    `cells` has the distinct pair of each cell, `given_places` the place of its second word in the text, and `sources`
    the first word of each distinct pair.
    """
    probabilities: NDArray[Any] = np.ones(len(sources))
    for _ in range(_NUM_ITERATIONS):
        weights = probabilities[cells]
        weights /= np.bincount(given_places, weights)[given_places]
        expected = np.bincount(cells, weights, len(sources))
        probabilities = expected / np.bincount(sources, expected)[sources]
    return probabilities


def _lexicon(links: Sequence[tuple[str, str, int]], sides: Sequence[_Side]) -> Lexicon:
    """Lexicon of linked words of the sides, with the number of pairs that have both words."""
    families = defaultdict[tuple[str, str], list[tuple[str, str, int]]](list)
    for source, target, count in links:
        families[source[:_SHARED_LETTERS], target[:_SHARED_LETTERS]].append((source, target, count))
    bases = defaultdict[str, dict[str, str]](dict)
    counts = Counter[str]()
    spellings = sides[1].spellings
    for source, target, count in links:
        forms = Counter[str]()
        for other_source, other_target, number in families[source[:_SHARED_LETTERS], target[:_SHARED_LETTERS]]:
            if are_forms(source, other_source) and are_forms(target, other_target):
                forms[other_target] += number
        bases[source][target] = spellings[max(forms, key=lambda form: (forms[form], form))]
        counts[source] += count
    targets = sorted({spellings[target] for translations in bases.values() for target in translations})
    return Lexicon(dict(bases), dict(counts), targets)
