"""Text with inline tags: what is translated of it, and how its tags come back into a translation.

A translator sees tags as they are, or as a short tag if they are long or hold content. Tags that come back lost,
doubled or in a wrong order are repaired, so that all are there once and nested rightly.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mt_cli.corpus.protected_text import TAG

_SIMPLE = re.compile(r"</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>\n]{0,200})?/?>")
"""A tag that a translator sees as it is. Protected text has a pattern for such tags."""
_RANGES = {
    "bpt": "ept",
    "bx": "ex",
    "sc": "ec",
    "sm": "em",
    "bookmarkStart": "bookmarkEnd",
    "commentRangeStart": "commentRangeEnd",
    "bookmark-start": "bookmark-end",
    "reference-mark-start": "reference-mark-end",
    "change-start": "change-end",
}
"""Elements that begin a range, and those that end it: of XLIFF, WordprocessingML and OpenDocument."""
_RANGE_ENDS = {end: start for start, end in _RANGES.items()}
_BOUND = re.compile(rf"(?:</[\w:.-]+>)*<(?:[\w.-]+:)?({'|'.join((*_RANGES, *_RANGE_ENDS))})(?=[\s/>])([^<>]*)")
_ATTRIBUTE = re.compile(r"(?<=\s)(?:[\w.-]+:)?([\w.-]+)\s*=\s*[\"']([^\"']*)[\"']")
_LONE_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*)?(?<!/)>")
LIKE_TAG = re.compile(f"({TAG})")


@dataclass(frozen=True)
class Tag:
    """A tag, or an element that is not translated."""

    raw: str
    name: str
    kind: str = ""
    """`start`, `end`, or empty for what stands alone."""
    place: int = -1
    """Place in the document, if the tag has values that are translated."""

    @property
    def is_placeholder(self) -> bool:
        """True for a mark that stands for words, such as `%s`, and is no tag; it has no name."""
        return not self.name


NO_TAGS: Mapping[int, str] = {}
Piece = str | Tag
"""Text without escapes, or a tag."""


@dataclass(frozen=True)
class TaggedText:
    """Pieces of a text, split into what is translated and what stands before and after it."""

    before: Sequence[Piece]
    pieces: Sequence[Piece]
    """Text and tags that are translated; their first and last pieces have text."""
    after: Sequence[Piece]

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> TaggedText:
        """Text of pieces, without white space, single tags and pairs of tags around it."""
        paired = _with_ranges(_paired(_joined(pieces)))
        pieces = [part for piece in paired for part in _with_space_apart(piece)]
        first, last, partners = 0, len(pieces), partners_of(pieces)
        while first < last:
            start, end = pieces[first], pieces[last - 1]
            if _is_single(start):
                first += 1
            elif _is_single(end):
                last -= 1
            elif partners.get(first) == last - 1:
                first, last = first + 1, last - 1
            else:
                break
        return cls(pieces[:first], pieces[first:last], pieces[last:])

    @property
    def has_text(self) -> bool:
        return any(isinstance(piece, str) and piece.strip() for piece in self.pieces)

    @cached_property
    def _shown(self) -> Sequence[str]:
        """Each piece as a translator sees it."""
        shown = [raw_of(piece) for piece in self.pieces]
        for index, piece in enumerate(self.pieces):
            end = self._ends.get(index)
            if isinstance(piece, str) or piece.kind == "end":
                continue
            if _SIMPLE.fullmatch(piece.raw) and not (end and piece.raw.endswith("/>")):
                continue
            shown[index] = f"<m{index}>" if end else f"<m{index}/>"
            if end:
                shown[end] = f"</m{index}>"
        return shown

    @cached_property
    def _ends(self) -> dict[int, int]:
        """Index of the end tag for the index of each start tag of a pair."""
        return partners_of(self.pieces)

    @property
    def text(self) -> str:
        """Text to translate, with its tags."""
        return "".join(self._shown)

    def written(
        self, translation: str, escape: Callable[[str], str], raws: Mapping[int, str] = NO_TAGS
    ) -> tuple[str, bool]:
        """Content for a translation, with what stands before and after it, and whether its tags had to be repaired.

        `raws` replaces tags by their place.
        """
        before, after = (
            "".join(escape(piece) if isinstance(piece, str) else raws.get(piece.place, piece.raw) for piece in pieces)
            for pieces in (self.before, self.after)
        )
        waiting, is_damaged = self._occurrences(), False
        has_markup = any(isinstance(piece, str) and "<" in piece for piece in self.pieces)
        parts: list[str] = []
        open_tags: list[int] = []
        places: dict[int, int] = {}
        for number, token in enumerate(LIKE_TAG.split(translation)):
            queue = waiting.get(token)
            index = queue.popleft() if queue else None
            if number % 2 == 0 or index == -1 or (queue is None and has_markup):
                parts.append(escape(token))
                continue
            tag = None if index is None else self.pieces[index]
            if not isinstance(tag, Tag) or index is None:
                is_damaged = True
                continue
            if tag.kind == "end" and not (open_tags and _name(self.pieces[open_tags[-1]]) == tag.name):
                is_damaged = True
                continue
            places[index] = len(parts)
            parts.append(raws.get(tag.place, tag.raw))
            if tag.kind == "end":
                open_tags.pop()
            elif tag.kind == "start":
                open_tags.append(index)
        parts += [self._end_of(index) for index in reversed(open_tags)]
        lost = sorted(index for indexes in waiting.values() for index in indexes if index >= 0)
        for index in lost:
            tag = self.pieces[index]
            if isinstance(tag, Tag) and tag.kind != "end":
                places[index] = len(parts)
                parts.append(raws.get(tag.place, tag.raw) + self._end_of(index))
        for start, end in self._crossing:
            first, last = places[start], places[end]
            if last < first:  # An end does not come before its beginning.
                parts[first], parts[last] = parts[last], parts[first]
                is_damaged = True
        return "".join([before, *parts, after]), bool(is_damaged or open_tags or lost)

    @cached_property
    def _crossing(self) -> Sequence[tuple[int, int]]:
        """Indexes of the tags that begin and end something, but are no pair, because others begin or end within."""
        crossing, begun = list[tuple[int, int]](), defaultdict[str, list[int]](list)
        for index, piece in enumerate(self.pieces):
            if isinstance(piece, Tag) and not piece.kind:
                kind, name = _range_bound(piece)
                if lone := _LONE_TAG.fullmatch(piece.raw):
                    kind, name = kind or ("end" if lone[1] else "start"), name or lone[2].lower()
                if kind == "start":
                    begun[name].append(index)
                elif kind and begun[name]:
                    crossing.append((begun[name].pop(), index))
        return crossing

    def _end_of(self, index: int) -> str:
        """End tag of a start tag; empty for other tags."""
        return raw_of(self.pieces[self._ends[index]]) if index in self._ends else ""

    def _occurrences(self) -> dict[str, deque[int]]:
        """Index of the piece for each occurrence of a tag in the text, or -1 where plain text looks like it."""
        tags = {shown for shown, piece in zip(self._shown, self.pieces, strict=True) if isinstance(piece, Tag)}
        indexes, place = dict[int, int](), 0
        for index, shown in enumerate(self._shown):
            if isinstance(self.pieces[index], Tag):
                indexes[place] = index
            place += len(shown)
        waiting = defaultdict[str, deque[int]](deque)
        for match in LIKE_TAG.finditer(self.text):
            if match[0] in tags:
                waiting[match[0]].append(indexes.get(match.start(), -1))
        return waiting


def raw_of(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.raw


def _is_single(piece: Piece) -> bool:
    return not piece.strip() if isinstance(piece, str) else not piece.kind


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces with texts beside each other as one."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    return joined


def _with_space_apart(piece: Piece) -> list[Piece]:
    """Text as the white space around it and the rest."""
    if not isinstance(piece, str):
        return [piece]
    start = len(piece) - len(piece.lstrip())
    end = len(piece.rstrip()) if start < len(piece) else start
    return [part for part in (piece[:start], piece[start:end], piece[end:]) if part]


def partners_of(pieces: Sequence[Piece]) -> dict[int, int]:
    """Index of the end tag for the index of each start tag that has one, if the pairs are nested."""
    if not any(isinstance(piece, Tag) and piece.kind for piece in pieces):
        return {}
    partners, waiting = dict[int, int](), list[int]()
    places = defaultdict[str, list[int]](list)
    for index, piece in enumerate(pieces):
        if isinstance(piece, str) or not piece.kind:
            continue
        if piece.kind == "start":
            waiting.append(index)
            places[piece.name].append(index)
        elif places[piece.name]:
            start = places[piece.name][-1]
            partners[start] = index
            while waiting and waiting[-1] >= start:
                places[_name(pieces[waiting.pop()])].pop()
    return partners


def _paired(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces in which tags without a partner stand alone."""
    partners = partners_of(pieces)
    pairs = {*partners, *partners.values()}
    return [
        piece if isinstance(piece, str) or not piece.kind or index in pairs else replace(piece, kind="")
        for index, piece in enumerate(pieces)
    ]


