"""A line of text, split into segments that the model can read, with the translations of each segment.

Text that no model can translate is copied: lines without letters, such as numbers, and long strings without spaces,
such as addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from mt_cli.config.tags import Tagging
from mt_cli.corpus.augmented_text import is_in_capitals, lower, upper
from mt_cli.corpus.protected_text import NO_TEXT, UNPROTECTED, ProtectedText, Protection, Restored
from mt_cli.corpus.rows import tagged_text, untagged
from mt_cli.corpus.sentences import SentencesSeen, has_letters, has_words, sentences_of
from mt_cli.decoding.search import Hypothesis
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.translation.sentences import glue_of_translations, middle_of, split_point

_LINE_END = re.compile(r"(?:(?<!\s)[^\S\r\n]++)?+[\r\n]\s*")
_SHORT = 40
"""Number of tokens up to which a sentence is never split, also if the model was trained on shorter ones."""

Alignment = list[tuple[int, int]]
"""Pairs of a source index and a target index, counted from 0."""


@dataclass(frozen=True)
class Details:
    """Tokens of a line and of its best translation; the tokens of several segments follow each other."""

    source_tokens: list[str]
    tokens: list[str]
    """Includes [EOS] at the end of every segment."""
    token_scores: list[float]
    """Log-probability of each token, in nats, given the source and the tokens before it."""
    alignment: Alignment
    """The source token that each token attends to most."""
    word_alignment: Alignment
    """Aligned words of the line and of its translation, sorted (the Pharaoh format). Each character of a script without
    spaces counts as a word."""
    word_scores: list[float]
    """Lowest log-probability of the tokens of each word of the translation, in nats; 0 for words that are copied."""


class TextHypothesis(NamedTuple):
    """A hypothesis and its text."""

    text: str
    hypothesis: Hypothesis


@dataclass(frozen=True)
class Segment:
    """Part of a line that the model reads as one source."""

    text: str
    """Text for the model; begins with the tag, if there is one."""
    ids: list[int]
    unknown_words: tuple[str, ...]
    start: int
    """Index of `text` in the line; negative if a tag was added to the first segment."""
    glue: str
    """The text between the translations of this segment and the next."""
    hypotheses: Sequence[TextHypothesis] = (TextHypothesis("", Hypothesis([], 0.0)),)
    """Translations, best first; an empty segment is not searched but may have copied text."""
    protected: ProtectedText = NO_TEXT
    """`text`, or the copied text, with its protected spans."""

    @classmethod
    def copied(cls, text: str, start: int, glue: str = "") -> Segment:
        """A segment that the model does not read: its text is its translation."""
        return cls("", [], (), start, glue, (TextHypothesis(text, Hypothesis([], 0.0)),), ProtectedText(text))

    @property
    def copy(self) -> str:
        """Text of a segment that is copied."""
        return self.hypotheses[0].text

    def restored(self, rank: int = 0) -> Restored:
        """Text of a translation with the protected spans of the segment."""
        return self.protected.restore(self.hypotheses[rank].text) if self.text else Restored(self.protected.original)


class MarkedTexts(NamedTuple):
    """Translations with the marks of a line that the model does not protect."""

    texts: Sequence[str]
    """Text of each hypothesis."""
    lost: Sequence[tuple[str, ...]]
    """Marks that each text lacks."""
    is_guess: bool
    """True if no word tells where a mark of the best translation belongs."""


@dataclass(frozen=True)
class Translation:
    """A line and its translation, segment by segment."""

    source: str
    """The line before any change."""
    normalised: str
    """The line with one space between words and none at the ends."""
    segments: Sequence[Segment]
    is_too_long: bool
    """True if the line, or one of its sentences, is longer than the model was trained for."""
    plain: str
    """The line without its tag."""
    protected: ProtectedText = NO_TEXT
    """`normalised` with its protected spans; segments are parts of it."""
    details: Details | None = None
    capitals_of: str | None = None
    """Language in whose capitals the translation is written; None if it stays as the model wrote it."""
    marked: MarkedTexts | None = None
    """Texts with marks such as `%s`, which the other fields may lack; None for a line without."""

    @cached_property
    def hypotheses(self) -> list[tuple[str, float]]:
        """Texts and scores, best first.

        A score is a log-probability (nats) divided by the length penalty; several segments have the mean of their
        scores. A line that is copied has one hypothesis, with the score 0.
        """
        hypotheses = []
        for rank in range(min((len(segment.hypotheses) for segment in self.searched), default=1)):
            texts = [segment.restored(rank).text + segment.glue for segment in self.segments]
            if self.marked is not None:
                texts = [self.marked.texts[rank]]
            scores = [segment.hypotheses[rank].hypothesis.score for segment in self.searched]
            hypotheses.append(("".join(texts), sum(scores) / len(scores) if scores else 0.0))
        return hypotheses

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0][0]

    @property
    def score(self) -> float:
        """Score of the best translation."""
        return self.hypotheses[0][1]

    @property
    def lost_spans(self) -> tuple[str, ...]:
        """Protected spans of the line that the best translation lacks."""
        return self.lost_in(0)

    @property
    def reordered_spans(self) -> tuple[str, ...]:
        """Placeholders without numbers, such as `%s`, if the best translation has them in another order."""
        return self.reordered_in(0)

    def lost_in(self, rank: int) -> tuple[str, ...]:
        """Protected spans of the line that a hypothesis lacks, by its rank from 0."""
        lost = (span for segment in self.segments for span in segment.restored(rank).lost)
        return (*lost, *(self.marked.lost[rank] if self.marked is not None else ()))

    def reordered_in(self, rank: int) -> tuple[str, ...]:
        """Placeholders without numbers, if a hypothesis has them in another order."""
        return tuple(span for segment in self.segments for span in segment.restored(rank).reordered)

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words of the line that are not in the vocabulary of the source."""
        return tuple(word for segment in self.segments for word in segment.unknown_words)

    @property
    def searched(self) -> list[Segment]:
        """The segments that are not empty."""
        return [segment for segment in self.segments if segment.text]

    def at_rank(self, rank: int) -> Translation:
        """Copy without details that has only the hypothesis of a rank."""
        segments = [
            replace(part, hypotheses=part.hypotheses[rank:][:1]) if part.text else part for part in self.segments
        ]
        marked = self.marked and MarkedTexts(self.marked.texts[rank:][:1], self.marked.lost[rank:][:1], False)
        return replace(self, segments=segments, details=None, marked=marked)

    def with_hypotheses(self, hypotheses: Iterator[Sequence[TextHypothesis]]) -> Translation:
        """Copy with the next item of `hypotheses` in each segment that is not empty."""
        segments = (replace(part, hypotheses=next(hypotheses)) if part.text else part for part in self.segments)
        return replace(self, segments=[self._in_capitals(part) for part in segments])

    def _in_capitals(self, segment: Segment) -> Segment:
        language = self.capitals_of
        if language is None:
            return segment
        texts = [TextHypothesis(upper(text, language), hypothesis) for text, hypothesis in segment.hypotheses]
        protected = segment.protected if segment.text else replace(segment.protected, text=texts[0].text)
        return replace(segment, hypotheses=texts, protected=protected)

    def copied(self) -> Translation:
        """A copy whose translation is the line itself."""
        return replace(self, segments=[Segment.copied(self.plain, 0)], is_too_long=False)


