"""Sentences and words of a text, by the marks of all scripts."""

from __future__ import annotations

import re

from mt_cli.corpus.abbreviations import Abbreviations, abbreviations_of

_MARKS = ".!?…"
_ENDS = r"""(?<=[{marks}])["'“”’»)\]]*(?:[\ \u00a0]»)?\ +(?=[^\w\s]*\w)   # a mark, a space, a word
      | (?<=[。！？។៕။])\ *(?=[^。！？។៕။」』”’）\s])          # a mark that needs no space
      | (?<=[।॥؟۔።፧།])\ +
      | (?<=։)\ *(?=\S)"""
_SENTENCE_END = re.compile(_ENDS.format(marks=_MARKS), re.VERBOSE)
_GREEK_SENTENCE_END = re.compile(_ENDS.format(marks=_MARKS + ";\u037e"), re.VERBOSE)
_LAST_TOKEN = re.compile(r"[^\s(\[\"'“”„«]*$")
_NEXT_WORD = re.compile(r"[^\w\s]*(\w+(?:['’]\w+)?)")
_INITIALS = re.compile(r"(?:\w{1,2}[.-]+)+\w{1,2}|[^\W\d]")
_LONGEST_NO_END = 16

_FILLERS = "\u115f\u1160\u3164\uffa0"
"""Letters of Unicode that are invisible."""
_KEYCAP = re.compile("[0-9#*]\ufe0f?\u20e3")


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


def sentences_of(text: str, language: str = "") -> list[tuple[str, str]]:
    """Sentences of a text in a language, each with the space that follows it.

    A full stop does not end a sentence after an initial, an abbreviation or, in languages that write them with a full
    stop, an ordinal number, unless the next word is one that begins sentences. Marks and emoji alone are not a
    sentence.
    """
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
    if text[mark_end - 1] not in _MARKS and text[mark_end - 1] not in ";\u037e":
        return True
    following = _NEXT_WORD.match(text, next_start)
    next_word = following[1] if following else ""
    if next_word[:1].islower():
        return False
    if text[mark_end - 1] != ".":
        return True
    token_start = max(start, mark_end - 1 - _LONGEST_NO_END)
    token_match = _LAST_TOKEN.search(text[token_start : mark_end - 1])
    token = token_match[0].lower() if token_match else ""
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
