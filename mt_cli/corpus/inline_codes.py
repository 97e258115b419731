"""Text of a segment whose inline codes (native markup, placeholders) are left out or kept.

Codes are the elements `bpt`, `ept`, `it`, `ph` and `ut` of TMX, and `bx`, `ex` and `x` of XLIFF. All other elements
(`hi`, `g`) only mark text, which is kept.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from mt_cli.corpus.languages import SPACELESS

_PAIRED = frozenset(("bpt", "ept", "bx", "ex"))
_CODES = _PAIRED | {"it", "ph", "ut", "x"}
_PLACEHOLDERS = frozenset(("ph", "x"))
_BREAK = re.compile(
    r"\W*(?:br|p|div|li|ul|ol|dl|dt|dd|table|tr|td|th|h[1-6]|hr|pre|blockquote|section|lb|pb|par|line|tab|page|sect)"
    r"(?![^\W_])",
    re.IGNORECASE,
)
"""Native markup that breaks a line or begins a block."""
_BREAK_TYPES = frozenset(("lb", "pb", "x-lb", "x-pb", "struct"))
"""Values of the attribute `type` for such markup."""
_CLOSING = frozenset(",.;:!?…)]}、。，．；：！？）】」』")
_SENTENCE_END = frozenset(".!?…,;:")
_SPACELESS = re.compile(f"[{SPACELESS}]")


class SegmentText:
    """Text of one segment, built from the events of an XML parser.

    A code that is left out becomes a space where it stood between two letters or digits, because line breaks and
    placeholders separate words: `Press<ph/>the`. Pairs such as bold text do not separate (`un<bpt/>believ<ept/>able`),
    unless their content is a line break or a block, such as `</p>`. Scripts without spaces get none.
    """

    def __init__(self, keep_codes: bool) -> None:
        self.num_codes = 0
        """Number of codes with content that was left out, and of placeholders without content."""
        self.first_code = ""
        self._keep = keep_codes
        self._depth = 0  # Elements open inside a code, itself included.
        self._parts: list[str] = []  # Not empty.
        self._content: list[str] = []
        self._has_gap = False
        self._is_break = False
        self._name = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Open an element inside the segment."""
        if self._depth or name in _CODES:
            if not self._depth:
                self._content.clear()
                self._name = name
                self._is_break = name not in _PAIRED or attributes.get("type", "").lower() in _BREAK_TYPES
            self._depth += 1

    def end(self) -> None:
        """Close the innermost element."""
        if self._depth:
            self._depth -= 1
            if not self._depth:
                self._end_code()

    def characters(self, text: str) -> None:
        """Add text of the segment or of a code."""
        if self._depth:
            self._content.append(text)
        elif self._has_gap:
            self._close_gap(text)
        elif text:
            self._parts.append(text)

    def _end_code(self) -> None:
        content = "".join(self._content)
        if content.strip():
            if self._keep:
                return self.characters(content)
            self.num_codes += 1
            self.first_code = self.first_code or content.strip()
        elif self._name in _PLACEHOLDERS:  # As Trados writes them: what they stand for is not in the file.
            self.num_codes += 1
            self.first_code = self.first_code or f"<{self._name}/>"
        self._has_gap |= self._is_break or bool(_BREAK.match(content)) or content != content.strip()

    def _close_gap(self, text: str) -> None:
        before = self._parts[-1][-1] if self._parts else ""
        if before.isspace():
            if text[:1] in _CLOSING:
                self._remove_last_spaces()
            text = text.lstrip()
        elif text and _is_separated(before, text[0]):
            text = f" {text}"
        if text:
            self._parts.append(text)
            self._has_gap = False

    def _remove_last_spaces(self) -> None:
        while self._parts:
            if last := self._parts.pop().rstrip():
                return self._parts.append(last)


def _is_separated(before: str, after: str) -> bool:
    """Whether a space belongs between two characters that stood on both sides of a code."""
    if not (before and _is_of_word(after)) or _SPACELESS.match(before) or _SPACELESS.match(after):
        return False
    return _is_of_word(before) or (before in _SENTENCE_END and after.isalpha())


def _is_of_word(character: str) -> bool:
    """Whether a character is a letter, a digit, or a mark on one."""
    return unicodedata.category(character)[0] in "LNM"
