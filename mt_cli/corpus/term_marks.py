"""Annotation of terms in a source text with their translations.

`the⟨ brake¦ Bremse⟩ drum` asks for `Bremse`, in the form that the sentence needs. The three marks are reserved
characters, each one token of the vocabulary, so that any engine can hold a model that has learned them. They stand
where the other tokens of the text stay as they are: the first mark goes before the space of its words. After Dinu et
al. 2019, "Training Neural Machine Translation to Apply Terminology Constraints", and, with base forms, Bergmanis and
Pinnis 2021, "Facilitating Terminology Translation with Target Lemma Annotations".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from mt_cli.corpus.languages import SPACELESS_CHARACTER

_BEGIN, TERM_SEPARATOR, TERM_END = "\U0010ff20", "\U0010ff21", "\U0010ff22"
TERM_MARKS = _BEGIN + TERM_SEPARATOR + TERM_END
"""Marks before the words of a term, before its translation, and after it. They are for private use, as `RESERVED`."""
_ANY_MARK = re.compile(f"[{TERM_MARKS}]")


class AnnotatedText(NamedTuple):
    """A text with annotated terms."""

    text: str
    places: list[int]
    """For each place of `text`, the place in the text before; what was added has that of a character of its term."""


def annotated(text: str, terms: Sequence[tuple[int, int, str]]) -> AnnotatedText:
    """Annotate terms in a text that has no marks and begins with no space.

    A term is its start, its end and its translation. Terms do not overlap, and are in order.
    """
    parts, places, last = list[str](), list[int](), 0
    for start, end, target in terms:
        first = start - (text[:start][-1:] == " ")
        begin = _BEGIN + _space_before(text) if start == 0 else _BEGIN
        target = without_term_marks(target)
        translation = TERM_SEPARATOR + _space_before(target) + target + TERM_END
        parts += [text[last:first], begin, text[first:end], translation]
        places += [*range(last, first), *[first] * len(begin), *range(first, end), *[end - 1] * len(translation)]
        last = end
    return AnnotatedText("".join([*parts, text[last:]]), [*places, *range(last, len(text) + 1)])


def _space_before(text: str) -> str:
    """The space with which a tokenizer begins a text, so that its first word has its usual tokens."""
    return "" if SPACELESS_CHARACTER.match(text) else " "


def without_term_marks(text: str) -> str:
    return _ANY_MARK.sub("", text)