class LineSplitter(NamedTuple):
    """Splits lines into segments that the model can read.

    A line of more than `max_tokens` tokens, without its tag, is split at the ends of sentences. A sentence is split, at
    a comma or between words, if it also has more than 40 tokens.
    """

    tokenizer: Tokenizer
    max_tokens: int
    """Tokens of the longest source that the model was trained on."""
    tagging: Tagging
    languages: tuple[str, str]
    """Source and target."""
    most_tokens: int = 0
    """`corpus.max_tokens`: no segment has more tokens, unless `max_tokens` is larger."""
    protection: Protection = UNPROTECTED
    lowers_capitals: bool = False
    """True if lines in capitals are given to the model in small letters."""
    sentences_seen: SentencesSeen | None = None
    """Fractions of training sources with several sentences; None if unknown."""

    def split(self, source: str, tag: str | None, split_sentences: bool | None) -> Translation:
        """Split a line into segments; each begins with the tag of the line, or with the tag that `Tagging` chooses."""
        text = " ".join(source.split())
        plain = untagged(text, self.tagging.tags)
        if not has_letters(plain):
            is_whole = plain and plain == text and not {"\r", "\n"} & set(source)
            return Translation(source, text, [], False, source if is_whole else plain).copied()
        protected = self._protected(source)
        if not has_letters(protected.text):
            return Translation(source, text, [], False, protected.original).copied()
        is_lowered = self.lowers_capitals and is_in_capitals(protected.text)
        if is_lowered:
            protected = replace(protected, text=lower(protected.text, self.languages[0]))
        line = ProtectedText(text.removesuffix(plain) + protected.text, protected.contents)
        before = tagged_text(line.text, self.tagging, tag).removesuffix(protected.text)
        segments, is_too_long = self._split(before, line.text, protected.text, split_sentences)
        segments = [
            replace(part, protected=line.part(part.start + len(before) * bool(part.text), part.text or part.copy))
            for part in segments
        ]
        capitals_of = self.languages[1] if is_lowered else None
        return Translation(source, text, segments, is_too_long, plain, line, capitals_of=capitals_of)

    def _protected(self, source: str) -> ProtectedText:
        """The line without its tag, with one space between words, but for those in protected spans."""
        first, *rest = source.split(maxsplit=1)
        body = self.protection.protect((rest[0] if rest else "") if first in self.tagging.tags else source)
        contents = tuple(_LINE_END.sub(" ", content) for content in body.contents)
        return ProtectedText(" ".join(body.text.split()), contents)

    def _split(self, before: str, text: str, plain: str, split_sentences: bool | None) -> tuple[list[Segment], bool]:
        """Segments of a line, given with its tag and without; also whether the line or a sentence of it is too long.

        `before` is the tag before each segment, and a space.
        """
        start = len(text) - len(plain)
        segments: list[Segment] = []
        sentences = [(plain, "")]
        if split_sentences:
            sentences = sentences_of(plain, self.languages[0])
        elif split_sentences is None and self.sentences_seen is not None:
            sentences = self.sentences_seen.parts_of(plain, self.languages[0])
        is_too_long = False
        for number, (sentence, glue) in enumerate(sentences, start=1):
            after = glue_of_translations(glue, *self.languages) if number < len(sentences) else ""
            parts = list(self._segments(before, sentence, start, after))
            is_too_long |= len(parts) > 1 or len(parts[0].ids) - bool(before) > self.max_tokens or not parts[0].text
            segments += parts
            start += len(sentence) + len(glue)
        return segments, is_too_long

    def _segments(
        self, before: str, body: str, start: int, glue: str, sentences: Sequence[tuple[str, str]] = ()
    ) -> Iterator[Segment]:
        """Split a text, at the ends of `sentences` if they are given."""
        if not has_words(body):
            yield Segment.copied(body, start, glue)
            return
        text = before + body
        (ids,) = self.tokenizer.encode([text])
        ids = ids if len(ids) > bool(before) else []  # `tokenizer.letters` may delete the whole line.
        length = len(ids) - bool(before)
        sentences = sentences or (sentences_of(body, self.languages[0]) if length > self.max_tokens else ())
        number = middle_of(sentences) if length > self.max_tokens else 0
        if number:
            between = sentences[number - 1][1]
            end = sum(map(len, chain(*sentences[:number]))) - len(between)
        elif len(body) > 1 and length > max(self.max_tokens, min(_SHORT, self.most_tokens)):
            end, between = split_point(body)
            if not between and body.isascii() and len(body) > _SHORT:  # An address or encoded data, not words.
                yield Segment.copied(body, start, glue)
                return
        else:
            yield Segment(text, ids, unknown_words(self.tokenizer, text, ids), start - len(before), glue)
            return
        next_start = end + len(between)
        halves = (sentences[:number], sentences[number:]) if number else ([(body[:end], "")], [(body[next_start:], "")])
        glue_between = glue_of_translations(between, *self.languages)
        yield from self._segments(before, body[:end], start, glue_between, halves[0])
        yield from self._segments(before, body[next_start:], start + next_start, glue, halves[1])


def unknown_words(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[str, ...]:
    """Words of a text that are not in the vocabulary, from its ids; signs such as `%` are no words."""
    if UNK_ID not in ids:
        return ()
    unknown = (span for index, span in zip(ids, tokenizer.spans(text), strict=True) if index == UNK_ID)
    return tuple(text[start:end].strip() for start, end in unknown if has_words(text[start:end]))
