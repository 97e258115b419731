"""A line of text, split into segments that the model can read, with the translations of each segment.

Text that no model can translate is copied: lines without letters, such as numbers, and long strings without spaces,
such as addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING, NamedTuple

from mt_cli.corpus.augmented_text import is_in_capitals, lower, upper
from mt_cli.corpus.glossary import FoundTerm, TermUse, term_uses
from mt_cli.corpus.protected_text import NO_TEXT, ProtectedText, Restored
from mt_cli.corpus.rows import Languages, tagged_text, untagged
from mt_cli.corpus.sentences import has_letters, has_words, sentences_of
from mt_cli.decoding.engine import Hypothesis
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.translation.sentences import glue_of_translations, middle_of, split_point

if TYPE_CHECKING:
    from mt_cli.translation.quality import Estimate
    from mt_cli.translation.token_details import Details
    from mt_cli.translation.translator import Translator

_LINE_END = re.compile(r"(?:(?<!\s)[^\S\r\n]++)?+[\r\n]\s*")
_SHORT = 40
"""Number of tokens up to which a sentence is never split, also if the model was trained on shorter ones."""

Alignment = list[tuple[int, int]]
"""Pairs of a source index and a target index, counted from 0."""


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
    tokenizer: Tokenizer | None = field(repr=False, compare=False)
    """Tokenizer of `ids`; None for an empty segment."""
    start: int
    """Index of `text` in the line; negative if a tag was added to the first segment."""
    glue: str
    """The text between the translations of this segment and the next."""
    hypotheses: Sequence[TextHypothesis] = (TextHypothesis("", Hypothesis([], 0.0)),)
    """Translations, best first; an empty segment is not searched but may have copied text."""
    protected: ProtectedText = NO_TEXT
    """`text`, or the copied text, with its protected spans."""
    terms: Sequence[FoundTerm] = ()
    """Terms of a glossary in `text`, without its tag."""
    input: str = ""
    """Text with terms that the model reads in place of `text`; empty without terms."""
    input_ids: Sequence[int] = ()
    places: Sequence[int] = ()
    """For each place of `input`, the place in `text`."""

    @classmethod
    def copied(cls, text: str, start: int, glue: str = "") -> Segment:
        """A segment that the model does not read: its text is its translation."""
        return cls("", [], None, start, glue, (TextHypothesis(text, Hypothesis([], 0.0)),), ProtectedText(text))

    def restored(self, rank: int = 0) -> Restored:
        """Text of a translation with the protected spans of the segment."""
        return self.protected.restore(self.hypotheses[rank].text) if self.text else Restored(self.protected.original)


class MarkedTexts(NamedTuple):
    """Translations with the marks of a line that the model does not protect."""

    texts: Sequence[str]
    lost: Sequence[tuple[str, ...]]
    is_guess: bool
    """True if no word tells where a mark of the best translation belongs."""


@dataclass(frozen=True)
class Translation:
    """A line and its translation, segment by segment."""

    source: str
    """The line before any change."""
    normalised: str
    """The line, cleaned by the tokenizer, with one space between words and none at the ends."""
    segments: Sequence[Segment]
    is_too_long: bool
    """True if the line, or one of its sentences, is longer than the model was trained for."""
    plain: str
    """The line without its tag."""
    protected: ProtectedText = NO_TEXT
    """`normalised` with its protected spans; segments are parts of it."""
    details: Details | None = None
    estimate: Estimate | None = None
    """Expected quality; None for an empty line, or if the translator has no estimate."""
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
        hypotheses, searched = [], self.searched
        for rank in range(min((len(segment.hypotheses) for segment in searched), default=1)):
            if self.marked is not None:
                texts = [self.marked.texts[rank]]
            else:
                texts = [segment.restored(rank).text + segment.glue for segment in self.segments]
            scores = [segment.hypotheses[rank].hypothesis.score for segment in searched]
            hypotheses.append(("".join(texts), sum(scores) / len(scores) if scores else 0.0))
        return hypotheses

    @property
    def text(self) -> str:
        return self.hypotheses[0][0]

    @property
    def score(self) -> float:
        return self.hypotheses[0][1]

    @property
    def lost_spans(self) -> tuple[str, ...]:
        """Protected spans of the line that the best translation lacks."""
        lost = (span for segment in self._with_spans for span in segment.restored().lost)
        return (*lost, *(self.marked.lost[0] if self.marked is not None else ()))

    @property
    def reordered_spans(self) -> tuple[str, ...]:
        """Placeholders without numbers, such as `%s`, if the best translation has them in another order."""
        return tuple(span for segment in self._with_spans for span in segment.restored().reordered)

    @cached_property
    def term_uses(self) -> list[TermUse]:
        """What the best translation has of each term of a glossary in the line."""
        return [use for part in self.segments if part.terms for use in term_uses(part.terms, part.restored().text)]

    @property
    def _with_spans(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.protected.contents]

    @property
    def unknown_words(self) -> tuple[str, ...]:
        """Words of the line that are not in the vocabulary of the source; signs such as `$` are no words."""
        words = list[str]()
        for segment in self.segments:
            if segment.tokenizer is not None and UNK_ID in segment.ids:
                spans = zip(segment.ids, segment.tokenizer.spans(segment.text), strict=True)
                words += (segment.text[start:end].strip() for index, (start, end) in spans if index == UNK_ID)
        return tuple(filter(has_words, words))

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
        return replace(self, segments=segments, details=None, estimate=None, marked=marked)

    @cached_property
    def by_rank(self) -> list[Translation]:
        """The translation, and a copy for each of its other hypotheses."""
        return [self, *map(self.at_rank, range(1, len(self.hypotheses)))]

    def with_hypotheses(self, hypotheses: Iterator[Sequence[TextHypothesis]]) -> Translation:
        """Copy with the next item of `hypotheses` in each segment that is not empty."""
        segments = [replace(part, hypotheses=next(hypotheses)) if part.text else part for part in self.segments]
        if self.capitals_of is not None:
            segments = [_in_capitals(part, self.capitals_of) for part in segments]
        return replace(self, segments=segments)


def _in_capitals(segment: Segment, language: str) -> Segment:
    """Segment whose translations are written in the capitals of a language."""
    texts = [TextHypothesis(upper(text, language), hypothesis) for text, hypothesis in segment.hypotheses]
    protected = segment.protected if segment.text else replace(segment.protected, text=texts[0].text)
    return replace(segment, hypotheses=texts, protected=protected)


class _Part(NamedTuple):
    """Part of a line, of which one or several segments are made."""

    line: ProtectedText
    before: str
    """Tag before each segment, and a space."""
    body: str
    start: int
    """Index of `body` in the line."""
    glue: str
    """The text between the translations of this part and the next."""
    languages: Languages
    """Language of the line, and of its translation."""
    sentences: Sequence[tuple[str, str]] = ()
    """Sentences of `body`, each with the space that follows it, if they are known."""

    def segment(self, ids: list[int], tokenizer: Tokenizer) -> Segment:
        text, start = self.before + self.body, self.start - len(self.before)
        return Segment(text, ids, tokenizer, start, self.glue, protected=self.line.part(self.start, text))

    def copied(self) -> Segment:
        segment = Segment.copied(self.body, self.start, self.glue)
        return replace(segment, protected=self.line.part(self.start, self.body)) if self.line.contents else segment


def _copied(source: str, normalised: str, text: str) -> tuple[Translation, Sequence[_Part]]:
    """A line that the model does not read, without parts; `text` is its translation."""
    return Translation(source, normalised, [Segment.copied(text, 0)], False, text), ()


class LineSplitter(NamedTuple):
    """Splits lines into segments that the model can read.

    A line of more than `max_tokens` tokens, without its tag, is split at the ends of sentences. A sentence is split, at
    a comma or between words, if it also has more than 40 tokens.
    """

    translator: Translator
    lowers_capitals: bool = False
    """True if lines in capitals are given to the model in small letters."""

    @property
    def tokenizer(self) -> Tokenizer:
        return self.translator.tokenizers[0]

    def split(self, sources: Sequence[str], tag: str | None, split_sentences: bool | None) -> list[Translation]:
        """Split lines into segments; each begins with the tag of its line, or with the tag that `Tagging` chooses."""
        lines = [self._line(source, tag, split_sentences) for source in sources]
        segments = iter(self._segments([part for _, parts in lines for part in parts]))
        return [self._with_segments(line, parts, [next(segments) for _ in parts]) for line, parts in lines]

    def _line(self, source: str, tag: str | None, split_sentences: bool | None) -> tuple[Translation, Sequence[_Part]]:
        """A line without its segments, and the parts that become segments."""
        text = " ".join(source.split())
        plain = untagged(text, self.translator.tagging.tags)
        if not has_letters(plain):
            if not self.tokenizer.cleaned(plain).strip():  # Also soft hyphens and zero-width characters alone.
                return _copied(source, text, "")
            is_whole = plain == text and not {"\r", "\n"} & set(source)
            return _copied(source, text, source if is_whole else plain)
        text = " ".join(self.tokenizer.cleaned(text).split())
        plain = untagged(text, self.translator.tagging.tags)
        protected = self._protected(source, plain)
        if protected.contents and not has_letters(protected.text):
            return _copied(source, text, protected.original)
        before = tagged_text(text, self.translator.tagging, tag).removesuffix(plain)
        languages = self.translator.tagging.direction(before.strip() or None, self.translator.languages)
        is_lowered = self.lowers_capitals and is_in_capitals(protected.text)
        if is_lowered:
            protected = replace(protected, text=lower(protected.text, languages[0]))
        line = replace(protected, text=text.removesuffix(plain) + protected.text) if plain != text else protected
        parts = [*self._parts(before, line, protected.text, languages, split_sentences)]
        capitals_of = languages[1] if is_lowered else None
        return Translation(source, text, (), False, plain, line, capitals_of=capitals_of), parts

    def _protected(self, source: str, plain: str) -> ProtectedText:
        """The line without its tag, cleaned and with one space between words, but for those in protected spans."""
        if not self.translator.protection:
            return ProtectedText(plain)
        first, *rest = source.split(maxsplit=1)
        body = self.translator.protection.protect(
            (rest[0] if rest else "") if first in self.translator.tagging.tags else source
        )
        contents = tuple(_LINE_END.sub(" ", content) for content in body.contents)
        return ProtectedText(" ".join(self.tokenizer.cleaned(body.text).split()), contents)

    def _parts(
        self, before: str, line: ProtectedText, plain: str, languages: Languages, split_sentences: bool | None
    ) -> Iterator[_Part]:
        """The line, given with its tag and without, or its sentences; `before` is the tag before each segment."""
        start, sentences = len(line.text) - len(plain), [(plain, "")]
        if split_sentences:
            sentences = sentences_of(plain, languages[0])
        elif split_sentences is None and (seen := self.translator.sentences_seen) is not None:
            sentences = seen.parts_of(plain, languages[0])
        for number, (sentence, glue) in enumerate(sentences, start=1):
            after = glue_of_translations(glue, *languages) if number < len(sentences) else ""
            yield _Part(line, before, sentence, start, after, languages)
            start += len(sentence) + len(glue)

    def _with_segments(
        self, line: Translation, parts: Sequence[_Part], segments: Sequence[Sequence[Segment]]
    ) -> Translation:
        """A line with the segments of each of its parts; a line without parts is copied."""
        if not parts:
            return line
        most_tokens = self.translator.max_tokens + bool(parts[0].before)
        is_too_long = any(len(part) > 1 or len(part[0].ids) > most_tokens or not part[0].text for part in segments)
        return replace(line, segments=[*chain(*segments)], is_too_long=is_too_long)

    def _segments(self, parts: Sequence[_Part]) -> list[list[Segment]]:
        """Segments of each part. Parts are encoded together, and then the halves of those that are too long."""
        is_read = [has_words(part.body) for part in parts]
        encoded = iter(self.tokenizer.encode([part.before + part.body for part in compress(parts, is_read)]))
        outcomes = [
            self._segment(part, next(encoded)) if is_part_read else part.copied()
            for part, is_part_read in zip(parts, is_read, strict=True)
        ]
        del encoded  # The ids of a line that is halved many times would take more memory than its segments.
        halves = [half for outcome in outcomes if not isinstance(outcome, Segment) for half in outcome]
        segments = iter(self._segments(halves) if halves else ())
        return [
            [outcome] if isinstance(outcome, Segment) else [*next(segments), *next(segments)] for outcome in outcomes
        ]

    def _segment(self, part: _Part, ids: list[int]) -> Segment | tuple[_Part, _Part]:
        """Segment of a part with these ids; two parts, split between its sentences or words, if it is too long."""
        ids = ids if len(ids) > bool(part.before) else []  # `tokenizer.letters` may delete the whole line.
        length = len(ids) - bool(part.before)
        if length <= self.translator.max_tokens:
            return part.segment(ids, self.tokenizer)
        body = part.body
        sentences = part.sentences or sentences_of(body, part.languages[0])
        number = middle_of(sentences)
        if number:
            between = sentences[number - 1][1]
            end = sum(map(len, chain(*sentences[:number]))) - len(between)
        elif len(body) > 1 and length > min(_SHORT, self.translator.most_tokens or self.translator.max_tokens):
            end, between = split_point(body)
            if not between and body.isascii() and len(body) > _SHORT:  # An address or encoded data, not words.
                return part.copied()
        else:
            return part.segment(ids, self.tokenizer)
        next_start = end + len(between)
        halves = (sentences[:number], sentences[number:]) if number else ([(body[:end], "")], [(body[next_start:], "")])
        glue = glue_of_translations(between, *part.languages)
        return (
            part._replace(body=body[:end], glue=glue, sentences=halves[0]),
            part._replace(body=body[next_start:], start=part.start + next_start, sentences=halves[1]),
        )
