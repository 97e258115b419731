"""Spellings of one text in several ways, and letters that a text has where a text to compare has others.

Several ways are other apostrophes, spaces beside them, and letters that are composed or decomposed (Unicode NFC).
Each way to make them equal is a value of `tokenizer.normalize` or `tokenizer.letters`. Nothing is changed here.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

APOSTROPHES = "’ʼ‘ʻ`´′ʹꞌ＇"
"""Characters that are written for the apostrophe `'` inside words."""
BETWEEN_LETTERS = rf"(?<=\p{{L}}\p{{M}}{{0,3}})[{APOSTROPHES}](?=\p{{L}})"
BEFORE_SPACE = rf"(?<=\p{{L}}\p{{M}}{{0,3}} ['{APOSTROPHES}]) (?=\p{{L}})"
"""A space after an apostrophe that has one before it, too: `ch ' a`."""
AFTER_SPACE = (
    rf"(?<=\p{{L}}\p{{M}}{{0,3}}) (?=['{APOSTROPHES}]\p{{L}}[\p{{L}}\p{{M}}]*+"
    rf"(?:['{APOSTROPHES}][\p{{L}}\p{{M}}]++)*+(?!['{APOSTROPHES}]))"
)
"""A space before an apostrophe and a word without a closing one, which would be a quotation of one word."""
_ALL_APOSTROPHES = f"'{APOSTROPHES}"
_PUNCTUATION = '.,;:!?"“”«»()'
_LETTER = r"[^\W\d_]"
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff"
_LETTER_OR_APOSTROPHE = re.compile(rf"{_LETTER}[{_MARKS}]*|(?<={_LETTER}|[{_MARKS}])[{_ALL_APOSTROPHES}](?={_LETTER})")
_INSIDE = re.compile(rf"(?<={_LETTER})[{_ALL_APOSTROPHES}](?={_LETTER})")
_SPACED = re.compile(rf"(?<={_LETTER}) [{_ALL_APOSTROPHES}] ?(?={_LETTER})")
_CLOSING = re.compile(rf"(?<={_LETTER})[{_ALL_APOSTROPHES}](?!{_LETTER})")
_MIN_COUNT, _MIN_SHARE = 5, 0.002
_MIN_SPACED = 50
_MIN_USED = 0.1
"""A validation text uses apostrophes if it has this share of those that it would have by the training text."""
_NUM_EXAMPLES, _CONTEXT = 3, 12
_MIN_EXPECTED, _MAX_SEEN = 20, 0.05
"""A letter is missing in a text if it should occur so often by its share in the other one, and occurs at most in this
share of that number. Of 27 texts that are spelled like the text that they are compared with, none lacks a letter."""
_MIN_GAIN, _MIN_DEVIATIONS = 0.5, 3.0
"""Another letter stands for it if it occurs more often than expected by this share of what is missing, and by so many
standard deviations."""


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
    found = []
    if is_split := spaced.total() >= _MIN_SPACED and spaced.total() > inside.total():
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


@dataclass(frozen=True)
class OtherLetter:
    """A letter of a training text that the compared text writes as another letter, or never."""

    old: str
    new: str
    """Empty for an apostrophe that is left out."""
    share: float
    """Of the letters of the distinct words of the training text."""
    num_words: int
    """Distinct words of the training text with the old letter."""
    examples: tuple[str, ...]
    """Some of them."""


def other_letters(train: Sequence[str], compared: Sequence[str]) -> list[OtherLetter]:
    """The letters of a training text that another text in the same language writes otherwise.

    These are letters with marks that it never has, where it has one with other marks instead, as in Guarani `tetã` and
    `tetâ`; and apostrophes where it has none. Letters are those of distinct words, so that a name that is often
    repeated counts once.
    """
    words = _distinct_words(train)
    before, after = _letters(words), _letters(_distinct_words(compared))
    scale = after.total() / max(1, before.total())
    found = []
    for old in sorted(before):
        same = [*_ALL_APOSTROPHES] if old in _ALL_APOSTROPHES else [old]
        expected, seen = (sum(counts[letter] for letter in same) for counts in (before, after))
        if scale * expected < _MIN_EXPECTED or seen > _MAX_SEEN * scale * expected:
            continue
        new = "" if old in _ALL_APOSTROPHES else _substitute(old, before, after, scale)
        if new is not None:
            having = sorted(word for word in words if old in word)
            shown = tuple(word.strip(_PUNCTUATION) for word in having[:: len(having) // _NUM_EXAMPLES + 1])
            found.append(OtherLetter(old, new, before[old] / before.total(), len(having), shown))
    return found


def _substitute(old: str, before: Counter[str], after: Counter[str], scale: float) -> str | None:
    """The letter with other marks that is written for a missing one; None if there is none."""
    gains = {new: after[new] - scale * before[new] for new in after if _differ_in_marks(old, new)}
    new = max(gains, key=gains.__getitem__, default=None)
    enough = max(_MIN_GAIN * scale * before[old], _MIN_DEVIATIONS * sqrt(scale * before[new or old]))
    return new if new and gains[new] >= enough else None


def letters_to_replace(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
    """`tokenizer.letters` for the training text of each language and what it is compared with.

    A letter stays if the compared text of another language has it.
    """
    letters = [_letters(_distinct_words(compared)) for _, compared in sides]
    found: dict[str, str] = {}
    for index, (train, compared) in enumerate(sides):
        foreign = [each for number, each in enumerate(letters) if number != index]
        for each in other_letters(train, compared):
            if all(other[each.old] <= _MAX_SEEN * each.share * other.total() for other in foreign):
                found.setdefault(each.old, each.new)
    return {old: new for old, new in found.items() if new not in found}


def _distinct_words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in unicodedata.normalize("NFC", text).lower().split()}


def _letters(words: Iterable[str]) -> Counter[str]:
    """The letters of words, with their marks, and the apostrophes between letters, which are no quotation marks."""
    return Counter(letter for word in words for letter in _LETTER_OR_APOSTROPHE.findall(word))


def _differ_in_marks(one: str, other: str) -> bool:
    """Whether two letters have the same base and different marks; without marks, there are none to differ."""
    both = [unicodedata.normalize("NFD", letter) for letter in (one, other)]
    return one != other and both[0][0] == both[1][0] and all(len(letter) > 1 for letter in both)


def _most_frequent_apostrophe(train: Sequence[str], valid: Sequence[str]) -> str | None:
    """That of the validation text or, without any or nearly any there, of the training text; None if both lack them."""
    forms, own = (sum(_counted_apostrophes(texts, {}), Counter[str]()) for texts in (valid, train))
    scale = sum(map(len, valid)) / max(1, sum(map(len, train)))
    if forms.total() < max(_MIN_COUNT, _MIN_USED * scale * own.total()):
        forms = own
    return forms.most_common(1)[0][0] if forms.total() >= _MIN_COUNT else None


def _counted_apostrophes(texts: Sequence[str], examples: dict[str, list[str]]) -> tuple[Counter[str], Counter[str]]:
    """How often each apostrophe is inside a word, and inside with a space before it; adds examples of each."""
    inside, spaced = Counter[str](), Counter[str]()
    for text in texts:
        for match in _INSIDE.finditer(text):
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
