"""Problems of the text of a run's corpora, from the cache if it was examined before. Changes nothing.

These are spans of lines that have slipped or are in another language, which are found in windows of lines, and text
that other programs have processed or that is damaged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.advice.marks import DAMAGED, PROCESSED, Detector
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_CODES, are_foreign
from mt_cli.corpus.corpus import ROWS_PER_BLOCK, Corpus, SourceRows
from mt_cli.corpus.languages import COMMON_WORDS, language_of, primary, words_of
from mt_cli.corpus.misalignment import find_misaligned_stretches
from mt_cli.corpus.rows import Languages, Row, untagged
from mt_cli.corpus.source_rows import places_in
from mt_cli.data.encode import SIDES
from mt_cli.errors import CorpusError
from mt_cli.runtime.console import truncate

_EXCLUDED = [STATUS_CODES[name] for name in ("blank_pair", "blank_source", "blank_target", "markers")]
"""Statuses that do not count: a span with only such rows is not a problem."""
_BLOCKS_OF_SPANS, _BLOCKS_OF_MARKS = 50, 20
"""Maximum numbers of blocks of a source that are examined, evenly spread."""
_WINDOW, _FOREIGN_SHARE, _MIN_LINES = 500, 0.25, 10
_NUM_PLACES = 3
_SWAPPED = "the two languages seem to be swapped"
_ALL_SWAPPED = f"{_SWAPPED} in nearly all lines; exchange the two files or columns"
_NEARLY_ALL = 0.9
Kind = Literal["stretch", "processed", "segmented", "text"]
_Texts = Sequence[str]
_Guesses = Sequence[Sequence[str | None]]
"""Language of each text of both sides by its common words."""
_Sentences = tuple[pa.Int64Array, pa.StringArray]
"""Line numbers and sentences."""


@dataclass(frozen=True)
class Finding:
    """Lines of a corpus that the user should check: a problem, or only a note."""

    corpus: str
    part: str
    """Name of the source."""
    first: int
    last: int
    """Numbers of the first and the last line."""
    text: str
    kind: Kind = "stretch"
    """`stretch`: neighbouring lines. Other kinds: sentences anywhere, whose places are in `text`."""
    is_note: bool = False

    @property
    def is_refused(self) -> bool:
        """True if another program has processed the text, so that a new run refuses it."""
        return self.kind in ("processed", "segmented") and not self.is_note

    @property
    def message(self) -> str:
        lines = f", lines {self.first:,} to {self.last:,}" if self.kind == "stretch" else ""
        return f"{self.corpus}: {self.part}{lines}: {self.text}"

    @property
    def with_repair(self) -> str:
        """The finding as text; for a problem, with the command that repairs it."""
        return str(self) if self.is_note else f"{self}; mt data check --write-clean repairs the text"

    def __str__(self) -> str:
        return f"{'note: ' if self.is_note else 'PROBLEM in '}{self.message}"


class Span(NamedTuple):
    """Neighbouring lines of a block with one problem."""

    first: int
    last: int
    """Numbers of the first and the last line."""
    text: str
    slip: int | None = None
    """Line N of the source belongs to line N + `slip` of the target; None if no slip fits."""
    is_swapped: bool = False
    """True if the sides are in each other's language."""
    lines_alone: frozenset[int] = frozenset()
    """Numbers of lines of the block, in the span or beside it, that have no partner, or may have none."""


