"""Translations of many lines: in blocks, as text, and with notices on them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import decimal

from mt_cli.errors import MtError
from mt_cli.runtime.console import listed, say
from mt_cli.translation.drafts import MARKS_GUESSED, SPANS_REORDERED
from mt_cli.translation.quality import QualityModel, counts_of

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.translator import Translator

_FIRST_BLOCK, LARGEST_BLOCK, LARGEST_BLOCK_OF_A_GPU = 32, 2048, 16_384
_GROWTH = 4
"""Lines of a block by those of the block before it, up to the largest."""
_MOST_NAMED, _LONGEST_WORD = 5, 60
"""Maximum number of lines that a notice names, and maximum number of characters of an unknown word in a notice."""
_LONGEST_UNIT = 80
_LOOP = re.compile(rf"(.{{2,{_LONGEST_UNIT}}}?)\1{{3,}}", re.DOTALL)
"""The same characters, four times or more in a row."""
_FEWEST_CHARACTERS, _SHARE, _MOST_CHARACTERS = 24, 1 / 3, 20_000
_NUMBER = re.compile(r"\d(?:[.,]?\d)+")


def blocks(lines: Iterable[str], largest: int = LARGEST_BLOCK) -> Iterator[list[str]]:
    """Group lines into blocks that are translated together; the first blocks are small, so that results appear soon."""
    iterator, size = iter(lines), _FIRST_BLOCK
    while block := list(islice(iterator, size)):
        yield block
        size = min(_GROWTH * size, largest)


def format_json(item: Translation) -> str:
    """One line of JSON with a translation and its details."""
    assert item.details is not None
    row = {
        "source": item.source,
        "translation": item.text,
        **({"expected_chrf": item.estimate.shown} if item.estimate else {}),
        "score": round(item.score, 4),
        "hypotheses": [
            {"text": one.text, "score": round(one.score, 4)}
            | {"lost_spans": one.lost_spans, "reordered_spans": one.reordered_spans}
            for one in item.by_rank
        ],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": [round(score, 4) for score in item.details.token_scores],
        "alignment": item.details.alignment,
        "word_alignment": item.details.word_alignment,
        "lost_spans": item.lost_spans,
        "reordered_spans": item.reordered_spans,
        "terms": [use._asdict() for use in item.term_uses],
    }
    return json.dumps(row, ensure_ascii=False)


def format_texts(num_best: int, item: Translation) -> str:
    """One line per hypothesis; missing hypotheses are empty lines, so that output lines match input lines."""
    texts = [text for text, _ in item.hypotheses[:num_best]]
    return "\n".join(texts + [""] * (num_best - len(texts)))


def format_alignment(item: Translation) -> str:
    """Word alignment of a translation as one line, such as `0-0 1-2`."""
    assert item.details is not None
    return " ".join(f"{source}-{target}" for source, target in item.details.word_alignment)


_NOTICES = {
    "long": "more tokens than the longest training sentence",
    "empty": "the translation is empty: the model ends at once, as if there were nothing to say",
    "loop": "the translation repeats itself: the model has not learned such text; --set decoding.no_repeat_ngram=3 "
    "prevents loops, not wrong words",
    "number": "the translation lacks a number of the source",
    "lost": "the translation lacks a protected span of the source; --json names the spans",
    "guessed": MARKS_GUESSED,
    "reordered": SPANS_REORDERED,
    "term": "the translation lacks a term of the glossary",
}
_STRICT = ("lost", "reordered", "term")


def notices_on(line: Translation) -> Iterator[str]:
    """Notices on a translation that do not depend on its marks or the vocabulary, as text."""
    return map(_NOTICES.__getitem__, _problems_of_text(line))


class TranslatedLine(NamedTuple):
    """What a command writes about a line."""

    texts: Sequence[str]
    """The translation in each format, as one or several lines."""
    problems: Mapping[str, str]
    """For each problem, by the name of its notice, what follows the number of the line there."""
    unknown_words: Sequence[str]
    term_counts: Mapping[str, int] = {}
    """Number of terms of the glossary by status."""
    estimates: Mapping[str, float] = {}
    """Numbers of its estimate, or of those of several lines; see `counts_of`."""


def translated_lines(
    items: Iterable[Translation], formats: Sequence[Callable[[Translation], str]]
) -> list[TranslatedLine]:
    """Translations in some formats, with their problems."""
    return [
        TranslatedLine(
            [format_of(item) for format_of in formats],
            _problems_of(item),
            item.unknown_words,
            Counter(use.status for use in item.term_uses),
            counts_of(item.estimate) if item.estimate else {},
        )
        for item in items
    ]


@dataclass(frozen=True)
class TextWork:
    """Translates a block of lines into what is written about each."""

    translator: Translator
    search: dict[str, Any]
    formats: Sequence[Callable[[Translation], str]]

    def __call__(self, lines: Sequence[str]) -> list[TranslatedLine]:
        return translated_lines(self.translator.translate_fully(lines, **self.search), self.formats)


def _problems_of_text(line: Translation) -> dict[str, str]:
    problems = {}
    if line.is_too_long:
        num_segments = len(line.searched)
        problems["long"] = f" in {num_segments:,} segments" if num_segments > 1 else "" if num_segments else " copied"
    if repeats_itself(line.plain, line.text):
        problems["loop"] = ""
    if numbers := missing_numbers(line.plain, line.text):
        problems["number"] = f" (`{'`, `'.join(numbers)}`)"
    return problems


def _problems_of(line: Translation) -> Mapping[str, str]:
    ranked, problems = line.by_rank, _problems_of_text(line)
    if line.plain and not line.text:
        problems["empty"] = ""
    if any(one.lost_spans for one in ranked):
        problems["lost"] = ""
    if line.marked is not None and line.marked.is_guess:
        problems["guessed"] = ""
    if any(one.reordered_spans for one in ranked):
        problems["reordered"] = ""
    if missing := [use.source for use in line.term_uses if use.status == "missing"]:
        problems["term"] = f" (`{'`, `'.join(dict.fromkeys(missing))}`)"
    return problems


class LineNotices:
    """Context manager that collects notices about translated lines and prints them when it ends.

    Unknown words of the first few lines are printed at once. With `is_strict`, spans that are lost or in a
    wrong order, and missing terms, are an error. With `quality`, the expected chrF of all lines is printed; with
    `has_terms`, the number of terms.
    """

    def __init__(self, is_strict: bool = False, quality: QualityModel | None = None, has_terms: bool = False) -> None:
        self._is_strict, self._quality, self._has_terms = is_strict, quality, has_terms
        self._num_lines = self._num_with_unknown_words = 0
        self._lines: dict[str, list[str]] = {name: [] for name in _NOTICES}
        """The first lines with each problem, by number."""
        self._counts, self._term_counts, self._estimates = Counter[str](), Counter[str](), Counter[str]()

    def __enter__(self) -> LineNotices:
        return self

    def add(self, line: TranslatedLine) -> None:
        self._num_lines += 1
        for name, note in line.problems.items():
            self._counts[name] += 1
            if self._counts[name] <= _MOST_NAMED:
                self._lines[name].append(f"{self._num_lines:,}{note}")
        self._term_counts.update(line.term_counts)
        self._estimates.update(line.estimates)
        self._num_with_unknown_words += bool(line.unknown_words)
        if line.unknown_words and self._num_with_unknown_words <= _MOST_NAMED:
            words = ", ".join(f"{word:.{_LONGEST_WORD}}" for word in dict.fromkeys(line.unknown_words))
            say(f"note: line {self._num_lines:,}: not in the vocabulary: {words}")

    def __exit__(self, *error: object) -> None:
        if self._num_with_unknown_words > _MOST_NAMED:
            say(f"note: {self._num_with_unknown_words:,} lines had words that are not in the vocabulary")
        if self._quality is not None and self._estimates:
            say(self._quality.describe(self._estimates))
        if self._has_terms:
            say(f"terms of the glossary: {describe_terms(self._term_counts)}")
        lines = {name: listed_lines(lines, self._counts[name]) for name, lines in self._lines.items() if lines}
        messages = {name: f"{lines[name]}: {_NOTICES[name]}" for name in lines}
        errors = [messages[name] for name in _STRICT if name in messages]
        is_error = bool(errors) and self._is_strict and error == (None, None, None)
        for name, message in messages.items():
            if not (is_error and name in _STRICT):
                say(f"note: {message}")
        if is_error:
            raise MtError("; ".join(errors))


def describe_terms(counts: Mapping[str, int]) -> str:
    """Number of terms by what became of them."""
    if not counts:
        return "none found; the first note shows a source and its translation"
    used, inflected, missing = (counts.get(status, 0) for status in ("used", "inflected", "missing"))
    return f"{used + inflected + missing:,} found, {used:,} used, {inflected:,} in another form, {missing:,} missing"


def missing_numbers(source: str, translation: str) -> list[str]:
    """Numbers of two digits or more that a translation lacks, in the digits of any script.

    Zeros at the end of a long one may be words (`2 million`). Of 4,769 German references of sources with such numbers,
    6 % lack one.
    """
    numbers = {number: _digits_of(number) for number in _NUMBER.findall(source)}
    kept = _digits_of(translation) if numbers else ""
    return [
        number for number, digits in numbers.items() if (digits.rstrip("0") if len(digits) > 3 else digits) not in kept
    ]


def _digits_of(text: str) -> str:
    return "".join(str(decimal(character)) for character in text if character.isdecimal())


def repeats_itself(source: str, translation: str) -> bool:
    """True if a translation repeats the same words, as a decoder in a loop does, and the source does not."""
    if not _may_repeat(translation):
        return False
    longest = _longest_loop(translation)
    return longest >= max(_FEWEST_CHARACTERS, _SHARE * len(translation)) and longest > 2 * _longest_loop(source)


def _may_repeat(text: str) -> bool:
    """True if a loop may fill a third of a text; a quick test, because the search for loops is slow.

    Such a loop covers one of twelve offsets, and the characters there, half as many as the loop has, recur soon after.
    """
    shortest = int(max(_FEWEST_CHARACTERS, _SHARE * len(text)))
    half, end = shortest // 2, min(len(text), _MOST_CHARACTERS)
    return any(
        text.find(text[start : start + half], start + 2, start + _LONGEST_UNIT + half) >= 0
        for start in range(0, end - half, shortest // 4)
    )


def _longest_loop(text: str) -> int:
    """Length of the longest part of a text that repeats itself, in characters."""
    return max((len(match[0]) for match in _LOOP.finditer(text[:_MOST_CHARACTERS])), default=0)


def note_on_repetition(sources: Sequence[str], translations: Sequence[str]) -> str | None:
    """A note on the lines whose translations repeat themselves; None if there are none."""
    rows = enumerate(zip(sources, translations, strict=True), start=1)
    lines = [f"{number:,}" for number, (source, translation) in rows if repeats_itself(source, translation)]
    return f"{listed_lines(lines)}: {_NOTICES['loop']}" if lines else None


def listed_lines(lines: Sequence[str], count: int | None = None) -> str:
    """The first lines by number, and how many more there are; `count` is the number of all, if some are left out."""
    return f"line{'s' * (len(lines) > 1)} {listed(lines, _MOST_NAMED, count)}"
