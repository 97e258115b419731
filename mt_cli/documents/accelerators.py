"""Accelerators: signs before a letter of a program's label, as in `&File`, `Open _Recent` and `Save ~As`.

A model gets labels without the sign. It comes back before the same letter, or else before the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import regex

from mt_cli.translation.inline_marks import InlineMarks

_AFTER = r"(?!\w{0,30}[;=(_&~])"
_INSIDE = {"&": r"\p{L}+", "~": r"\p{L}+", "_": r"(?:\p{L}|\p{Lu}\p{Ll}+)"}
"""Letters before the sign in a word: with `_`, few names for programs, such as `user_name`, have this form."""
_SIGNS = {
    sign: regex.compile(
        rf"(?<![^\s(\[\"'/-])(?:(?P<first>{sign}(?=\p{{Lu}}))|{sign}|{inside}{sign}(?=\p{{Ll}}))(\p{{L}}){_AFTER}"
    )
    for sign, inside in _INSIDE.items()
}
_LONGEST = 80
_WIDE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")


class Accelerator(NamedTuple):
    """A label without its sign."""

    plain: str
    sign: str
    letter: str

    def put_back(self, text: str, marks: InlineMarks) -> str:
        """A translation of the label, with the sign. Labels of wide characters end with it, as in `文件(&F)`."""
        spans = marks.spans(text)
        letters = [
            place
            for place, character in enumerate(text)
            if character.isalpha() and not any(start <= place < end for start, end in spans)
        ]
        if not letters or self.sign in text:
            return text
        starts = [place for place in letters if place == 0 or not text[place - 1].isalnum()] or letters
        same = (place for place in (*starts, *letters) if text[place].casefold() == self.letter.casefold())
        place = next(same, None)
        if place is None and _WIDE.match(text[starts[0]]):
            end = len(text.rstrip(" .:…。："))
            return f"{text[:end]}({self.sign}{self.letter.upper()}){text[end:]}"
        place = starts[0] if place is None else place
        return text[:place] + self.sign + text[place:]


def accelerators_in(lines: Iterable[str]) -> Mapping[str, Accelerator]:
    """Accelerators of the labels of a document, which has one sign for all: that before most capital letters."""
    labels = [line for line in lines if len(line) <= _LONGEST]
    matches = {
        sign: {line: match for line in labels if line.count(sign) == 1 and (match := pattern.search(line))}
        for sign, pattern in _SIGNS.items()
    }
    votes = Counter(sign for sign, of_sign in matches.items() for match in of_sign.values() if match["first"])
    if not votes:
        return {}
    sign = votes.most_common(1)[0][0]
    return {line: Accelerator(line.replace(sign, ""), sign, match[2]) for line, match in matches[sign].items()}
