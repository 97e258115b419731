"""Stretches of lines that are misaligned or in another language, found in windows of lines. Changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mt_cli.advice.findings import Finding, spread_blocks
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import STATUS_CODES, are_foreign, seem_swapped
from mt_cli.corpus.corpus import Corpus, SourceRows
from mt_cli.corpus.languages import COMMON_WORDS, language_of, primary, words_of
from mt_cli.corpus.misalignment import find_misaligned_stretches
from mt_cli.corpus.rows import Languages, Row, untagged
from mt_cli.corpus.sources import places_in
from mt_cli.data.encode import SIDES

_EXCLUDED = [STATUS_CODES[name] for name in ("blank_pair", "blank_source", "blank_target")]
"""Statuses that do not count: a stretch with only such rows is not a problem."""
_MAX_BLOCKS = 50
"""Maximum number of blocks of a part that are examined, evenly spread."""
_WINDOW = 500
_FOREIGN_SHARE = 0.25
_MIN_LINES = 10

_Stretch = tuple[int, int, str]
"""Numbers of the first and the last line, and a description for people."""


def find_stretches(name: str, corpus: Corpus, config: CorpusConfig) -> Iterator[Finding]:
    """Find stretches that are misaligned or in other languages, except stretches of rows that are left out."""
    findings = []
    for part, languages in zip(corpus.parts, config.languages_of(name), strict=True):
        for block, statuses in _blocks(corpus, part, config.tags):
            used = [row[0] for row, status in zip(block, statuses, strict=True) if status not in _EXCLUDED]
            for first, last, text in [*_misaligned_stretches(block), *_foreign_stretches(block, languages)]:
                if any(first <= number <= last for number in used):
                    findings.append(Finding(name, part.name, first, last, text))
    for finding in _joined(findings):
        ends = [(finding.part, number) for number in (finding.first, finding.last)]
        start, end = map(places_in(config, name, ends).__getitem__, ends)
        is_in_one_file = start == f"line {finding.first:,}"
        yield finding if is_in_one_file else replace(finding, text=f"{finding.text} (from {start} to {end})")


def _blocks(corpus: Corpus, part: SourceRows, tags: Sequence[str]) -> Iterator[tuple[list[Row], NDArray[np.uint8]]]:
    """Blocks of the rows of a part, without tags, with their statuses."""
    for rows in spread_blocks(part, _MAX_BLOCKS):
        mask = np.zeros(len(corpus.statuses), dtype=bool)
        mask[rows] = True
        block = [(number, untagged(source, tags), target) for number, source, target in corpus.rows(mask)]
        yield block, corpus.statuses[rows]


def _misaligned_stretches(block: Sequence[Row]) -> Iterator[_Stretch]:
    rows = [row for row in block if row[1] and row[2]]
    if not rows:
        return
    numbers, sources, targets = zip(*rows, strict=True)
    alignment = find_misaligned_stretches(sources, targets)
    for first, last, slip in alignment.stretches:
        text = "source and target do not seem to correspond here, nor a few lines up or down"
        if slip is not None:
            place = f"line N {'+' if slip > 0 else '-'} {abs(slip)} of the target"
            text = f"line N of the source seems to belong to {place}"
        yield numbers[first - 1], numbers[last - 1], text
    if alignment.is_unrelated:
        yield numbers[0], numbers[-1], "the two sides do not seem to translate each other"


def _foreign_stretches(block: Sequence[Row], languages: Languages) -> Iterator[_Stretch]:
    """Windows with many lines in another language or script."""
    expected = tuple(map(primary, languages))
    for start in range(0, len(block), _WINDOW):
        numbers, sources, targets = zip(*block[start : start + _WINDOW], strict=True)
        prevailing = _prevailing_language(sources, expected[0]), _prevailing_language(targets, expected[1])
        num_foreign = int(are_foreign(sources, targets, languages).sum())
        foreign = [
            f"the {side} looks like `{code}`, not `{language}`"
            for side, code, primary_code, language in zip(SIDES, prevailing, expected, languages, strict=True)
            if code and code != primary_code
        ]
        is_foreign = bool(foreign) or num_foreign > max(_FOREIGN_SHARE * len(numbers), _MIN_LINES)
        # A target in the source language is enough evidence, because the words of the target language may not be known.
        is_target_in_source_language = prevailing[1] == expected[0] != expected[1] and prevailing[0] != expected[0]
        if is_target_in_source_language or (is_foreign and seem_swapped(sources, targets, languages)):
            yield numbers[0], numbers[-1], "the two languages seem to be swapped"
        elif is_foreign:
            text = " and ".join(foreign) or "many lines are not in the language or script that they should be in"
            yield numbers[0], numbers[-1], text


def _prevailing_language(texts: Iterable[str], expected: str) -> str | None:
    """Language of most texts, judged by common words; None if unclear."""
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


def _joined(findings: Sequence[Finding]) -> list[Finding]:
    """Findings of one corpus, in the order of their lines; neighbouring stretches with the same text are joined."""
    joined: list[Finding] = []
    for finding in sorted(findings, key=lambda item: (item.part, item.text, item.first)):
        previous = joined[-1] if joined else None
        is_next = previous is not None and finding.first <= previous.last + _WINDOW + 1
        if previous and is_next and (previous.part, previous.text) == (finding.part, finding.text):
            joined[-1] = replace(previous, last=finding.last)
        else:
            joined.append(finding)
    return sorted(joined, key=lambda finding: (finding.part, finding.first))