def find_problems(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> list[Finding]:
    """Problems and notes on the text of corpora; a held-out share is in the text of `train`.

    Text that another program has processed is a problem only in `train`, and only if the config does not accept it.
    Segmented text is not a problem for a word-level tokenizer.
    """

    def examine(folder: Path) -> None:
        stored = {name: corpus for name, corpus in corpora.items() if corpus.code == KEPT}
        findings = [finding for name in stored for finding in find_spans(name, stored[name], config.corpus)]
        findings += find_damage(stored, config.corpus)
        (folder / "problems.json").write_text(json.dumps([asdict(finding) for finding in findings]), encoding="utf-8")

    def load(folder: Path) -> list[Finding]:
        return [Finding(**tree) for tree in json.loads((folder / "problems.json").read_text(encoding="utf-8"))]

    def is_accepted(finding: Finding) -> bool:
        is_needed = finding.kind == "segmented" and config.tokenizer.algorithm == "word_level"
        return finding.kind != "stretch" and (config.corpus.accept_processed or finding.corpus != "train" or is_needed)

    findings = cache.entry(f"problems-{next(iter(corpora.values())).fingerprint}", examine, load)
    return [replace(finding, is_note=finding.is_note or is_accepted(finding)) for finding in findings]


def refuse_processed(problems: Sequence[Finding], way_out: str = "set corpus.accept_processed to true") -> None:
    """Raise CorpusError if another program has processed the text, with counts, places, and advice."""
    if lines := [problem.message for problem in problems if problem.is_refused]:
        raise CorpusError(
            "\n  ".join(["corpus.train: the text is processed already:", *lines])
            + "\nPlease give the raw text (join subwords, detokenise, and remove tags, which the option `tag` of a "
            f"corpus adds), or {way_out}: the model then reads and writes text in this form."
        )


def _spread_blocks(part: SourceRows, most: int) -> Iterator[slice]:
    """Rows of at most `most` blocks of a source, evenly spread over it."""
    num_blocks = -(-part.num_rows // ROWS_PER_BLOCK)
    for index in np.unique(np.linspace(0, num_blocks - 1, min(num_blocks, most)).astype(int)).tolist():
        first = part.first_row + index * ROWS_PER_BLOCK
        yield slice(first, min(first + ROWS_PER_BLOCK, part.first_row + part.num_rows))


def _masked(corpus: Corpus, spans: Iterable[slice]) -> NDArray[np.bool_]:
    mask = np.zeros(len(corpus.statuses), dtype=bool)
    for rows in spans:
        mask[rows] = True
    return mask


def find_damage(corpora: Mapping[str, Corpus], config: CorpusConfig) -> Iterator[Finding]:
    """Find processed and damaged text in the kept sentences of corpora."""
    for name, corpus in corpora.items():
        for number in config.once(name):
            part, pair = corpus.parts[number], config.languages_of(name)[number]
            mask = _masked(corpus, _spread_blocks(part, _BLOCKS_OF_MARKS)) & np.isin(corpus.statuses, (KEPT, HELD_OUT))
            if not mask.any():
                continue
            columns = pa.Table.from_batches(corpus.blocks(mask)).columns
            numbers, source, target = (column.combine_chunks() for column in columns)
            if config.tags:
                tags = "|".join(map(re.escape, config.tags))
                source = pc.replace_substring_regex(source, rf"^(?:(?:{tags}) )+", "")
            for side, language, texts in zip(SIDES, pair, (source, target), strict=True):
                for detector in (*PROCESSED, *DAMAGED):
                    if finding := _find_marks(detector, (name, part.name, side), language, (numbers, texts), config):
                        yield finding


def _find_marks(
    detector: Detector, place: tuple[str, str, str], language: str, sentences: _Sentences, config: CorpusConfig
) -> Finding | None:
    """Finding with counts, an example and the first places of a kind of mark; None if it is too rare.

    `place` is a corpus, a source and a side of it.
    """
    (corpus, part, side), (numbers, texts) = place, sentences
    mask = detector.mark(texts, language)
    marked = numbers.filter(pa.array(mask)).to_pylist()
    num_relevant = int(detector.is_relevant(texts, language).sum()) if detector.is_relevant else len(texts)
    level = detector.level(len(marked), num_relevant, len(texts))
    if level is None:
        return None
    example = truncate(texts[int(mask.argmax())].as_py(), 80)
    rows = [(part, number) for number in marked[:_NUM_PLACES]]
    places = places_in(config, corpus, rows)
    text = (
        f"{len(marked):,} of {num_relevant:,} {side} sentences ({len(marked) / num_relevant:.1%}) have "
        f"{detector.name}, as in `{example}` ({', '.join(places[row] for row in rows)})"
    )
    kind: Kind = "segmented" if detector.is_segmentation else "processed" if detector in PROCESSED else "text"
    return Finding(corpus, part, marked[0], marked[-1], text, kind, is_note=level == "note")


def find_spans(name: str, corpus: Corpus, config: CorpusConfig) -> Iterator[Finding]:
    """Find spans of lines that are misaligned or in other languages, except spans of rows that are left out."""
    findings, tags = list[Finding](), config.tags
    for part, pair in zip(corpus.parts, config.languages_of(name), strict=True):
        of_part, num_rows, num_swapped = list[Finding](), 0, 0
        for rows in _spread_blocks(part, _BLOCKS_OF_SPANS):
            block = [
                (number, untagged(source, tags), target)
                for number, source, target in corpus.rows(_masked(corpus, [rows]))
            ]
            statuses = corpus.statuses[rows]
            used = [row[0] for row, status in zip(block, statuses, strict=True) if status not in _EXCLUDED]
            num_rows += len(block)
            for span in spans_in(block, pair):
                num_swapped += span.is_swapped * (span.last - span.first + 1)
                if any(span.first <= number <= span.last for number in used):
                    of_part.append(Finding(name, part.name, span.first, span.last, span.text))
        if num_swapped > _NEARLY_ALL * num_rows and any(finding.text == _SWAPPED for finding in of_part):
            swapped = [finding for finding in of_part if finding.text == _SWAPPED]
            of_part = [finding for finding in of_part if finding.text != _SWAPPED]
            of_part.append(replace(swapped[0], last=swapped[-1].last, text=_ALL_SWAPPED))
        findings += of_part
    for finding in _joined(findings):
        ends = [(finding.part, number) for number in (finding.first, finding.last)]
        start, end = map(places_in(config, name, ends).__getitem__, ends)
        is_in_one_file = start.partition(" ")[2] == f"{finding.first:,}"  # Of a folder, the file is named.
        yield finding if is_in_one_file else replace(finding, text=f"{finding.text} (from {start} to {end})")


def spans_in(block: Sequence[Row], languages: Languages) -> list[Span]:
    """Spans of lines with swapped sides; then, with these exchanged, misaligned lines and lines in other languages."""
    numbers, *sides = zip(*block, strict=True)
    guesses = [[language_of(words_of(text)) for text in side] for side in sides]
    swapped, rows = _swapped_spans(numbers, sides, guesses, languages), list(block)
    for span in swapped:
        for index in range(span.first - numbers[0], span.last - numbers[0] + 1):
            number, source, target = rows[index]
            rows[index] = number, target, source
            guesses[0][index], guesses[1][index] = guesses[1][index], guesses[0][index]
    return [*swapped, *_misaligned_spans(rows), *_foreign_spans(rows, guesses, languages)]


def _swapped_spans(numbers: Sequence[int], sides: Sequence[_Texts], guesses: _Guesses, pair: Languages) -> list[Span]:
    """Spans with clearly more lines that are only right with exchanged sides than lines that are right as they are.

    Lines beside them that say nothing, because they may be swapped or not, are without a partner. If spans have nearly
    all lines, and the others are not clearly right, the whole block is one span.
    """
    if primary(pair[0]) == primary(pair[1]):
        return []
    votes = _votes(sides, guesses, pair)
    spans, is_outside = list[Span](), np.ones(len(votes), bool)
    score, first, best, last = 0, 0, 0, 0
    for index, vote in enumerate([*votes.tolist(), -len(votes)]):
        if score == 0:
            first = index
        score = max(0, score + vote)
        if score > best:
            best, last = score, index
        elif score <= best - _MIN_LINES or score == 0:
            if best >= _MIN_LINES:
                unclear = [*takewhile(lambda line: not votes[line], range(first - 1, -1, -1))][:_MIN_LINES]
                unclear += [*takewhile(lambda line: not votes[line], range(last + 1, len(votes)))][:_MIN_LINES]
                lines_alone = frozenset(numbers[line] for line in unclear)
                spans.append(Span(numbers[first], numbers[last], _SWAPPED, None, True, lines_alone))
                is_outside[first : last + 1] = False
            score = best = 0
    if is_outside.mean() <= 1 - _NEARLY_ALL and votes[is_outside].sum() > -_MIN_LINES:
        return [Span(numbers[0], numbers[-1], _SWAPPED, None, True)]
    return spans


def _votes(sides: Sequence[_Texts], guesses: _Guesses, pair: Languages) -> NDArray[np.int64]:
    """1 for each line that is right with exchanged sides alone, -1 for lines that are right as they are, and 0.

    Sides that look like one language are a vote for the sides as they are, because the two languages may be related.
    """

    def suits(sides: Sequence[_Texts], guesses: _Guesses) -> NDArray[np.int64]:
        codes, (sources, targets) = map(primary, pair), sides
        first, second = (np.array(side) == code for side, code in zip(guesses, codes, strict=True))
        return np.asarray(first.astype(int) + second - are_foreign(sources, targets, pair))

    votes = np.sign(suits(sides[::-1], guesses[::-1]) - suits(sides, guesses))
    is_alike = [first is not None and first == second for first, second in zip(*guesses, strict=True)]
    return np.where(np.array(is_alike), -1, votes)


def _misaligned_spans(block: Sequence[Row]) -> Iterator[Span]:
    numbers, sources, targets = zip(*block, strict=True)
    alignment = find_misaligned_stretches(sources, targets)
    lines_alone = frozenset(numbers[line - 1] for line in alignment.lines_alone if line <= len(numbers))
    for first, last, slip in alignment.stretches:
        text = "source and target do not seem to correspond here, nor a few lines up or down"
        if slip is not None:
            place = f"line N {'+' if slip > 0 else '-'} {abs(slip)} of the target"
            text = f"line N of the source seems to belong to {place}"
        yield Span(numbers[first - 1], numbers[last - 1], text, slip, lines_alone=lines_alone)
    if alignment.is_unrelated:
        yield Span(numbers[0], numbers[-1], "the two sides do not seem to translate each other")


def _foreign_spans(block: Sequence[Row], guesses: _Guesses, pair: Languages) -> Iterator[Span]:
    expected = tuple(map(primary, pair))
    for start in range(0, len(block), _WINDOW):
        window = slice(start, start + _WINDOW)
        numbers, sources, targets = zip(*block[window], strict=True)
        prevailing = [_prevailing_language(side[window], code) for side, code in zip(guesses, expected, strict=True)]
        num_foreign = int(are_foreign(sources, targets, pair).sum())
        foreign = [
            f"the {side} looks like `{code}`, not `{language}`"
            for side, code, primary_code, language in zip(SIDES, prevailing, expected, pair, strict=True)
            if code and code != primary_code
        ]
        if foreign or num_foreign > max(_FOREIGN_SHARE * len(numbers), _MIN_LINES):
            text = " and ".join(foreign) or "many lines are not in the language or script that they should be in"
            yield Span(numbers[0], numbers[-1], text)


def _prevailing_language(guesses: Sequence[str | None], expected: str) -> str | None:
    """Language of most texts by the languages of their common words; None if unclear."""
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
    """Findings in the order of their lines; neighbouring spans with the same text are joined."""
    joined: list[Finding] = []
    for finding in sorted(findings, key=lambda item: (item.part, item.text, item.first)):
        previous = joined[-1] if joined else None
        is_next = previous is not None and finding.first <= previous.last + _WINDOW + 1
        if previous and is_next and (previous.part, previous.text) == (finding.part, finding.text):
            joined[-1] = replace(previous, last=finding.last)
        else:
            joined.append(finding)
    return sorted(joined, key=lambda finding: (finding.part, finding.first))