def _with_ranges(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces in which single tags that begin and end a range are a pair, unless it crosses another pair."""
    pairs, begun = dict[int, tuple[str, str]](), [dict[str, int]()]
    for index, piece in enumerate(pieces):
        kind, name = ("", "") if isinstance(piece, str) else _range_bound(piece)
        if isinstance(piece, Tag) and piece.kind == "start":
            begun.append({})
        elif isinstance(piece, Tag) and piece.kind:
            begun.pop()
        elif kind == "start":
            begun[-1].pop(name, None)
            begun[-1][name] = index
        elif name in begun[-1]:
            while (last := begun[-1].popitem())[0] != name:
                pass
            pairs |= {last[1]: ("start", name), index: ("end", name)}
    return [
        replace(piece, kind=pairs[index][0], name=pairs[index][1])
        if isinstance(piece, Tag) and index in pairs
        else piece
        for index, piece in enumerate(pieces)
    ]


def _range_bound(tag: Tag) -> tuple[str, str]:
    """`start` or `end` for a tag that begins or ends a range, and the key that both ends share; empty otherwise."""
    match = _BOUND.match(tag.raw)
    if not match:
        return "", ""
    name, values = match[1], dict(_ATTRIBUTE.findall(match[2]))
    keys = ("name", "change-id") if "-" in name else ("rid", "startRef", "i", "id")
    key = next((values[key] for key in keys if key in values), "")
    return ("start" if name in _RANGES else "end"), f"{_RANGE_ENDS.get(name, name)} {key}"


def _name(piece: Piece) -> str:
    return "" if isinstance(piece, str) else piece.name
