"""A line of text, split into segments that the model can read, with the translations of each segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from mt_cli.config.directions import Tagging
from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.rows import untagged
from mt_cli.decoding.search import Hypothesis
from mt_cli.tokenizer.special import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.translation.sentences import sentences_of, split_point

Alignment = list[tuple[int, int]]
"""Pairs of a source index and a target index, counted from 0."""


@dataclass(frozen=True)
class Details:
    """The tokens of a line and of its best translation; a line in segments has those of all segments, in order."""

    source_tokens: list[str]
    tokens: list[str]
    """Includes [EOS] at the end of every segment."""
    token_scores: list[float]
    """Log-probability of each token, in nats, given the source and the tokens before it."""
    alignment: Alignment
    """The source token that each token attends to most."""
    word_alignment: Alignment
    """The same between words of the line and of its translation, sorted (the Pharaoh format). Each character of a
    script without spaces counts as a word."""


class TextHypothesis(NamedTuple):
    """A hypothesis and its text."""

    text: str
    hypothesis: Hypothesis


@dataclass(frozen=True)
class Segment:
    """A part of a line that the model reads at once."""

    text: str
    """With a tag, if there is one."""
    ids: list[int]
    unknown_words: tuple[str, ...]
    start: int
    """Index of `text` in the line; negative if a tag was added to the first segment."""
    glue: str
    """The text between the translations of this segment and the next."""
    hypotheses: Sequence[TextHypothesis] = (TextHypothesis("", Hypothesis([], 0.0)),)
    """Translations, best first; an empty segment is not searched."""


@dataclass(frozen=True)
class Translation:
    """A line and its translation, segment by segment."""

    source: str
    """The line as it was given."""
    normalised: str
    """The line with one space between words and none at the ends."""
    segments: Sequence[Segment]
    is_too_long: bool
    """Whether the line, or one of its sentences, was split because it is longer than the model was trained for."""
    details: Details | None = None

    @cached_property
    def hypotheses(self) -> list[tuple[str, float]]:
        """Texts and scores, best first.

        A score is a log-probability (nats) divided by the length penalty, or the mean of those of several segments.
        """
        rows = zip(*(segment.hypotheses for segment in self.segments), strict=False)
        return [
            (
                "".join(each.text + segment.glue for each, segment in zip(row, self.segments, strict=True)),
                sum(each.hypothesis.score for each in row) / len(row),
            )
            for row in rows
        ]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0][0]

    @property
    def score(self) -> float:
        """Score of the best translation."""
        return self.hypotheses[0][1]

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words of the line that are not in the vocabulary of the source."""
        return tuple(word for segment in self.segments for word in segment.unknown_words)

    @property
    def searched(self) -> list[Segment]:
        """The segments that are not empty."""
        return [segment for segment in self.segments if segment.text]

    def with_hypotheses(self, found: Iterator[Sequence[TextHypothesis]]) -> Translation:
        """The line with the next hypotheses from `found` for each segment that is not empty."""
        segments = [replace(each, hypotheses=next(found)) if each.text else each for each in self.segments]
        return replace(self, segments=segments)


class LineSplitter(NamedTuple):
    """Splits lines into segments of at most `max_tokens` tokens, a tag not counted."""

    tokenizer: Tokenizer
    max_tokens: int
    tagging: Tagging
    languages: tuple[str, str]
    """Source and target."""

    def split(self, source: str, tag: str | None, split_sentences: bool) -> Translation:
        """The line in segments, not yet translated; each begins with the tag of the line, or what `Tagging` decides."""
        text = " ".join(source.split())
        rest, tagged = untagged(text, self.tagging.tags), self.tagging.tagged(text, tag)
        before, start = tagged.removesuffix(rest), len(text) - len(rest)
        sentences = sentences_of(rest) if split_sentences else [(rest, "")]
        segments: list[Segment] = []
        for number, (sentence, glue) in enumerate(sentences, start=1):
            segments += self._segments(before, sentence, start, self._glue(glue) if number < len(sentences) else "")
            start += len(sentence) + len(glue)
        return Translation(source, text, segments, len(segments) > len(sentences))

    def _segments(self, before: str, body: str, start: int, glue: str) -> Iterator[Segment]:
        text = before + body if body else ""
        (ids,) = self.tokenizer.encode([text])
        ids = ids if len(ids) > bool(before) else []  # `tokenizer.letters` may leave nothing of a line.
        if len(ids) - bool(before) <= self.max_tokens or len(body) < 2:
            yield Segment(text, ids, self._unknown_words(text, ids), start - len(before), glue)
            return
        end, between = split_point(body)
        next_start = end + len(between)
        yield from self._segments(before, body[:end], start, self._glue(between))
        yield from self._segments(before, body[next_start:], start + next_start, glue)

    def _glue(self, glue: str) -> str:
        """The text between two segments of a translation, for that between the segments of the source."""
        source, target = self.languages
        if not writes_spaces(target):
            return ""
        return glue if writes_spaces(source) else " "

    def _unknown_words(self, text: str, ids: Sequence[int]) -> tuple[str, ...]:
        if UNK_ID not in ids:
            return ()
        spans = zip(ids, self.tokenizer.spans(text), strict=True)
        return tuple(text[start:end].strip() for index, (start, end) in spans if index == UNK_ID)
