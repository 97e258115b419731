"""Text of a segment whose inline codes (native markup, placeholders) are dropped or kept.

Codes are the elements `bpt`, `ept`, `it`, `ph` and `ut` of TMX, and `bx`, `ex` and `x` of XLIFF. All other elements
(`hi`, `g`) only mark text, which is kept.
"""

from __future__ import annotations

import re
import unicodedata
from xml.etree.ElementTree import Element

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
    """Text of an element `seg`.

    A dropped code becomes a space between two letters or digits, because line breaks and placeholders separate words:
    `Press<ph/>the`. Pairs such as bold text do not separate (`un<bpt/>believ<ept/>able`), unless their content is a
    line break or a block, such as `</p>`. Scripts without spaces get none.
    """

    def __init__(self, segment: Element, keep_codes: bool = False) -> None:
        self.num_codes = 0
        """Number of dropped codes with content, and of placeholders without content."""
        self.first_code = ""
        self._keep = keep_codes
        self._parts: list[str] = []  # Not empty.
        self._has_gap = False
        self._add_element(segment)
        self.text = "".join(self._parts)

    def _add_element(self, element: Element) -> None:
        self._add_text(element.text or "")
        for child in element:
            (self._add_code if child.tag in _CODES else self._add_element)(child)
            self._add_text(child.tail or "")

    def _add_code(self, code: Element) -> None:
        content = "".join(code.itertext())
        if content.strip() and self._keep:
            return self._add_text(content)
        if content.strip() or code.tag in _PLACEHOLDERS:  # Trados writes placeholders without their content.
            self.num_codes += 1
            self.first_code = self.first_code or content.strip() or f"<{code.tag}/>"
        is_break = code.tag not in _PAIRED or code.get("type", "").lower() in _BREAK_TYPES
        self._has_gap |= is_break or bool(_BREAK.match(content)) or content != content.strip()

    def _add_text(self, text: str) -> None:
        if self._has_gap:
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
