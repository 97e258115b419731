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
        rf"(?<![^\s(\[\"'/>-])(?:(?P<first>{sign}(?=\p{{Lu}}))|{sign}|{inside}{sign}(?=\p{{Ll}}))(\p{{L}}){_AFTER}"
    )
    for sign, inside in _INSIDE.items()
}
_LONGEST = 120
_AT_END = {sign: regex.compile(rf"\s?\({sign}\p{{L}}\)") for sign in _SIGNS}
"""A sign in brackets after a label of wide characters: `文件(&F)`."""
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
        if not letters or self.sign in text.replace(2 * self.sign, ""):
            return text
        starts = [place for place in letters if place == 0 or not text[place - 1].isalnum()] or letters
        same = (place for place in (*starts, *letters) if text[place].casefold() == self.letter.casefold())
        place = next(same, None)
        if place is None and _WIDE.match(text[starts[0]]):
            end = len(text.rstrip(" .:…。："))
            return f"{text[:end]}({self.sign}{self.letter.upper()}){text[end:]}"
        place = starts[0] if place is None else place
        return text[:place] + self.sign + text[place:]


def accelerators_in(lines: Iterable[str], labels: Iterable[str], marks: InlineMarks) -> Mapping[str, Accelerator]:
    """Accelerators of lines by the sign that all `labels` of the document have, that before most capital letters."""
    matches = ((sign, _match(label, sign, marks)) for label in labels for sign in _SIGNS)
    votes = Counter(sign for sign, match in matches if match and match["first"])
    if not votes:
        return {}
    sign, accelerators = votes.most_common(1)[0][0], dict[str, Accelerator]()
    for line in lines:
        if match := _match(line, sign, marks):
            at_end = _AT_END[sign].search(line)
            start, end = at_end.span() if at_end else (match.start(2) - 1, match.start(2))
            accelerators[line] = Accelerator(line[:start] + line[end:], sign, match[2])
    return accelerators


def _match(label: str, sign: str, marks: InlineMarks) -> regex.Match[str] | None:
    """The only sign of a label before a letter, outside of placeholders."""
    if sign not in label or len(label) > _LONGEST:
        return None
    for start, end in marks.spans(label):
        label = label[:start] + " " * (end - start) + label[end:]
    label = label.replace(2 * sign, "  ")
    return _SIGNS[sign].search(label) if label.count(sign) == 1 else None
