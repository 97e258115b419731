"""Translations of texts of any length, sentence by sentence, with the characters between the sentences."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.corpus.sentences import sentences_of
from mt_cli.translation.drafts import Draft, lost_spans
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks
from mt_cli.translation.sentences import glue_of_translations

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
    def of(cls, text: str, languages: tuple[str, str], protection: Protection = UNPROTECTED) -> SplitText:
        """Split a text at the ends of lines and cells and between sentences, but not in marks and protected spans."""
        marks = InlineMarks(PLACEHOLDERS, protection)
        sentences: list[Sentence] = []
        blanks: list[str] = []
        for part in _ENDS.split(text):
            stripped = part.strip()
            if not stripped:
                blanks.append(part)
                continue
            start = part.index(stripped)
            before = target_before = "".join([*blanks, part[:start]])
            for sentence, glue in _sentences(stripped, languages[0], marks):
                sentences.append(Sentence(sentence, before, target_before))
                before, target_before = glue, glue_of_translations(glue, *languages)
            blanks = [part[start + len(stripped) :]]
        return cls(sentences, "".join(blanks))


def _sentences(line: str, language: str, marks: InlineMarks) -> Iterator[tuple[str, str]]:
    """Sentences of a line, each with the space after it."""
    masked, start = list(_BLANK.sub(" ", line)), 0
    for first, last in marks.kept_spans(line):
        masked[first:last] = _MARK * (last - first)
    for sentence, glue in sentences_of("".join(masked), language):
        end = start + len(sentence)
        yield line[start:end], line[end : end + len(glue)]
        start = end + len(glue)


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


def translations_of(
    texts: Iterable[str],
    languages: tuple[str, str],
    draft: Callable[[Sequence[str]], Sequence[Draft]],
    protection: Protection = UNPROTECTED,
) -> list[TextTranslation]:
    """Translate texts by the drafts of their sentences; equal sentences are translated once."""
    split = [SplitText.of(text, languages, protection) for text in texts]
    distinct = list(dict.fromkeys(sentence.text for text in split for sentence in text.sentences))
    drafts = dict(zip(distinct, draft(distinct), strict=True))
    marks = InlineMarks(PLACEHOLDERS, protection)
    lost = {text: spans for text in distinct if (spans := lost_spans(text, drafts[text], marks))}
    return [TextTranslation(text, [drafts[row.text] for row in text.sentences], lost) for text in split]
