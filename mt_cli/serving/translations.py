"""Translations of texts of any length, sentence by sentence, with the characters between the sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mt_cli.corpus.protected_text import Protection
from mt_cli.serving.models import Choice, Direction
from mt_cli.translation.lines import Translation
from mt_cli.translation.sentences import glue_of_translations, sentences_of, units
from mt_cli.translation.translator import Translator

_ENDS = re.compile(r"(\r\n|[\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029])")
"""Ends of lines, paragraphs and cells of tables."""
_BLANK = re.compile(r"[^\S ]")


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
    def of(cls, text: str, direction: Direction, protection: Protection) -> SplitText:
        """Split a text at the ends of lines and cells, and between sentences; protected spans are not split."""
        sentences: list[Sentence] = []
        blank = ""
        for part in _ENDS.split(text):
            stripped = part.strip()
            if not stripped:
                blank += part
                continue
            start = part.index(stripped)
            before = target_before = blank + part[:start]
            for sentence, glue in _sentences(stripped, protection):
                sentences.append(Sentence(sentence, before, target_before))
                before, target_before = glue, glue_of_translations(glue, *direction)
            blank = part[start + len(stripped) :]
        return cls(sentences, blank)


def _sentences(line: str, protection: Protection) -> Iterator[tuple[str, str]]:
    """Sentences of a line, each with the space after it."""
    protected = protection.protect(line)
    start = 0
    for sentence, glue in sentences_of(_BLANK.sub(" ", protected.text)):
        end = start + len(sentence)
        after = end + len(glue)
        yield protected.part(start, protected.text[start:end]).original, protected.text[end:after]
        start = after


@dataclass(frozen=True)
class TextTranslation:
    """A text with the translation of each sentence."""

    source: SplitText
    items: Sequence[Translation]

    def text(self, rank: int = 0) -> str:
        """Whole translation from the hypotheses of this rank; a sentence with fewer contributes its last one."""
        pairs = zip(self.source.sentences, self.items, strict=True)
        texts = (row.target_before + item.hypotheses[min(rank, len(item.hypotheses) - 1)][0] for row, item in pairs)
        return "".join([*texts, self.source.after])

    def alternatives(self, number: int) -> list[str]:
        """Up to `number` other translations of the whole text, best first."""
        texts = dict.fromkeys(self.text(rank) for rank in range(number + 1))
        return list(texts)[1:]


def translate_texts(
    translator: Translator, choice: Choice, texts: Sequence[str], search: Mapping[str, Any]
) -> list[TextTranslation]:
    """Translate texts; `search` has options of `Translator.translate_fully`. Equal sentences are translated once."""
    split = [SplitText.of(text, choice.direction, translator.protection) for text in texts]
    distinct = list(dict.fromkeys(sentence.text for text in split for sentence in text.sentences))
    items = dict(zip(distinct, translator.translate_fully(distinct, **search), strict=True))
    return [TextTranslation(text, [items[sentence.text] for sentence in text.sentences]) for text in split]


def described(
    translator: Translator, texts: Sequence[TextTranslation], num_alternatives: int, with_details: bool
) -> list[list[dict[str, Any]]]:
    """Sentences of each text as JSON, with up to `num_alternatives` other translations; see `docs/serving.md`."""
    distinct = {id(item): item for text in texts for item in text.items}  # Equal sentences share one.
    others = {key: _alternatives(item, num_alternatives) for key, item in distinct.items()}
    if with_details:
        of_all = iter(translator.add_details([other for items in others.values() for other in items]))
        others = {key: [next(of_all) for _ in items] for key, items in others.items()}
    return [
        [
            _sentence(row, item, text.source.after if row is text.source.sentences[-1] else "")
            | {"alternatives": [{"text": other.text} | _translation(row.text, other) for other in others[id(item)]]}
            for row, item in zip(text.source.sentences, text.items, strict=True)
        ]
        for text in texts
    ]


def _alternatives(item: Translation, number: int) -> list[Translation]:
    """Up to `number` other translations of a sentence, best first, each as a translation with one hypothesis."""
    by_text: dict[str, Translation] = {}
    for other in map(item.at_rank, range(len(item.hypotheses))):
        by_text.setdefault(other.text, other)
    return list(by_text.values())[1 : number + 1]


def _sentence(row: Sentence, item: Translation, after: str) -> dict[str, Any]:
    return {
        "source": {"text": row.text, "before": row.before, "after": after},
        "target": {"text": item.text, "before": row.target_before, "after": after},
        "is_too_long": item.is_too_long,
        "unknown_words": list(dict.fromkeys(item.unknown_words)),
        **_translation(row.text, item),
    }


def _translation(source: str, item: Translation) -> dict[str, Any]:
    spans = {"lost_spans": item.lost_spans, "reordered_spans": item.reordered_spans}
    return {"score": _rounded(item.score)} | spans | (_details(source, item) if item.details else {})


def _details(source: str, item: Translation) -> dict[str, Any]:
    assert item.details is not None
    source_words, target_words = units(source), units(item.text)
    return {
        "source_words": source_words,
        "target_words": target_words,
        "alignment": [
            (source, target)
            for source, target in item.details.word_alignment
            if source < len(source_words) and target < len(target_words)
        ],
        "confidence": [_rounded(math.exp(score)) for score in item.details.word_scores],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": list(map(_rounded, item.details.token_scores)),
    }


def _rounded(value: float) -> float | None:
    """Value with four decimals; None, which JSON can say, if it is not finite."""
    return round(value, 4) if math.isfinite(value) else None
