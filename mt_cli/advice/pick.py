"""Sentences worth translating next by hand: they have frequent words and phrases that the corpus lacks.

N-grams are covered by their frequency (Eck et al. 2005, "Low Cost Portability for Statistical Machine Translation based
on N-gram Frequency and TF-IDF"), per token of a sentence. Their weight halves each time that they are covered (Bicici
and Yuret 2011, "Instance Selection for Machine Translation using Feature Decay Algorithms"). Tables of hashes have a
fixed size, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from mt_cli.advice.recognition import other_language_of_texts
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import primary, writes_spaces
from mt_cli.corpus.monolingual import BETWEEN_SIDES, kept_lines
from mt_cli.corpus.text_hashes import hash_of
from mt_cli.data.prepare import evaluation_hashes, read
from mt_cli.data.streams import SHUFFLE_BUFFER
from mt_cli.errors import InputError

_WORD, _CHARACTER = regex.compile(r"[\p{L}\p{M}\p{N}]+"), regex.compile(r"[\p{L}\p{N}]\p{M}*")
_TABLE_BITS = 26
"""Binary logarithm of the size of a table. Different n-grams may share an entry, which makes a line less likely."""
_LONGEST_NGRAM = 3
_FEWEST_TOKENS, _LONG_QUANTILE, _LONGER = 3, 0.99, 1.5
_COST_OF_LINE = 5
"""Work of a translator with a line besides its words, in words."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LINES_AT_ONCE = 20_000


class _Block(NamedTuple):
    """N-grams of some lines."""

    entries: NDArray[np.uint64]
    """Place in the tables of each n-gram."""
    lines: NDArray[np.int64]
    """Index of its line."""
    num_tokens: NDArray[np.int64]
    """Length of each line."""


def pick_from(path: Path, config: Config, cache: Cache, number: int) -> tuple[list[str], dict[str, int]]:
    """Pick lines as `pick` does from a text in the source language of a config, whose filters are applied to it, too.

    Raises InputError if the text is in another language, and CorpusError if a corpus cannot be read.
    """
    corpus, language = config.corpus, config.corpus.source
    corpora = read(config, cache, SHUFFLE_BUFFER)
    filters = corpus.filters.model_copy(update=BETWEEN_SIDES)
    kept, counts = kept_lines([path], language, filters, evaluation_hashes(corpora))
    lines: list[str] = kept.to_pylist()
    if code := other_language_of_texts(lines, language):
        raise InputError(
            f"--from {path}: the text looks like `{code}`, not `{language}`, which the model translates from"
        )
    blocks = corpora["train"].untagged_blocks()
    known = (
        text
        for pair, *sides in blocks
        for code, texts in zip(pair, sides, strict=True)
        if primary(code) == primary(language)
        for text in texts
    )
    picked, left_out = pick(lines, known, language, number)
    return picked, {name: count for name, count in counts.items() if name != "kept"} | left_out


def pick(lines: Sequence[str], corpus: Iterable[str], language: str, number: int) -> tuple[list[str], dict[str, int]]:
    """At most `number` lines, the best first, and the numbers of dropped lines, by reason.

    There are fewer if the corpus and the picked lines have all that occurs twice in the others. Lines with less than
    three words, and far longer ones than the corpus has, are dropped.
    """
    weights, longest = np.zeros(1 << _TABLE_BITS, np.float32), 0
    for block in _blocks(lines, language):
        np.add.at(weights, block.entries, np.float32(1))
    np.log(np.maximum(weights, 1, out=weights), out=weights)  # Zero for an n-gram that occurs once.
    for block in _blocks(corpus, language):
        weights[block.entries] = 0
        longest = max(longest, int(_LONGER * np.quantile(block.num_tokens, _LONG_QUANTILE)))
    num_tokens, scores = np.empty(0, np.int64), np.empty(0)
    for block in _blocks(lines, language):
        num_tokens = np.append(num_tokens, block.num_tokens)
        scores = np.append(scores, np.bincount(block.lines, weights[block.entries], len(block.num_tokens)))
    is_short, is_long = num_tokens < _FEWEST_TOKENS, num_tokens > max(longest, _FEWEST_TOKENS)
    is_known = ~is_short & ~is_long & (scores == 0)
    scores[is_short | is_long] = 0
    counts = {"too short": is_short, "too long": is_long, "nothing new": is_known}
    left_out = {reason: int(mask.sum()) for reason, mask in counts.items()}
    rows = _greedy(lines, language, scores / (num_tokens + _COST_OF_LINE), weights)
    return [lines[row] for row in islice(rows, number)], left_out


def _greedy(
    lines: Sequence[str], language: str, scores: NDArray[np.float64], weights: NDArray[np.float32]
) -> Iterator[int]:
    """Rows with a positive score, the best one first. Scores only fall, so only the row at the top is scored again."""
    order = np.argsort(-scores, kind="stable").tolist()
    heap: list[tuple[float, int]] = []
    covered = set[bytes]()
    for row, next_row in zip_longest(order, order[1:]):
        heapq.heappush(heap, (-float(scores[row]), row))
        bound = 0.0 if next_row is None else float(scores[next_row])
        while heap and -heap[0][0] >= bound and heap[0][0] < 0:
            before, best = heapq.heappop(heap)
            (block,) = _blocks([lines[best]], language)
            entries = np.unique(block.entries)
            score = float(weights[entries].sum()) / (int(block.num_tokens[0]) + _COST_OF_LINE)
            if score < -before - 1e-6:
                heapq.heappush(heap, (-score, best))
                continue
            weights[entries] /= 2
            if (ngrams := entries.tobytes()) not in covered:  # Other lines differ in case and punctuation alone.
                covered.add(ngrams)
                yield best


def _blocks(texts: Iterable[str], language: str) -> Iterator[_Block]:
    """N-grams of words in lower case without numbers, or of characters for languages without spaces."""
    pattern, texts = _WORD if writes_spaces(language) else _CHARACTER, iter(texts)
    while some := list(islice(texts, _LINES_AT_ONCE)):
        words = [[word for word in pattern.findall(text.lower()) if not word.isnumeric()] for text in some]
        num_tokens = np.array([len(line) for line in words], np.int64)
        hashes = (hash_of(word) for line in words for word in line)
        tokens = np.fromiter(hashes, np.uint64, int(num_tokens.sum()))
        lines = np.repeat(np.arange(len(some)), num_tokens)
        ngrams, pieces, owners = tokens, [tokens], [lines]
        for length in range(1, _LONGEST_NGRAM):
            ngrams = ngrams[:-1] * _MULTIPLIER + tokens[length:]
            is_inside = lines[length:] == lines[: len(ngrams)]
            pieces.append(ngrams[is_inside])
            owners.append(lines[length:][is_inside])
        entries = np.concatenate(pieces) * _MULTIPLIER >> np.uint64(64 - _TABLE_BITS)
        yield _Block(entries, np.concatenate(owners), num_tokens)
