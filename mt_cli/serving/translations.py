"""Translations of texts of any length, sentence by sentence, with the characters between the sentences."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.corpus.sentences import sentences_of
from mt_cli.documents.translate import Job, drafts_of
from mt_cli.serving.models import Direction
from mt_cli.serving.scheduling import Ticket
from mt_cli.translation.drafts import Draft
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks
from mt_cli.translation.inline_tags import Tag
from mt_cli.translation.lines import Translation
from mt_cli.translation.sentences import glue_of_translations, units

_ENDS = re.compile(r"(\r\n|[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029])")
"""Ends of lines, paragraphs and cells of tables."""
_BLANK = re.compile(r"[^\S ]")
_MARK = "\ufffc"
"""Stands for each character of a mark while a line is split into sentences."""


class Sentence(NamedTuple):
    """A sentence of a text, and the blank characters before it in the text and in the translation."""

    text: str
    before: str
    target_before: str


@dataclass(frozen=True)
class SplitText:
    """Sentences of a text, and the blank characters after the last one."""

    sentences: Sequence[Sentence]
    after: str

    @classmethod
    def of(cls, text: str, direction: Direction, protection: Protection = UNPROTECTED) -> SplitText:
        """Split a text at the ends of lines and cells and between sentences, but not in marks and protected spans."""
        sentences: list[Sentence] = []
        blanks: list[str] = []
        for part in _ENDS.split(text):
            stripped = part.strip()
            if not stripped:
                blanks.append(part)
                continue
            start = part.index(stripped)
            before = target_before = "".join([*blanks, part[:start]])
            for sentence, glue in _sentences(stripped, direction[0], protection):
                sentences.append(Sentence(sentence, before, target_before))
                before, target_before = glue, glue_of_translations(glue, *direction)
            blanks = [part[start + len(stripped) :]]
        return cls(sentences, "".join(blanks))


def _sentences(line: str, language: str, protection: Protection) -> Iterator[tuple[str, str]]:
    """Sentences of a line, each with the space after it."""
    masked, start = list(_BLANK.sub(" ", line)), 0
    for first, last in _spans(line, protection):
        masked[first:last] = _MARK * (last - first)
    for sentence, glue in sentences_of("".join(masked), language):
        end = start + len(sentence)
        yield line[start:end], line[end : end + len(glue)]
        start = end + len(glue)


def _spans(text: str, protection: Protection) -> list[tuple[int, int]]:
    """Start and end of the marks and protected spans of a text."""
    spans, start = list(protection.spans(text)), 0
    for piece in InlineMarks(PLACEHOLDERS).without_any(text):
        end = start + len(piece.raw if isinstance(piece, Tag) else piece)
        if isinstance(piece, Tag):
            spans.append((start, end))
        start = end
    return spans


@dataclass(frozen=True)
class TextTranslation:
    """A text with the translation of each sentence."""

    source: SplitText
    drafts: Sequence[Draft]
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Marks and protected spans that the translation of a sentence lacks, by the sentence."""

    def text(self, rank: int = 0) -> str:
        """Whole translation from the hypotheses of this rank; a sentence with fewer contributes its last one."""
        pairs = zip(self.source.sentences, self.drafts, strict=True)
        texts = (row.target_before + [draft.text, *draft.others][: rank + 1][-1] for row, draft in pairs)
        return "".join([*texts, self.source.after])

    def alternatives(self, number: int) -> list[str]:
        """Up to `number` other translations of the whole text, best first."""
        texts = dict.fromkeys(self.text(rank) for rank in range(number + 1))
        return list(texts)[1:]

    @property
    def lost_spans(self) -> list[str]:
        """Marks and protected spans that the translation lacks."""
        return [span for row in self.source.sentences for span in self.lost.get(row.text, ())]


def translate_texts(
    job: Job | None, texts: Sequence[str], direction: Direction, ticket: Ticket
) -> list[TextTranslation]:
    """Translate texts; equal sentences are translated once. Without a job, texts stay as they are."""
    protection = job.translator.protection if job else UNPROTECTED
    split = []
    for text in texts:
        ticket.check()
        split.append(SplitText.of(text, direction, protection))
    distinct = list(dict.fromkeys(sentence.text for text in split for sentence in text.sentences))
    drafts = drafts_of(distinct, PLACEHOLDERS, job) if job else [Draft(text) for text in distinct]
    by_text = dict(zip(distinct, drafts, strict=True))
    lost = {
        text: spans for text, draft in by_text.items() if (spans := _lost(text, draft.text, draft.item, protection))
    }
    return [TextTranslation(text, [by_text[row.text] for row in text.sentences], lost) for text in split]


