"""Text of a segment whose inline codes (native markup, placeholders) are dropped or kept.

Codes are the elements `bpt`, `ept`, `it`, `ph` and `ut` of TMX, and `bx`, `ex`, `x`, `sc` and `ec` of XLIFF. All
other elements (`hi`, `g`, `pc`) only mark text, which is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from mt_cli.corpus.languages import SPACELESS
from mt_cli.corpus.rows import is_of_word

_PAIRED = frozenset(("bpt", "ept", "bx", "ex", "sc", "ec"))
_CODES = _PAIRED | {"it", "ph", "ut", "x"}
_BREAK = re.compile(
    r"\W*(?:br|p|div|li|ul|ol|dl|dt|dd|table|tr|td|th|h[1-6]|hr|pre|blockquote|section|lb|pb|par|line|tab|page|sect)"
    r"(?![^\W_])",
    re.IGNORECASE,
)
"""Native markup that breaks a line or begins a block."""
_BREAK_TYPES = frozenset(("lb", "pb", "x-lb", "x-pb", "struct"))
"""Values of the attribute `type` for such markup."""
_GAP = re.compile(r"(?:(?<!\s)\s++)?+\0[\s\0]*")
"""Dropped codes, as NUL characters, and the white space around them."""
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
        self.text = _GAP.sub(_without_gap, "".join(self._parts_of(segment)))

    def _parts_of(self, element: Element) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            if child.tag in _CODES:
                yield self._part_of_code(child)
            else:
                yield from self._parts_of(child)
            yield child.tail or ""

    def _part_of_code(self, code: Element) -> str:
        content = "".join(code.itertext())
        if content.strip() and self._keep:
            return content
        if content.strip() or code.tag in ("ph", "x"):  # Trados writes placeholders without their content.
            self.num_codes += 1
            self.first_code = self.first_code or content.strip() or f"<{code.tag}/>"
        is_break = code.tag not in _PAIRED or code.get("type", "").lower() in _BREAK_TYPES
        return "\0" if is_break or _BREAK.match(content) or content != content.strip() else ""


def _without_gap(match: re.Match[str]) -> str:
    """Space in place of dropped codes, or nothing."""
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    if not match[0].strip("\0"):
        return " " if _is_separated(before, after) else ""
    return "" if match[0].endswith("\0") and after in ",.;:!?…)]}、。，．；：！？）】」』" else " "


def _is_separated(before: str, after: str) -> bool:
    """Whether a space belongs between two characters that stood on both sides of a code."""
    if not (before and after and is_of_word(after)) or _SPACELESS.match(before) or _SPACELESS.match(after):
        return False
    return is_of_word(before) or (before in ".!?…,;:" and after.isalpha())
