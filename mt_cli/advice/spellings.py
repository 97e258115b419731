"""Spellings that differ inside a text, or between a training text and the text that it is compared with.

Inside a text, apostrophes may differ; `tokenizer.normalize` makes them equal. If its letters have marks that look
alike, or the compared text has other letters, `tokenizer.letters` replaces letters of the training text. Such letters
are counted in distinct words, so that a frequent name counts once. Changes nothing, and knows no language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import sqrt

import regex

from mt_cli.tokenizer.spelling import ALL_APOSTROPHES, JOINED_APOSTROPHES, LOOK_ALIKE_MARKS

_LETTER = r"[^\W\d_]"
INSIDE = regex.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?={_LETTER})")
"""An apostrophe or a character in its place, between letters, where it is not a quotation mark."""
_SPACED = regex.compile(rf"(?<={_LETTER}) [{JOINED_APOSTROPHES}] ?(?={_LETTER})")
_CLOSING = regex.compile(rf"(?<={_LETTER})[{ALL_APOSTROPHES}](?!{_LETTER})")
_MARKUP = re.compile(rf"(?<!{_LETTER})`[^`]+`|`[^`]+`(?!{_LETTER})" r"|</?[A-Za-z][^<>]*>|\$?\{\w*\}|%\(\w+\)")
_MAX_MARKUP = 0.01
"""Largest share of texts with markup for which spaces beside apostrophes count as tokenisation."""
_MIN_COUNT, _MIN_SHARE = 5, 0.002
"""Minimum number of occurrences, and minimum share, of rarer forms that are reported."""
_MIN_SPACED = 50
_MIN_ALSO = 0.3
"""Minimum share of the words with a rarer mark that are also written with the usual one: 0.84 of Yoruba words with a
vertical line below. A language with both marks, such as transliterated Arabic, has few such pairs of words."""
_MIN_USED = 0.1
"""A validation text uses apostrophes if it has at least this share of the number that the training text predicts."""
_NUM_EXAMPLES, _CONTEXT = 3, 12
_MIN_EXPECTED, _MAX_SEEN = 20, 0.05
"""A letter is missing in a text if this many are expected by its share in the training text, and at most this share of
them occurs. Of 27 texts with the spelling of the text that they are compared with, none lacks a letter."""
_MIN_GAIN, _MIN_DEVIATIONS = 0.5, 3.0
"""Minimum excess of a letter over its expected number, so that it replaces a missing letter: this share of the missing
number, and this many standard deviations."""
_MIN_GAIN_WITHOUT_MARKS = 0.15
"""Minimum excess of a letter without marks, relative to its expected number. Because of their subjects, texts of one
language differ by up to 8 % in the number of a letter."""
_MAX_FOREIGN = 0.02
"""Largest share of a letter in another language that does not need it, but has it in names."""
_MAX_APOSTROPHES = 0.1
"""A text leaves apostrophes out if it has at most this share of the number that the training text predicts."""
_MARKS = "\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff"
_MARKED_LETTER = re.compile(rf"[^\W\d_][{_MARKS}]*")
_WITH_MARKS = re.compile(rf".[{_MARKS}]*")
_ANY_APOSTROPHE = re.compile(rf"[{ALL_APOSTROPHES}ʾʿ‛ˈ]|&apos;|&#39;")
_PUNCTUATION = '.,;:!?"“”«»()'


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
    """Characters that the texts of one language spell in several forms; a rare slip is not reported."""
    inside, spaced = _count_apostrophes(texts)
    has_markup = sum(_MARKUP.search(text) is not None for text in texts) > _MAX_MARKUP * len(texts)
    is_split = spaced.total() >= max(_MIN_SPACED, inside.total() + 1) and not has_markup
    forms = inside + spaced if is_split else inside
    mixed = []
    if forms.total() - max(forms.values(), default=0) >= max(_MIN_COUNT, _MIN_SHARE * forms.total()):
        ranked = dict(forms.most_common())
        mixed.append(MixedSpelling("apostrophes", ranked, _examples(texts, INSIDE, [*ranked][1:])))
    if is_split:  # An apostrophe that begins some words, as in Wixarika, is more often inside of them.
        counts = {"inside a word": inside.total(), "after a space": spaced.total()}
        mixed.append(MixedSpelling("joined_apostrophes", counts, _examples(texts, _SPACED, [*spaced])))
    return mixed


def spellings_to_normalize(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[str]:
    """Values of `tokenizer.normalize` that suit the training and the validation text of each language.

    Apostrophes become `'` only if no language mostly uses another character: in its validation text or, if that has
    none, in its training text.
    """
    options = dict.fromkeys(mixed.option for train, valid in sides for mixed in mixed_spellings([*train, *valid]))
    return [option for option in options if option != "apostrophes" or not kept_apostrophes(sides)]


def kept_apostrophes(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[tuple[int, str, bool]]:
    """Languages whose apostrophe is mostly a character other than `'`, by index, with it.

    The last value is true if the validation text decides, and false if the training text does.
    """
    used = [(index, *_most_frequent_apostrophe(*texts)) for index, texts in enumerate(sides)]
    return [(index, mark, is_valid) for index, mark, is_valid in used if mark not in (None, "'")]


def _most_frequent_apostrophe(train: Sequence[str], valid: Sequence[str]) -> tuple[str | None, bool]:
    """The most frequent apostrophe of the validation text (true) or, if it has hardly any, of the training text."""
    in_train, in_valid = (sum(_count_apostrophes(texts), Counter[str]()) for texts in (train, valid))
    scale = sum(map(len, valid)) / max(1, sum(map(len, train)))
    is_used = in_valid.total() >= max(_MIN_COUNT, _MIN_USED * scale * in_train.total())
    forms = in_valid if is_used else in_train
    return (forms.most_common(1)[0][0] if forms.total() >= _MIN_COUNT else None), is_used


def _count_apostrophes(texts: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """Number of each apostrophe inside words, and inside with a space before it.

    Backticks of a text with markup, which come in pairs, are no apostrophes.
    """
    inside, spaced = Counter[str](), Counter[str]()
    for text in texts:
        inside.update(mark for mark in INSIDE.findall(text) if mark != "`" or not _MARKUP.search(text))
        if not _CLOSING.search(text):  # With a closing mark, the apostrophes may be quotation marks.
            spaced.update(map(str.strip, _SPACED.findall(text)))
    return inside, spaced


def _examples(texts: Sequence[str], pattern: regex.Pattern[str], forms: Sequence[str]) -> tuple[str, ...]:
    matches = (match for text in texts for match in pattern.finditer(text) if match[0].strip() in forms)
    places = ((match.string, match.start()) for match in islice(matches, _NUM_EXAMPLES))
    return tuple(text[max(0, place - _CONTEXT) : place + _CONTEXT].strip() for text, place in places)


@dataclass(frozen=True)
class OtherLetter:
    """Letter of a training text that is mostly written otherwise, or apostrophe that the compared text leaves out."""

    old: str
    new: str
    """Empty for an apostrophe that is left out."""
    share: float
    """Share among the letters in distinct words of the training text; for an apostrophe, share among all characters."""
    words: tuple[str, ...]
    """Distinct words of the training text with the old letter, sorted."""

    @property
    def marks(self) -> tuple[str, str]:
        """Marks that the old letter alone has, and marks that the new one alone has."""
        (_, old), (_, new) = (_parts(letter) if letter else ("", frozenset[str]()) for letter in (self.old, self.new))
        return "".join(sorted(old - new)), "".join(sorted(new - old))


def examples_of(words: Sequence[str]) -> list[str]:
    """Some of the words, evenly spread, without punctuation around them."""
    return [word.strip(_PUNCTUATION) for word in words[:: len(words) // _NUM_EXAMPLES + 1]]


def other_letters(train: Sequence[str], compared: Sequence[str]) -> list[OtherLetter]:
    """Letters of a training text that another text in the same language, or most of the text, writes as other letters.

    These are letters with marks that the other text never has, if it has the letter with other marks or without marks
    instead, such as Guarani `tetã` and `tetâ`; apostrophes, if it has none, or always has another apostrophe; and
    letters with a mark that looks like the usual one, such as Yoruba `e̩` beside `ẹ`.
    """
    words = _distinct_words(train)
    counts, compared_counts = _count_letters(words), _count_letters(_distinct_words(compared))
    share = _share_of_apostrophes(train)
    letters = _with_usual_marks(train, compared) | _substitutes(counts, compared_counts)
    replaced = {old: (new, counts[old] / counts.total()) for old, new in letters.items()}
    replaced |= {old: (new, share) for old, new in _apostrophes(words, train, compared).items()}
    return [
        OtherLetter(old, new, share, tuple(sorted(word for word in words if old in word)))
        for old, (new, share) in sorted(replaced.items())
    ]


def letters_to_replace(sides: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, str]:
    """Value of `tokenizer.letters` for the training text of each language and the text that it is compared with.

    A letter stays if another language has it in its compared text or, without such a text, in its training text.
    """
    texts = [compared or train for train, compared in sides]
    counts = [_count_letters(_distinct_words(side)) for side in texts]
    shares = [_share_of_apostrophes(side) for side in texts]

    def has(number: int, letter: OtherLetter) -> bool:
        limit = _MAX_FOREIGN * letter.share
        if letter.old in ALL_APOSTROPHES:
            return shares[number] > limit
        return counts[number][letter.old] > limit * counts[number].total()

    replaced: dict[str, str] = {}
    for index, (train, compared) in enumerate(sides):
        for letter in other_letters(train, compared):
            if not any(has(number, letter) for number in range(len(sides)) if number != index):
                replaced.setdefault(letter.old, letter.new)
    return {old: new for old, new in replaced.items() if new not in replaced}


def _with_usual_marks(train: Sequence[str], compared: Sequence[str]) -> dict[str, str]:
    """Letters of a training text with a mark that looks like the usual one, and the letters with the usual one."""
    texts = [Counter(unicodedata.normalize("NFD", " ".join(side)).lower().split()) for side in (train, compared)]
    words = texts[0] + texts[1]
    replaced: dict[str, str] = {}
    for family in LOOK_ALIKE_MARKS:
        here, there = (
            Counter({mark: sum(number * word.count(mark) for word, number in side.items()) for mark in family})
            for side in texts
        )
        usual = max(family, key=(there if there.total() >= _MIN_COUNT else here).__getitem__)
        for mark in family.replace(usual, ""):
            marked = {word: number for word, number in texts[0].items() if mark in word}
            also = sum(number for word, number in marked.items() if words[word.replace(mark, usual)])
            is_enough = here[mark] >= max(_MIN_COUNT, _MIN_SHARE * here.total())
            if is_enough and also >= _MIN_ALSO * sum(marked.values()):
                letters = {letter for word in marked for letter in _MARKED_LETTER.findall(word) if mark in letter}
                replaced |= {letter: letter.replace(mark, usual) for letter in sorted(letters)}
    return {unicodedata.normalize("NFC", old): unicodedata.normalize("NFC", new) for old, new in replaced.items()}


def _distinct_words(texts: Sequence[str]) -> set[str]:
    return {word for text in texts for word in unicodedata.normalize("NFC", text).lower().split()}


def _count_letters(words: Iterable[str]) -> Counter[str]:
    return Counter(letter for word in words for letter in _MARKED_LETTER.findall(word))


def _parts(letter: str) -> tuple[str, frozenset[str]]:
    """Base of a letter, and its marks. A letter composed of other parts, as in Korean, has no marks."""
    parts = unicodedata.normalize("NFD", letter)
    return (parts[0], frozenset(parts[1:])) if _WITH_MARKS.fullmatch(parts) else (letter, frozenset())


def _substitutes(counts: Counter[str], compared_counts: Counter[str]) -> dict[str, str]:
    """For letters with marks that the compared text lacks, the letters that replace them.

    First, the same letter with fewer marks is tried. Then a letter with other marks is tried, if only one letter with
    the same base is still unexplained. The excess of a letter explains missing letters only once.
    """
    scale = compared_counts.total() / max(1, counts.total())
    expected = {letter: scale * count for letter, count in counts.items()}
    gains = {letter: count - expected.get(letter, 0) for letter, count in compared_counts.items()}
    missing = [
        letter
        for letter in sorted(expected, key=expected.__getitem__, reverse=True)
        if _parts(letter)[1]
        and expected[letter] >= _MIN_EXPECTED
        and compared_counts[letter] <= _MAX_SEEN * expected[letter]
    ]
    substitutes: dict[str, str] = {}
    for with_fewer in (True, False):
        bases = Counter(_parts(old)[0] for old in missing if old not in substitutes)
        for old in [letter for letter in missing if letter not in substitutes]:
            base, marks = _parts(old)
            rivals = [new for new in gains if _parts(new)[0] == base and (_parts(new)[1] < marks) == with_fewer]
            enough = [new for new in rivals if new != old and _is_enough(new, expected[old], gains, expected)]
            if enough and (with_fewer or bases[base] == 1):
                new = max(enough, key=lambda letter: (len(_parts(letter)[1]) if with_fewer else 0, gains[letter]))
                substitutes[old] = new
                gains[new] -= expected[old]
    return substitutes


def _is_enough(new: str, missing: float, gains: Mapping[str, float], expected: Mapping[str, float]) -> bool:
    before = expected.get(new, 0)
    least = max(_MIN_GAIN * missing, _MIN_DEVIATIONS * sqrt(max(before, missing)))
    return gains[new] >= (least if _parts(new)[1] else max(least, _MIN_GAIN_WITHOUT_MARKS * before))


def _apostrophes(words: set[str], train: Sequence[str], compared: Sequence[str]) -> dict[str, str]:
    """Replacement of each apostrophe inside words of a training text; empty if the compared text has no apostrophes.

    Among the apostrophes of the compared text, only letters such as `ꞌ` count, which are never quotation marks. The
    result is empty if the training text has these letters too, because `tokenizer.normalize` makes mixed forms equal.
    """
    here, there = (
        Counter(mark for word in side for mark in INSIDE.findall(word)) for side in (words, _distinct_words(compared))
    )
    expected = sum(map(len, compared)) / max(1, sum(map(len, train))) * here.total()
    if expected < _MIN_EXPECTED:
        return {}
    if _share_of_apostrophes(compared) <= _MAX_APOSTROPHES * _share_of_apostrophes(train):
        return dict.fromkeys(here, "")
    ((new, number),) = there.most_common(1) or [("'", 0)]
    is_other = (
        unicodedata.category(new)[0] == "L"
        and here[new] <= _MAX_SEEN * here.total()
        and number >= max((1 - _MAX_SEEN) * there.total(), _MIN_GAIN * expected)
    )
    return {old: new for old in here if old != new} if is_other else {}


def _share_of_apostrophes(texts: Sequence[str]) -> float:
    return sum(len(_ANY_APOSTROPHE.findall(text)) for text in texts) / max(1, sum(map(len, texts)))
