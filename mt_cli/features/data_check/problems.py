"""Suspicious stretches of lines and pairs of a corpus. Knows text; changes nothing.

Stretches that are misaligned or in another language are found in windows of lines. No single pair is reported as a
problem; the most suspicious of the kept pairs are listed for the user.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, are_foreign, seem_swapped
from mt_cli.corpus.corpus import Corpus, SourceRows
from mt_cli.corpus.languages import COMMON_WORDS, language_of, primary, words_of
from mt_cli.corpus.rows import Languages, Row, untagged
from mt_cli.corpus.slips import features_of, find_slips
from mt_cli.corpus.sources import places_in

_LEFT_OUT = [STATUS_CODES[name] for name in ("other_orthography", "blank_pair", "blank_source", "blank_target")]
"""Statuses of rows that make no stretch a problem."""
_ROWS_PER_BLOCK = 10_000
_MAX_BLOCKS = 50
"""Blocks examined of a part, evenly spread."""
_WINDOW = 500
_FOREIGN_SHARE = 0.25
_MIN_LINES = 10
_MARKUP = re.compile(r"https?://|www\.|<\w+[^<>]*>|&\w+;|\S+@\S+\.\w")
_REPETITION = re.compile(r"\b(\w+)(?:\W+\1\b){3}")

Kind = Literal["stretch", "processed", "segmented", "scripts", "text"]


@dataclass(frozen=True)
class Problem:
    """Lines of a corpus that the user should check."""

    corpus: str
    part: str
    """Name of the source; empty for the whole corpus."""
    first: int
    last: int
    """Numbers of the first and the last line."""
    text: str
    kind: Kind = "stretch"
    """`stretch`: neighbouring lines; the others: sentences anywhere, whose places are in `text`."""
    is_note: bool = False
    """Whether it is worth a note, and no reason to stop."""

    @property
    def is_refused(self) -> bool:
        """Whether it is text that is processed already, on which no new run begins."""
        return self.kind in ("processed", "segmented") and not self.is_note

    @property
    def message(self) -> str:
        """Place and text."""
        lines = f", lines {self.first:,} to {self.last:,}" if self.kind == "stretch" else ""
        return f"{self.corpus}: {self.part}{lines}: {self.text}" if self.part else f"{self.corpus}: {self.text}"

    def __str__(self) -> str:
        return f"{'note: ' if self.is_note else 'PROBLEM in '}{self.message}"


@dataclass(frozen=True)
class OddPair:
    """A suspicious pair."""

    part: str
    number: int
    source: str
    target: str
    suspicion: float
    why: tuple[str, ...]


def find_problems(name: str, corpus: Corpus, config: CorpusConfig) -> list[Problem]:
    """Stretches of a corpus that are misaligned or in other languages, but for those left out as another spelling."""
    problems: list[Problem] = []
    for part, expected in zip(corpus.parts, config.languages_of(name), strict=True):
        for block, statuses in _blocks(corpus, part, config.tags):
            used = [row[0] for row, status in zip(block, statuses, strict=True) if status not in _LEFT_OUT]
            stretches = [*_misaligned_stretches(block), *_foreign_stretches(block, expected)]
            problems.extend(
                Problem(name, part.name, first, last, text)
                for first, last, text in stretches
                if any(first <= number <= last for number in used)
            )
    return [_with_files(problem, config) for problem in _joined(problems)]


def _blocks(corpus: Corpus, part: SourceRows, tags: Sequence[str]) -> Iterator[tuple[list[Row], NDArray[np.uint8]]]:
    """Blocks of the rows of a part, without tags, with their statuses."""
    size = _ROWS_PER_BLOCK
    count = -(-part.num_rows // size)
    for index in sorted({int(each) for each in np.linspace(0, count - 1, min(count, _MAX_BLOCKS))}):
        rows = slice(part.first_row + index * size, part.first_row + min((index + 1) * size, part.num_rows))
        mask = np.zeros(len(corpus.statuses), dtype=bool)
        mask[rows] = True
        block = [(number, untagged(source, tags), target) for number, source, target in corpus.rows(mask)]
        yield block, corpus.statuses[rows]


def _misaligned_stretches(block: Sequence[Row]) -> Iterator[tuple[int, int, str]]:
    rows = [row for row in block if row[1] and row[2]]
    if not rows:
        return
    numbers, sources, targets = zip(*rows, strict=True)
    found = find_slips(sources, targets)
    for first, last, slip in found.stretches:
        if slip is None:
            text = "source and target do not seem to correspond here, nor a few lines up or down"
        else:
            place = f"line N {'+' if slip > 0 else '-'} {abs(slip)} of the target"
            text = f"line N of the source seems to belong to {place}"
        yield numbers[first - 1], numbers[last - 1], text
    if found.is_unrelated:
        yield numbers[0], numbers[-1], "the two sides do not seem to translate each other"


def _foreign_stretches(block: Sequence[Row], languages: Languages) -> Iterator[tuple[int, int, str]]:
    """Windows with many lines in another language or script."""
    expected = tuple(map(primary, languages))
    for start in range(0, len(block), _WINDOW):
        numbers, sources, targets = zip(*block[start : start + _WINDOW], strict=True)
        found = _prevailing_language(sources, expected[0]), _prevailing_language(targets, expected[1])
        num_foreign = int(are_foreign(sources, targets, languages).sum())
        is_foreign = num_foreign > max(_FOREIGN_SHARE * len(sources), _MIN_LINES)
        is_foreign |= any(code is not None and code != own for code, own in zip(found, expected, strict=True))
        # The target in the source language is enough: the words of the target language may not be known.
        is_target_in_source_language = found[1] == expected[0] != expected[1] and found[0] != expected[0]
        if is_target_in_source_language or (is_foreign and seem_swapped(sources, targets, languages)):
            yield numbers[0], numbers[-1], "the two languages seem to be swapped"
        elif is_foreign:
            foreign = [
                f"the {side} looks like `{code}`, not `{language}`"
                for side, code, own, language in zip(("source", "target"), found, expected, languages, strict=True)
                if code and code != own
            ]
            text = " and ".join(foreign) or "many lines are not in the language or script that they should be in"
            yield numbers[0], numbers[-1], text


def _prevailing_language(texts: Iterable[str], expected: str) -> str | None:
    """The language of most texts by their common words; None if unclear."""
    guesses = [language_of(words_of(text)) for text in texts]
    votes = Counter(code for code in guesses if code is not None)
    for code, number in votes.most_common(1):
        if COMMON_WORDS.get(expected) == COMMON_WORDS[code]:
            return expected
        # Related languages such as Danish and Norwegian share most of these words.
        if number >= _MIN_LINES and number > len(guesses) / 2 and votes[expected] < len(guesses) / 10:
            return code
        if votes[expected] >= _MIN_LINES:
            return expected
    return None


def _joined(problems: Sequence[Problem]) -> list[Problem]:
    """Neighbouring stretches with the same problem are joined."""
    joined: list[Problem] = []
    for problem in sorted(problems, key=lambda each: (each.corpus, each.part, each.text, each.first)):
        previous = joined[-1] if joined else None
        if (
            previous
            and (previous.corpus, previous.part, previous.text) == (problem.corpus, problem.part, problem.text)
            and problem.first <= previous.last + _WINDOW + 1
        ):
            joined[-1] = replace(previous, last=problem.last)
        else:
            joined.append(problem)
    return sorted(joined, key=lambda each: (each.corpus, each.part, each.first))


def _with_files(problem: Problem, corpus: CorpusConfig) -> Problem:
    """The problem with the files of its lines, if its source is a folder."""
    ends = [(problem.part, number) for number in (problem.first, problem.last)]
    first, last = (places_in(corpus, problem.corpus, ends)[end] for end in ends)
    is_numbered = first == f"line {problem.first:,}"
    return problem if is_numbered else replace(problem, text=f"{problem.text} (from {first} to {last})")


def odd_pairs(corpus: Corpus, config: CorpusConfig, number: int) -> list[OddPair]:
    """The most suspicious of the kept pairs of `train` that are examined, worst first."""
    found: list[OddPair] = []
    languages = config.languages_of("train")
    for part, expected in ((corpus.parts[number], languages[number]) for number in config.once("train")):
        for block, statuses in _blocks(corpus, part, config.tags):
            if kept := [row for row, status in zip(block, statuses, strict=True) if status == KEPT]:
                candidates = [*found, *_odd_pairs_of(part, kept, expected)]
                found = heapq.nlargest(number, candidates, key=lambda each: each.suspicion)
    return found


def _odd_pairs_of(part: SourceRows, rows: Sequence[Row], languages: Languages) -> Iterator[OddPair]:
    source_lengths, source_numbers, _ = features_of(row[1] for row in rows)
    target_lengths, target_numbers, _ = features_of(row[2] for row in rows)
    ratios = source_lengths - target_lengths
    middle = float(np.median(ratios))
    spread = max(0.1, 1.4826 * float(np.median(np.abs(ratios - middle))))
    for row, ratio, numbers_differ in zip(rows, ratios, source_numbers != target_numbers, strict=True):
        why: dict[str, float] = {}
        deviation = abs(float(ratio) - middle) / spread
        # Short sentences differ in length by chance.
        deviation *= min(1.0, min(len(row[1]), len(row[2])) / 20 + 0.4)
        if deviation > 3:
            why["lengths"] = deviation - 2
        if numbers_differ:
            why["digits"] = 1.5
        for side, text, language in (("source", row[1], languages[0]), ("target", row[2], languages[1])):
            words = words_of(text)
            own = COMMON_WORDS.get(primary(language))
            found = language_of(words)
            if own and found and found != primary(language) and not words & own:
                why[f"{side} looks like {found}"] = 2.0
            if _REPETITION.search(text):
                why[f"{side} repeats itself"] = 1.5
        if bool(_MARKUP.search(row[1])) != bool(_MARKUP.search(row[2])):
            why["markup on one side"] = 1.5
        if why:
            yield OddPair(part.name, *row, round(sum(why.values()) + abs(float(ratio) - middle) / 10, 2), tuple(why))