def _lost(source: str, target: str, item: Translation | None, protection: Protection) -> list[str]:
    """Marks and protected spans of a sentence that its translation lacks."""
    if source == target:
        return []
    before, after = (Counter(text[start:end] for start, end in _spans(text, protection)) for text in (source, target))
    missing = [*(before - after), *(item.lost_spans if item else ())]
    return [span for span in dict.fromkeys(missing) if target.count(span) < source.count(span)]


def described(
    texts: Sequence[TextTranslation], job: Job | None, num_alternatives: int, with_details: bool
) -> list[list[dict[str, Any]]]:
    """Sentences of each text as JSON, with up to `num_alternatives` other translations; see `docs/serving.md`."""
    distinct = {
        row.text: draft for text in texts for row, draft in zip(text.source.sentences, text.drafts, strict=True)
    }
    others = {source: _others(draft, num_alternatives) for source, draft in distinct.items()}
    if with_details and job:
        items = iter(job.translator.add_details([item for rows in others.values() for _, item in rows]))
        others = {source: [(text, next(items)) for text, _ in rows] for source, rows in others.items()}
    protection = job.translator.protection if job else UNPROTECTED

    def sentence(row: Sentence, after: str) -> dict[str, Any]:
        draft = distinct[row.text]
        return {
            "source": {"text": row.text, "before": row.before, "after": after},
            "target": {"text": draft.text, "before": row.target_before, "after": after},
            "is_too_long": draft.item is not None and draft.item.is_too_long,
            "unknown_words": list(dict.fromkeys(draft.item.unknown_words if draft.item else ())),
            **_translation(row.text, draft.text, draft.item, protection),
            "alternatives": [
                {"text": text} | _translation(row.text, text, item, protection) for text, item in others[row.text]
            ],
        }

    return [
        [sentence(row, text.source.after if row is text.source.sentences[-1] else "") for row in text.source.sentences]
        for text in texts
    ]


def _others(draft: Draft, number: int) -> list[tuple[str, Translation]]:
    """Up to `number` other translations of a sentence, best first, each with one hypothesis."""
    if draft.item is None:
        return []
    ranks = {text: draft.item.at_rank(rank) for rank, text in reversed([*enumerate(draft.others, start=1)])}
    return [(text, ranks[text]) for text in dict.fromkeys(draft.others) if text != draft.text][:number]


def _translation(source: str, target: str, item: Translation | None, protection: Protection) -> dict[str, Any]:
    described = {
        "score": _rounded(item.score) if item else None,
        "lost_spans": _lost(source, target, item, protection),
        "reordered_spans": list(item.reordered_spans) if item else [],
    }
    return described | (_details(source, target, item) if item and item.details else {})


def _details(source: str, target: str, item: Translation) -> dict[str, Any]:
    assert item.details is not None
    source_words, target_words = _words(source, item.plain), _words(target, item.text)
    return {
        "source_words": source_words,
        "target_words": target_words,
        "alignment": [
            (source, target)
            for source, target in item.details.word_alignment
            if source < len(source_words) and target < len(target_words)
        ],
        "confidence": [_rounded(math.exp(score)) for score in item.details.word_scores[: len(target_words)]],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": list(map(_rounded, item.details.token_scores)),
    }


def _words(text: str, plain: str) -> list[tuple[int, int]]:
    """Start and end in a text of each word of the same text without marks, up to the first one that a mark divides."""
    if text == plain:
        return units(text)
    words, place = [], 0
    for start, end in units(plain):
        first = text.find(plain[start:end], place)
        if first < 0:
            break
        place = first + end - start
        words.append((first, place))
    return words


def _rounded(value: float) -> float | None:
    """Value with four decimals; None, which JSON can say, if it is not finite."""
    return round(value, 4) if math.isfinite(value) else None
