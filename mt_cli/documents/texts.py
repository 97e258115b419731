"""Texts of units: display width, lines of a width, and lines of equal length."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from unicodedata import east_asian_width

from mt_cli.corpus.sentences import has_letters
from mt_cli.runtime.console import display_width

SPACES = re.compile(r"[ \t\r\n\f\v]+")
"""Space that a line may be broken at; a no-break space is none."""
_SOFT_BREAKS = re.compile(r"(?:(?<![ \t])[ \t]++)?+(?:\r\n|\n|\r)[ \t]*")
_LINE_ENDS, _TABS = re.compile(r"(\r\n|\n|\r)"), re.compile(r"(\t)")
_BARS = re.compile(r"((?<!\|)\|(?!\|)(?![^{}]{0,80}\}|[^<>]{0,80}>))")
"""Bars outside of placeholders and tags."""
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half of a surrogate pair, which no encoding can write."""
SUBTITLE_TAG = re.compile(r"<[^<>]*+>|\{\\[^{}]*+\}")
_CLOSING = "、。，．・：；？！）」』】〕》〉ー…々ゃゅょっャュョッ"
"""Characters that begin no line."""
_DASHES = "-–—"
"""Characters that a speech begins with, so that no other line of a subtitle does."""


def lines_of(text: str, is_block: bool, has_forms: bool = False) -> list[str]:
    """Pieces of a text that are translated, without spaces at the ends: its lines, or all of a block.

    With `has_forms`, bars are between forms of a plural, as in Symfony and Vue (`no file|one file`), and tabs before
    the keys of a label (`Open`, tab, `Ctrl+O`).
    """
    return [stripped for part in _parts(text, is_block, has_forms)[::2] if (stripped := part.strip())]


def with_lines(text: str, is_block: bool, translations: Mapping[str, str], has_forms: bool = False) -> str:
    """Translation of a text from those of its lines, with what is between them."""
    if all(translations[line] == line for line in lines_of(text, is_block, has_forms)):
        return text
    parts = _parts(text, is_block, has_forms)
    for index, part in enumerate(parts[::2]):
        if stripped := part.strip():
            parts[2 * index] = part.replace(stripped, translations[stripped])
    return "".join(parts)


def _parts(text: str, is_block: bool, has_forms: bool) -> list[str]:
    """Pieces of a text, and the line end or bar after each of them but the last."""
    lines = [_SOFT_BREAKS.sub(" ", text)] if is_block else _LINE_ENDS.split(text)
    if not has_forms:
        return lines
    forms = (_BARS.split(part) for line in lines for part in _TABS.split(line))
    return [part for parts in forms for part in (parts if all(map(_is_form, parts[::2])) else ["".join(parts)])]


def _is_form(text: str) -> bool:
    """True for a text between bars, unless they are within brackets, code or an address."""
    is_whole = all(text.count(left) == text.count(right) for left, right in _BRACKETS) and text.count("`") % 2 == 0
    return is_whole and has_letters(text) and "://" not in text


def one_line(text: str) -> str:
    return SPACES.sub(" ", text).strip(" ")


def wrapped(words: Sequence[str], width: int, first: str = "", rest: str = "") -> list[str]:
    """Lines of words, of at most `width` columns if words allow it; `first` and `rest` begin lines."""
    lines, line, columns = [], "", display_width(first)
    for word in words:
        word_width = display_width(word)
        if line and columns + 1 + word_width > width:
            lines.append(line)
            line, columns = "", display_width(rest)
        columns += word_width + bool(line)
        line = f"{line} {word}" if line else word
    lines.append(line)
    return [f"{rest if number else first}{line}" for number, line in enumerate(lines)]


def joined(lines: Sequence[str]) -> str:
    """Lines as one text: with spaces between them, except between two ideographs or kana."""
    pieces = []
    for line, following in pairwise([*map(one_line, lines), ""]):
        needs_no_space = line and following and _is_unspaced(line[-1]) and _is_unspaced(following[0])
        pieces.append(line if needs_no_space or not following else f"{line} ")
    return "".join(pieces).strip(" ")


def balanced(text: str, shares: Sequence[float]) -> list[str]:
    """Text of a subtitle on lines with these shares of its width, at most; tags have no width and are not broken."""
    pieces = list(_breakable_pieces(text))
    scale = sum(width for _, width in pieces) / sum(shares)
    goals = [scale * share for share in accumulate(shares)]
    lines: list[str] = []
    line, columns = "", 0
    for piece, width in pieces:
        goal = goals[len(lines)]
        if line and len(lines) + 1 < len(goals) and piece[0] not in _DASHES and columns + width - goal > goal - columns:
            lines.append(line.rstrip(" "))
            line = ""
        line += piece
        columns += width
    return [*lines, line.rstrip(" ")]


def _breakable_pieces(text: str) -> Iterator[tuple[str, int]]:
    """Pieces of a text that a line may be broken between, with their spaces, and their widths without tags."""
    piece, width, place = "", 0, 0
    while place < len(text):
        tag = SUBTITLE_TAG.match(text, place) if text[place] in "<{" else None
        unit = tag[0] if tag else text[place]
        if piece and not tag and (unit != " " if piece[-1] == " " else _are_breakable(piece[-1], unit)):
            yield piece, width
            piece, width = "", 0
        piece += unit
        width += 0 if tag else display_width(unit)
        place += len(unit)
    if piece:
        yield piece, width


def _are_breakable(last: str, following: str) -> bool:
    return _is_unspaced(last) and _is_unspaced(following) and following not in _CLOSING and last not in "「『（【〔《〈"


def _is_unspaced(char: str) -> bool:
    """Whether a character belongs to a script of wide characters that is written without spaces, as Hangul is not."""
    return not char.isascii() and east_asian_width(char) in "WF" and not "\uac00" <= char <= "\ud7a3"
