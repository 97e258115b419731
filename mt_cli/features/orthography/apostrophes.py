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
from mt_cli.tokenizer.spelling import JOINED_APOSTROPHES

_LETTER = r"[^\W\d_]"
INSIDE = re.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?={_LETTER})")
"""An apostrophe, or what is written for it, between letters: no quotation mark."""
_SPACED = re.compile(rf"(?<={_LETTER}) [{JOINED_APOSTROPHES}] ?(?={_LETTER})")
_CLOSING = re.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?!{_LETTER})")
_MARKUP = re.compile(rf"(?<!{_LETTER})`[^`]+`|`[^`]+`(?!{_LETTER})" r"|</?[A-Za-z][^<>]*>|\$?\{\w*\}|%\(\w+\)")
_MAX_MARKUP = 0.01
"""Share of texts with markup up to which spaces beside apostrophes are those of tokenised text."""
_MIN_COUNT, _MIN_SHARE = 5, 0.002
"""Rarer forms occur so often, and are this share of all forms."""
_MIN_SPACED = 50
_MIN_USED = 0.1
"""A validation text uses apostrophes if it has this share of the number that the training text lets expect."""
_NUM_EXAMPLES, _CONTEXT = 3, 12


@dataclass(frozen=True)
class MixedSpelling:
    """A character or mark that a text has in several forms."""

    option: str
    """The value of `tokenizer.normalize` that makes the forms equal."""
    counts: dict[str, int]
    """Number of occurrences of each form, the most frequent one first."""
    examples: tuple[str, ...]
    """Rarer forms, with some characters around them."""


def mixed_spellings(texts: Sequence[str]) -> list[MixedSpelling]:
    """Forms that occur beside others in the texts of one language; a rare slip is not reported."""
    inside, spaced, examples = _count_apostrophes(texts)
    counts = {"inside a word": inside.total(), "after a space": spaced.total()}
    is_split = spaced.total() >= max(_MIN_SPACED, inside.total() + 1) and not _is_markup(texts)
    forms = inside + spaced if is_split else inside
    mixed = []
    if forms.total() - max(forms.values(), default=0) >= max(_MIN_COUNT, _MIN_SHARE * forms.total()):
        ranked = dict(forms.most_common())
        shown = [example for form in list(ranked)[1:] for example in examples.get(form, ())]
        mixed.append(MixedSpelling("apostrophes", ranked, tuple(shown[:_NUM_EXAMPLES])))
    if is_split:  # An apostrophe that begins some words, as in Wixarika, is more often inside of them.
        mixed.append(MixedSpelling("joined_apostrophes", counts, tuple(examples[" "])))
    if decomposed := [text for text in texts if not unicodedata.is_normalized("NFC", text)]:
        counts = {"composed": len(texts) - len(decomposed), "decomposed": len(decomposed)}
        mixed.append(MixedSpelling("nfc", counts, tuple(map(_first_decomposed, decomposed[:_NUM_EXAMPLES]))))
    return mixed


def spellings_to_normalize(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[str]:
    """Values of `tokenizer.normalize` that suit the training and the validation text of each language.

    Apostrophes become `'` only if no language has mostly others: in the validation text or, without any there, in the
    training text.
    """
    options = dict.fromkeys(mixed.option for train, valid in sides for mixed in mixed_spellings([*train, *valid]))
    if any(_most_frequent_apostrophe(train, valid) not in (None, "'") for train, valid in sides):
        options.pop("apostrophes", None)
    return list(options)


def _most_frequent_apostrophe(train: Sequence[str], valid: Sequence[str]) -> str | None:
    """The most frequent apostrophe of the validation text or, if it has hardly any, of the training text."""
    in_train, in_valid = (sum(_count_apostrophes(texts)[:2], Counter[str]()) for texts in (train, valid))
    scale = sum(map(len, valid)) / max(1, sum(map(len, train)))
    is_used = in_valid.total() >= max(_MIN_COUNT, _MIN_USED * scale * in_train.total())
    forms = in_valid if is_used else in_train
    return forms.most_common(1)[0][0] if forms.total() >= _MIN_COUNT else None


def _count_apostrophes(texts: Sequence[str]) -> tuple[Counter[str], Counter[str], dict[str, list[str]]]:
    """Number of each apostrophe inside words, and inside with a space before it; examples by form, `" "` for a space.

    Backticks of a text with markup, which come in pairs, are no apostrophes.
    """
    inside, spaced, examples = Counter[str](), Counter[str](), dict[str, list[str]]()
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
    return inside, spaced, examples


def _is_markup(texts: Sequence[str]) -> bool:
    return sum(_MARKUP.search(text) is not None for text in texts) > _MAX_MARKUP * len(texts)


def _add_example(examples: dict[str, list[str]], form: str, text: str, place: int) -> None:
    if len(shown := examples.setdefault(form, [])) < _NUM_EXAMPLES:
        shown.append(_around(text, place))


def _first_decomposed(text: str) -> str:
    characters = zip(text, unicodedata.normalize("NFC", text), strict=False)
    return _around(text, next((place for place, (before, after) in enumerate(characters) if before != after), 0))


def _around(text: str, place: int) -> str:
    return text[max(0, place - _CONTEXT) : place + _CONTEXT].strip()
