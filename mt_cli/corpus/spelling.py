"""Spellings of one text in several ways: apostrophes, and letters that are composed or decomposed (Unicode NFC).

Each way to make them equal is a value of `tokenizer.normalize`. Nothing is changed here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mt_cli.config.sections import ALL_APOSTROPHES

APOSTROPHES = ALL_APOSTROPHES.removeprefix("'")
"""Characters that are written for the apostrophe `'` inside words."""
BETWEEN_LETTERS = rf"(?<=\p{{L}}\p{{M}}{{0,3}})[{APOSTROPHES}](?=\p{{L}})"


def spaces_beside(marks: str) -> tuple[str, str]:
    """Two patterns: a space after one of the marks that has a space before it, too (`ch ' a`); a space before one.

    The second one leaves a word with a closing mark alone, which is a quotation of one word.
    """
    before = rf"(?<=\p{{L}}\p{{M}}{{0,3}} [{marks}]) (?=\p{{L}})"
    words = rf"[{marks}]\p{{L}}[\p{{L}}\p{{M}}]*+(?:[{marks}][\p{{L}}\p{{M}}]++)*+(?![{marks}])"
    return before, rf"(?<=\p{{L}}\p{{M}}{{0,3}}) (?={words})"


_JOINED = ALL_APOSTROPHES.replace("`", "")
"""Apostrophes that may be joined with a word. A backtick beside a space is markup: it opens a literal or a role."""
SPACES_BESIDE = spaces_beside(_JOINED)
_LETTER = r"[^\W\d_]"
INSIDE = re.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?={_LETTER})")
"""An apostrophe, or what is written for it, between letters: no quotation mark."""
_SPACED = re.compile(rf"(?<={_LETTER}) [{_JOINED}] ?(?={_LETTER})")
_CLOSING = re.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?!{_LETTER})")
_MARKUP = re.compile(rf"(?<!{_LETTER})`[^`]+`|`[^`]+`(?!{_LETTER})" r"|</?[A-Za-z][^<>]*>|\$?\{\w*\}|%\(\w+\)")
_MAX_MARKUP = 0.01
"""Share of texts with markup up to which spaces beside apostrophes are those of tokenised text."""
_MIN_COUNT, _MIN_SHARE = 5, 0.002
_MIN_SPACED = 50
_MIN_USED = 0.1
"""A validation text uses apostrophes if it has this share of those that it would have by the training text."""
_NUM_EXAMPLES, _CONTEXT = 3, 12


@dataclass(frozen=True)
class MixedSpelling:
    """A character or mark that a text has in several forms."""

    option: str
    """The value of `tokenizer.normalize` that makes the forms equal."""
    counts: dict[str, int]
    """How often each form occurs, the most frequent one first."""
    examples: tuple[str, ...]
    """Of the rarer forms, with some characters around them."""


def mixed_spellings(texts: Sequence[str]) -> list[MixedSpelling]:
    """What is written in several ways in the texts of one language; a rare slip is not reported."""
    examples: dict[str, list[str]] = {}
    inside, spaced = _counted_apostrophes(texts, examples)
    has_markup = sum(_MARKUP.search(text) is not None for text in texts) > _MAX_MARKUP * len(texts)
    found = []
    if is_split := spaced.total() >= max(_MIN_SPACED, inside.total() + 1) and not has_markup:
        counts = {"inside a word": inside.total(), "after a space": spaced.total()}
        inside += spaced
    if inside.total() - max(inside.values(), default=0) >= max(_MIN_COUNT, _MIN_SHARE * inside.total()):
        _, *others = (form for form, _ in inside.most_common())
        shown = [example for form in others for example in examples.get(form, ())]
        found.append(MixedSpelling("apostrophes", dict(inside.most_common()), tuple(shown[:_NUM_EXAMPLES])))
    if is_split:  # An apostrophe that begins some words, as in Wixarika, is more often inside of them.
        found.append(MixedSpelling("joined_apostrophes", counts, tuple(examples[" "])))
    if decomposed := [text for text in texts if not unicodedata.is_normalized("NFC", text)]:
        counts = {"composed": len(texts) - len(decomposed), "decomposed": len(decomposed)}
        found.append(MixedSpelling("nfc", counts, tuple(map(_first_decomposed, decomposed[:_NUM_EXAMPLES]))))
    return found


def spellings_to_normalize(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[str]:
    """The values of `tokenizer.normalize` that suit the training text of each language and what it is validated on.

    Apostrophes become `'` only if no language has mostly others: in the validation text or, without any there, in the
    training text.
    """
    found = dict.fromkeys(each.option for train, valid in sides for each in mixed_spellings([*train, *valid]))
    if any(_most_frequent_apostrophe(train, valid) not in (None, "'") for train, valid in sides):
        found.pop("apostrophes", None)
    return list(found)


def _most_frequent_apostrophe(train: Sequence[str], valid: Sequence[str]) -> str | None:
    """That of the validation text or, without any or nearly any there, of the training text; None if both lack them."""
    forms, own = (sum(_counted_apostrophes(texts, {}), Counter[str]()) for texts in (valid, train))
    scale = sum(map(len, valid)) / max(1, sum(map(len, train)))
    if forms.total() < max(_MIN_COUNT, _MIN_USED * scale * own.total()):
        forms = own
    return forms.most_common(1)[0][0] if forms.total() >= _MIN_COUNT else None


def _counted_apostrophes(texts: Sequence[str], examples: dict[str, list[str]]) -> tuple[Counter[str], Counter[str]]:
    """How often each apostrophe is inside a word, and inside with a space before it; adds examples of each.

    Backticks of a text with markup, which come in pairs, are no apostrophes.
    """
    inside, spaced = Counter[str](), Counter[str]()
    for text in texts:
        for match in INSIDE.finditer(text):
            if match[0] == "`" and _MARKUP.search(text):
                continue
            inside[match[0]] += 1
            _add_example(examples, match[0], text, match.start())
        if not _CLOSING.search(text):  # Otherwise the apostrophes may be quotation marks.
            for match in _SPACED.finditer(text):
                spaced[match[0].strip()] += 1
                _add_example(examples, " ", text, match.start())
    return inside, spaced


def _add_example(examples: dict[str, list[str]], form: str, text: str, place: int) -> None:
    if len(known := examples.setdefault(form, [])) < _NUM_EXAMPLES:
        known.append(text[max(0, place - _CONTEXT) : place + _CONTEXT].strip())


def _first_decomposed(text: str) -> str:
    composed = unicodedata.normalize("NFC", text)
    pairs = enumerate(zip(text, composed, strict=False))
    place = next((index for index, (one, other) in pairs if one != other), 0)
    return text[max(0, place - _CONTEXT) : place + _CONTEXT].strip()
