"""Sentences and words of a text, by the marks of all scripts and the abbreviations of a language.

`abbreviations.tsv` has the words with a full stop that do not end a sentence, and words that often begin one, in small
letters; several languages may share a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.languages import primary

_MARKS, _GREEK_MARKS, _ALONE, _SPACED = ".!?…", ";\u037e", "。！？។៕။", "।॥؟۔።፧།"
"""Marks of most scripts, further ones of Greek, those that need no space after them, and those of other scripts."""
_ENDS = r"""(?<=[{marks}])["'“”’»)\]]*(?:[\ \u00a0]»)?\ +(?=[^\w\s]*\w)   # a mark, a space, a word
      | (?<=[{alone}])\ *(?=[^{alone}」』”’）\s])
      | (?<=[{spaced}])\ +
      | (?<=։)\ *(?=\S)"""
_SENTENCE_END, _GREEK_SENTENCE_END = (
    re.compile(_ENDS.format(marks=marks, alone=_ALONE, spaced=_SPACED), re.VERBOSE)
    for marks in (_MARKS, _MARKS + _GREEK_MARKS)
)
_ANY_MARK = re.compile(f"[{_MARKS}{_GREEK_MARKS}{_ALONE}{_SPACED}։]")
_BEFORE_TOKEN = re.compile(r"[\s(\[\"'“”„«]")
_NEXT_WORD = re.compile(r"[^\w\s]*(\w+(?:['’]\w+)?)")
_INITIALS = re.compile(r"(?:\w{1,2}[.-]+)+\w{1,2}|[^\W\d]")
_LONGEST_NO_END = 16
_QUESTION = re.compile(r"[?？؟፧;\u037e][\"'“”’»)\]」』）]*$")
_FEWEST = 0.01
"""Fraction of training sources from which on a model has learned their kind."""

_ORDINALS = "bs cs da de et fi fo hr hu is lb lt lv nb nn no pl sk sl sr tr"
_WITH_ORDINALS = frozenset(_ORDINALS.split())
_FILLERS = "\u115f\u1160\u3164\uffa0"
"""Letters of Unicode that are invisible."""
_KEYCAP = re.compile("[0-9#*]\ufe0f?\u20e3")


class Abbreviations(NamedTuple):
    """Words before a full stop in small letters, and what follows it."""

    never: frozenset[str]
    """Titles and the like, which are always followed by more of the sentence."""
    before_numbers: frozenset[str]
    """References such as `fig`, which are followed by a number."""
    seldom: frozenset[str]
    """Words that end a sentence only before a word that begins one."""
    starters: frozenset[str]
    """Words that begin sentences and, in the middle of one, have small letters."""
    has_ordinals: bool = False
    """True if a number with a full stop may be an ordinal."""
    is_greek: bool = False
    """True if `;` is the question mark."""


@cache
def _table() -> tuple[dict[str, Abbreviations], Abbreviations]:
    """Abbreviations by language, and those of all languages together, for languages that are not listed."""
    text = Path(__file__).with_name("abbreviations.tsv").read_text(encoding="utf-8")
    codes, *words = zip(*(line.split("\t") for line in text.splitlines()[1:]), strict=True)
    rows = list(zip(*words, strict=True))
    by_language = {code: _together([row]) for group, row in zip(codes, rows, strict=True) for code in group.split()}
    return by_language, _together(rows)


def _together(rows: Iterable[Sequence[str]]) -> Abbreviations:
    never, before_numbers, seldom, starters = (frozenset(" ".join(words).split()) for words in zip(*rows, strict=True))
    return Abbreviations(never, before_numbers, seldom, starters)


@cache
def abbreviations_of(language: str) -> Abbreviations:
    code = primary(language) if language else ""
    by_language, others = _table()
    words = by_language.get(code, others)
    return words._replace(has_ordinals=not code or code in _WITH_ORDINALS, is_greek=code in ("el", "grc"))


def has_letters(text: str) -> bool:
    """True if a text has a visible letter, of any script."""
    return any(character.isalpha() and character not in _FILLERS for character in text)


def has_words(text: str) -> bool:
    """True if a text has letters or digits; symbols with digits such as 1\ufe0f\u20e3 are symbols."""
    return any(map(_is_word_character, _KEYCAP.sub("", text) if "\u20e3" in text else text))


def _is_word_character(character: str) -> bool:
    return character.isalnum() and character not in _FILLERS


def first_word(text: str) -> int:
    """Index of the first letter or digit; the length of the text if there is none."""
    return next((index for index, character in enumerate(text) if _is_word_character(character)), len(text))


def last_word(text: str) -> int:
    """Index of the last letter or digit; -1 if there is none."""
    return len(text) - 1 - first_word(text[::-1])


class SentencesSeen(NamedTuple):
    """Fractions of training sources in which a sentence is followed by another one."""

    after_questions: float = 0.0
    after_others: float = 0.0

    @classmethod
    def of(cls, texts: Sequence[str], language: str) -> SentencesSeen:
        kinds = [{bool(_QUESTION.search(part)) for part, glue in sentences_of(text, language)[:-1]} for text in texts]
        return cls(*(sum(kind in of_text for of_text in kinds) / max(1, len(texts)) for kind in (True, False)))

    def with_other(self, other: SentencesSeen) -> SentencesSeen:
        return SentencesSeen(*map(max, self, other))

    def parts_of(self, text: str, language: str) -> list[tuple[str, str]]:
        """Parts of a text, each with the space that follows it, that are like the training sources.

        The text is whole if there are lines of several sentences in training. A question stays with its answer if there
        are such lines.
        """
        if self.after_others >= _FEWEST:
            return [(text, "")]
        parts: list[tuple[str, str]] = []
        has_question = False
        sentences = sentences_of(text, language)
        if len(sentences) == 1:
            return sentences
        for sentence, glue in sentences:
            is_question = bool(_QUESTION.search(sentence))
            if has_question and not is_question and self.after_questions >= _FEWEST:
                question, space = parts.pop()
                sentence = question + space + sentence
            parts.append((sentence, glue))
            has_question = is_question
        return parts


def sentences_of(text: str, language: str = "") -> list[tuple[str, str]]:
    """Sentences of a text in a language, each with the space that follows it.

    A full stop does not end a sentence after an initial, an abbreviation or, in languages that write them with a full
    stop, an ordinal number, unless the next word is one that begins sentences. Marks and emoji alone are not a
    sentence.
    """
    if _ANY_MARK.search(text, 0, len(text) - 1) is None:
        return [(text, "")]
    sentences, start = [], 0
    first, last = first_word(text), last_word(text)
    words = abbreviations_of(language)
    pattern = _GREEK_SENTENCE_END if words.is_greek else _SENTENCE_END
    for match in pattern.finditer(text):
        # Closing quotation marks and brackets belong to the sentence, the spaces after them do not.
        end = match.start() + len(match[0].rstrip(" "))
        if first < end and match.end() <= last and _is_end(text, start, match.start(), match.end(), words):
            sentences.append((text[start:end], text[end : match.end()]))
            start = match.end()
    return [*sentences, (text[start:], "")]


def _is_end(text: str, start: int, mark_end: int, next_start: int, words: Abbreviations) -> bool:
    """True if a mark ends the sentence that begins at `start`, by the words before and after the mark."""
    if text[mark_end - 1] not in _MARKS and text[mark_end - 1] not in _GREEK_MARKS:
        return True
    following = _NEXT_WORD.match(text, next_start)
    next_word = following[1] if following else ""
    if next_word[:1].islower():
        return False
    if text[mark_end - 1] != ".":
        return True
    token_start = max(start, mark_end - 1 - _LONGEST_NO_END)
    token = _BEFORE_TOKEN.split(text[token_start : mark_end - 1])[-1].lower()
    if token in words.never:
        return False
    is_number = next_word[:1].isdigit()
    if token.isdecimal():
        if not text[start : mark_end - 1 - len(token)].strip():  # Of a numbered list.
            return False
        is_doubtful = words.has_ordinals and len(token) <= 2
    elif token in words.before_numbers and is_number:
        return False
    else:
        is_doubtful = token in words.seldom or bool(_INITIALS.fullmatch(token))
    return not is_doubtful or next_word.lower() in words.starters
