"""Text of a segment without inline codes (native markup, placeholders).

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


def text_of_segment(segment: Element) -> tuple[str, list[str]]:
    """Text of an element, and the content of its dropped codes; placeholders without content are `<ph/>`.

    A dropped code becomes a space between two letters or digits, because line breaks and placeholders separate words:
    `Press<ph/>the`. Pairs such as bold text do not separate (`un<bpt/>believ<ept/>able`), unless their content is a
    line break or a block, such as `</p>`. Scripts without spaces get none.
    """
    if not len(segment):
        return segment.text or "", []
    codes = list[str]()
    return _GAP.sub(_without_gap, "".join(_parts_of(segment, codes))), codes


def _parts_of(element: Element, codes: list[str]) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag not in _CODES:
            yield from _parts_of(child, codes)
        else:
            content = "".join(child.itertext())
            if content.strip() or child.tag in ("ph", "x"):  # Trados writes placeholders without their content.
                codes.append(content.strip() or f"<{child.tag}/>")
            is_break = child.tag not in _PAIRED or child.get("type", "").lower() in _BREAK_TYPES
            yield "\0" if is_break or _BREAK.match(content) or content != content.strip() else ""
        yield child.tail or ""


def _without_gap(match: re.Match[str]) -> str:
    """Space in place of dropped codes, or nothing."""
    before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    if not match[0].strip("\0"):
        return " " if _is_separated(before, after) else ""
    return "" if match[0].endswith("\0") and after in ",.;:!?…)]}、。，．；：！？）】」』" else " "


def _is_separated(before: str, after: str) -> bool:
    """True if a space belongs between two characters that stood on both sides of a code."""
    if not (before and after and is_of_word(after)) or _SPACELESS.match(before) or _SPACELESS.match(after):
        return False
    return is_of_word(before) or (before in ".!?…,;:" and after.isalpha())
