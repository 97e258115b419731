"""Events of an HTML file with their places: tags, text and all else, in their order and without gaps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate, pairwise

from mt_cli.documents.document import error_at
from mt_cli.translation.inline_marks import VOID

_ATTRIBUTE = re.compile(r"[\s/]++(?:([^\s/>=\"'<]+)(?:\s*=\s*(\"[^\"]*+\"|'[^']*+'|[^\s>\"']+))?)?")
_NAME = re.compile(r"<[^\s/>]+")
_COMMENT_OR_SCRIPT = re.compile(r"<!--|-->|</?(?:script|style)\b", re.IGNORECASE)
_OPENING = re.compile(r"<[!/?A-Za-z]")


@dataclass(frozen=True, slots=True)
class Event:
    """A tag, a piece of text, or all else, such as a comment."""

    kind: str
    """`start`, `end`, `single` (a start tag without an end tag), `text` or `other`."""
    name: str
    start: int
    end: int
    attributes: dict[str, tuple[int, int]]
    """Places of the values of attributes, without quotation marks."""


def events_of(content: str, name: str) -> list[Event]:
    """Events of a file, which together have all its characters; raises DocumentError if it is cut off."""
    _check_end(content, name)
    parser = _Parser(content)
    parser.feed(content.replace("&", "+"))  # The parser gives up at some references; only places are asked of it.
    parser.close()
    pieces = [*parser.pieces, ("other", "", len(content))]
    events = []
    for (kind, name, start), (_, _, end) in pairwise(pieces):
        attributes = _attributes(content, start, end) if kind in ("start", "single") else {}
        if start < end:
            events.append(Event(kind, name, start, end, attributes))
    return events


def _check_end(content: str, name: str) -> None:
    """Raise DocumentError for a tag or comment without an end, at which the parser would begin again and again."""
    begun: re.Match[str] | None = None
    for match in _COMMENT_OR_SCRIPT.finditer(content):
        if begun is None:
            begun = match if match[0][:2] != "</" and match[0] != "-->" else None
        elif match[0].lower() == ("-->" if begun[0] == "<!--" else f"</{begun[0][1:].lower()}"):
            begun = None
    if begun and begun[0] == "<!--":
        raise error_at(name, content, begun.start(), "this comment has no end; is it cut off?")
    tags = list(_OPENING.finditer(content, max(content.rfind(">"), 0)))
    if tags:
        raise error_at(name, content, tags[0].start(), "this tag has no end; is it cut off?")


class _Parser(HTMLParser):
    """Parser that keeps the kind, name and place of each event."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=False)
        self.pieces: list[tuple[str, str, int]] = []
        self._lines = [0, *accumulate(len(line) + 1 for line in content.split("\n"))]

    def _add(self, kind: str, name: str = "") -> None:
        line, column = self.getpos()
        self.pieces.append((kind, name, self._lines[line - 1] + column))

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """End of a section such as `<![CDATA[...]]>`; the parser of the standard library refuses unknown ones."""
        end = self.rawdata.find("]]>", i) if self.rawdata.startswith("<![CDATA[", i) else -1
        if end < 0:
            return self.parse_bogus_comment(i)
        self._add("other")
        return end + 3

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("single" if tag in VOID else "start", tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("single", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("end", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")
        start = self.pieces[-1][2]
        self.pieces.append(("other", "", start + len(data)))

    def _handle_other(self, *_: object, **__: object) -> None:
        self._add("other")

    handle_comment = handle_decl = handle_pi = unknown_decl = _handle_other


def _attributes(content: str, start: int, end: int) -> dict[str, tuple[int, int]]:
    """Places of the values of the attributes of a start tag; the first of a name counts."""
    places: dict[str, tuple[int, int]] = {}
    name = _NAME.match(content, start, end)
    for match in _ATTRIBUTE.finditer(content, name.end() if name else end, end):
        if match[2] is not None:
            is_quoted = match[2][0] in "\"'"
            places.setdefault(match[1].lower(), (match.start(2) + is_quoted, match.end(2) - is_quoted))
    return places
