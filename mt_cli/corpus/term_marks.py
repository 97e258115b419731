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

from mt_cli.corpus.languages import SPACELESS

_BEGIN, TERM_SEPARATOR, TERM_END = "\U0010ff20", "\U0010ff21", "\U0010ff22"
TERM_MARKS = _BEGIN + TERM_SEPARATOR + TERM_END
"""Marks before the words of a term, before its translation, and after it. They are for private use, as `RESERVED`."""
_ANNOTATION = re.compile(rf"\A{_BEGIN} |{_BEGIN}|{TERM_SEPARATOR}[^{TERM_END}]*+{TERM_END}")
_ANY_MARK = re.compile(f"[{TERM_MARKS}]")
_SPACELESS = re.compile(f"[{SPACELESS}]")

Annotation = tuple[int, int, str]
"""Start and end of a term in a text, and its translation."""


def annotated(text: str, terms: Sequence[Annotation]) -> str:
    """Annotate terms, which do not overlap and are in order, in a text without marks that begins with no space."""
    parts, place = [], 0
    for start, end, target in terms:
        first = start - (text[start - 1 : start] == " ") if start else 0
        begin = _BEGIN + _space_before(text) if start == 0 else _BEGIN
        target = without_single_marks(target)
        parts += [text[place:first], begin, text[first:end], TERM_SEPARATOR, _space_before(target), target, TERM_END]
        place = end
    return "".join([*parts, text[place:]])


def _space_before(text: str) -> str:
    """The space with which a tokenizer begins a text, so that its first word has its usual tokens."""
    return "" if _SPACELESS.match(text) else " "


def without_marks(text: str) -> str:
    """Text before its terms were annotated."""
    return _ANNOTATION.sub("", text)


def without_single_marks(text: str) -> str:
    """Text without the characters that stand for marks, whatever is between them."""
    return _ANY_MARK.sub("", text)


def places_without_marks(text: str) -> list[int]:
    """For each place of an annotated text, the place in the text before.

    The marks and the translation of a term have the place of a character of the term.
    """
    places, plain = list[int](), 0
    last_end = 0
    for match in _ANNOTATION.finditer(text):
        places += range(plain, plain + match.start() - last_end)
        plain += match.start() - last_end
        is_begin = match[0].startswith(_BEGIN)
        places += [plain if is_begin else max(0, plain - 1)] * len(match[0])
        last_end = match.end()
    return [*places, *range(plain, plain + len(text) - last_end + 1)]
