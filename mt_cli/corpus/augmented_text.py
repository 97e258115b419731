"""Changes that make training pairs resemble what people type: capitals, typing errors, inserted words.

Reserved characters of protected spans are never changed. The kinds of change, except inserted words, are those of
Bogoychev et al. 2023, "OpusCleaner and OpusTrainer".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import normalize

import numpy as np
import regex
from numpy.typing import NDArray

from mt_cli.config.corpora import AugmentConfig
from mt_cli.corpus.languages import SPACELESS, primary
from mt_cli.corpus.rows import Pair

NUM_CHANCES = 5
"""Number of random numbers that decide on the changes of a pair."""
_FINAL_MARKS = re.compile(r"(?<=\S)(?:(?<!\S[{0}])|(?=\s))\s*+[{0}]++\s*$".format(".!?…।॥۔؟。！？։።፧။។៕།"))
_LETTERS_OF_WORD = regex.compile(rf"[^\W\d_{SPACELESS}]{{4,}}")
_FIRST_LETTER = regex.compile(r"(?<![\w\p{M}'’\xad])\p{L}")
_WORD_START = re.compile(rf"(?:^|(?<= ))(?=[^ {SPACELESS}])")
_SENTENCE_START = re.compile(r"(?:^|[.!?…]\s)[\W_]*+([^\W\d_])?")
_DOTTED_I = frozenset({"az", "crh", "tr"})
"""Languages in which the capital of `i` is `İ`."""
_WITHOUT_ACCENTS = str.maketrans("ΆΈΉΊΌΎΏ", "ΑΕΗΙΟΥΩ", "\u0301")
_NOT_GEORGIAN = re.compile("[^ა-ჿ]+")
_SHARE_OF_TYPOS = 0.1
"""Share of further words with a typing error in a text that has one."""


@dataclass(frozen=True)
class TextAugmentation:
    """Random changes of pairs, with the share of the pairs that each kind of change affects."""

    config: AugmentConfig
    inserted: float = 0.0
    words: Sequence[str] = ()
    """Words, one of which is inserted on both sides of the share `inserted` of the pairs."""

    def is_changed(self, chances: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mask of the pairs that these random numbers from 0 to 1, NUM_CHANCESxB, choose for a change."""
        config = self.config
        case = config.upper_case + config.title_case
        shares = np.array([self._share_of_words, config.typos, config.no_final_punctuation, case, 0.0])
        return np.asarray((chances < shares[:, None]).any(axis=0))

    @property
    def _share_of_words(self) -> float:
        return self.inserted if self.words else 0.0

    def change(
        self, pair: Pair, chances: Sequence[float], languages: Sequence[str], random: np.random.Generator
    ) -> Pair:
        """Change a pair, without a tag, in the languages of its sides; `chances` are its NUM_CHANCES numbers."""
        config, (word, typos, marks, case, place) = self.config, chances
        if word < self._share_of_words:
            chosen = self.words[int(word / self._share_of_words * len(self.words))]
            pair = insert(pair, chosen, place)
        if typos < config.typos:
            pair = with_typos(pair[0], random), pair[1]
        if marks < config.no_final_punctuation:
            pair = without_final_marks(pair)
        return self.capitalised(pair, case, languages)

    def capitalised(self, pair: Pair, chance: float, languages: Sequence[str]) -> Pair:
        """Pair with other capitals on both sides if its random number says so."""
        if chance >= self.config.upper_case + self.config.title_case:
            return pair
        change = upper if chance < self.config.upper_case else title
        return change(pair[0], languages[0]), change(pair[1], languages[1])


def upper(text: str, language: str) -> str:
    """Text in capital letters: Greek ones without accents; Georgian stays, because many fonts lack its capitals."""
    text = _NOT_GEORGIAN.sub(lambda match: match[0].upper(), _dotted(text, language))
    return normalize("NFC", text.translate(_WITHOUT_ACCENTS)) if primary(language) == "el" else text


def is_in_capitals(text: str) -> bool:
    """True if a text has three words of two capital letters or more, and no small letter."""
    words = (match[0] for match in regex.finditer(r"[^\W\d_]{2,}", text))
    return text == text.upper() and sum(word.isupper() for word in words) >= 3


def lower(text: str, language: str) -> str:
    """Text of the same length in small letters, but for the first letter of each sentence."""
    small = text.replace("İ", "i").replace("I", "ı") if primary(language) in _DOTTED_I else text
    if len(small.lower()) == len(text):
        small = small.lower()
    else:
        small = "".join(character.lower() if len(character.lower()) == 1 else character for character in small)
    letters = list(small)
    for match in _SENTENCE_START.finditer(text):
        if match[1]:
            letters[match.start(1)] = match[1]
    return "".join(letters)


def title(text: str, language: str) -> str:
    return _FIRST_LETTER.sub(lambda match: _dotted(match[0], language).title(), text)


def _dotted(text: str, language: str) -> str:
    """Text with `İ` for `i` in languages with this capital."""
    return text.replace("i", "İ") if primary(language) in _DOTTED_I else text


def without_final_marks(pair: Pair) -> Pair:
    """Pair without the marks that end both of its sides, such as full stops; unchanged if only one side has them."""
    source, target = (_FINAL_MARKS.sub("", text) for text in pair)
    return (source, target) if source != pair[0] and target != pair[1] else pair


def insert(pair: Pair, word: str, place: float) -> Pair:
    """Pair with a word before a word of each side, at a relative place from 0 to 1.

    A side of a script without spaces has a place only after a space; the pair is unchanged if a side has none.
    """
    starts = [[match.start() for match in _WORD_START.finditer(text)] for text in pair]
    if not all(starts):
        return pair
    chosen = [places[int(place * len(places))] for places in starts]
    source, target = (f"{text[:start]}{word} {text[start:]}" for text, start in zip(pair, chosen, strict=True))
    return source, target


def with_typos(text: str, random: np.random.Generator) -> str:
    """Text with a typing error in one of its words of four letters or more, and in a tenth of the others.

    Two letters are exchanged, or a letter is left out, doubled or replaced by a letter of the text. The first letter of
    a word stays. Scripts without spaces between words have no such words.
    """
    words = list(_LETTERS_OF_WORD.finditer(text))
    if not words:
        return text
    number = 1 + int(random.binomial(len(words) - 1, _SHARE_OF_TYPOS))
    letters = "".join(match[0] for match in words)
    for index in sorted(random.permutation(len(words))[:number].tolist(), reverse=True):
        start, end = words[index].span()
        text = text[:start] + _mistyped(text[start:end], letters, random) + text[end:]
    return text


def _mistyped(word: str, letters: str, random: np.random.Generator) -> str:
    place, kind = int(random.integers(1, len(word) - 1)), int(random.integers(4))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    other = letters[int(random.integers(len(letters)))]
    doubled = before + 2 * letter + after
    typed = (before + after[0] + letter + after[1:], before + after, before + other + after, doubled)[kind]
    return typed if typed != word else doubled
