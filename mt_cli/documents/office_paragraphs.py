"""Paragraphs of word processors (WordprocessingML, DrawingML, OpenDocument): text, with formatting as inline tags.

Formatting that most of a paragraph has is not shown; other formatting is a pair of tags. Fields, pictures and notes
stand alone; paragraphs in them are texts of their own. Text of a link is text, unless the link is a field. A line break
ends a text. Of a ruby annotation, the base is translated, and its readings go. Alternative texts are paragraphs, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mt_cli.documents.xml_places import (
    Element,
    attributes_of,
    escaped,
    escaped_value,
    pieces_of,
    sections_of,
    unescaped,
)
from mt_cli.translation.inline_tags import Piece, Tag, TaggedText

_CONTAINERS = frozenset(("hyperlink", "ins", "smartTag", "sdt", "customXml", "moveTo"))
_NO_FORMAT = re.compile(
    r"<w:(?:lang|noProof)\b[^>]*/>|\s(?:(?:lang|altLang|dirty|err|noProof|smtClean)=\"[^\"]*\"|baseline=\"0\")"
)
"""Properties of text that make no difference to see."""
_BREAKS = frozenset(("br", "cr", "line-break"))
_SPANS = frozenset(("span", "a"))
_ALTERNATIVES = {"docPr": ("descr", "title"), "cNvPr": ("descr", "title"), "shape": ("alt",)}
"""Attributes with alternative texts, by the names of elements of Word."""
_ALTERNATIVE_ELEMENTS = ("svg:title", "svg:desc")
_Kept = list[tuple[int, Element]]
"""Elements that stand alone, with the places of their tags."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph, with the paragraphs in its notes and pictures."""

    content: str
    start: int
    """Start of the part that is replaced."""
    end: int
    segments: Sequence[TaggedText]
    """Texts between line breaks."""
    breaks: Sequence[Tag] = ()
    base: tuple[str, str] = ("", "")
    """Tags around text with the formatting that most of the paragraph has."""
    inner: Sequence[tuple[int, Paragraph]] = field(default=())
    """Paragraphs within tags of this one, with the place of the tag."""
    escape: Callable[[str], str] = escaped

    @property
    def texts(self) -> tuple[str, ...]:
        inner = (text for _, paragraph in self.inner for text in paragraph.texts)
        return (*(segment.text for segment in self.segments if segment.has_text), *inner)

    def write(self, translations: Sequence[str]) -> str:
        return self._written(iter(translations))

    def _written(self, translations: Iterator[str]) -> str:
        texts = [next(translations) if segment.has_text else segment.text for segment in self.segments]
        pieces = (piece for part in self.segments for piece in (*part.before, *part.pieces, *part.after))
        tags = {piece.place: piece for piece in pieces if isinstance(piece, Tag)}
        raws: dict[int, str] = {}
        changed = [(place, paragraph, paragraph._written(translations)) for place, paragraph in self.inner]
        for place, paragraph, written in reversed(changed):
            # The raw tag begins with the end of the text before it.
            raw = raws.get(place, tags[place].raw)
            start = paragraph.start - place + len(self.base[1])
            raws[place] = raw[:start] + written + raw[start + paragraph.end - paragraph.start :]
        before, after = self.base
        parts = [
            segment.written(text, self.escape, raws)[0] for segment, text in zip(self.segments, texts, strict=True)
        ]
        ends = [*(end.raw for end in self.breaks), ""]
        content = before + "".join(part + end for part, end in zip(parts, ends, strict=True)) + after
        return content.replace(before + after, "") if before else content


def _segments(pieces: Iterable[Piece]) -> tuple[list[TaggedText], list[Tag]]:
    segments, breaks = [list[Piece]()], list[Tag]()
    for piece in pieces:
        if isinstance(piece, Tag) and piece.name.removeprefix("text:") in _BREAKS:
            breaks.append(piece)
            segments.append([])
        else:
            segments[-1].append(piece)
    return [TaggedText.of(segment) for segment in segments], breaks


def paragraphs_of(content: str, root: Element) -> Iterator[Paragraph | None]:
    """Paragraphs of a part of a document in their order; None for one that cannot be translated."""
    if root.name in ("p", "h") or root.tag in _ALTERNATIVE_ELEMENTS:
        is_word = root.tag in ("w:p", "a:p")
        yield _word_paragraph(content, root) if is_word else _open_document_paragraph(content, root)
        return
    for name, start, end in attributes_of(content, root) if root.name in _ALTERNATIVES else ():
        if name in _ALTERNATIVES[root.name]:
            text = TaggedText.of([unescaped(content[start + 1 : end - 1])])
            yield Paragraph(content, start, end, [text], escape=lambda text: f'"{escaped_value(text)}"')
    for child in root.children:
        if child.name != "tracked-changes":  # Deleted text of OpenDocument.
            yield from paragraphs_of(content, child)


def _open_document_paragraph(content: str, element: Element) -> Paragraph:
    pieces = pieces_of(content, element, lambda child: child.name not in _SPANS and not child.name.startswith("ruby"))
    segments = _segments(_without_readings(pieces))
    kept = [(child.start, child) for child in _outermost_kept(element) if child.children]
    return Paragraph(content, element.inner, element.inner_end, *segments, inner=_inner(content, kept))


def _without_readings(pieces: Iterable[Piece]) -> Iterator[Piece]:
    is_reading = False
    for piece in pieces:
        if isinstance(piece, Tag) and (name := piece.name.removeprefix("text:")).startswith("ruby"):
            is_reading = piece.kind == "start" if name == "ruby-text" else is_reading
        elif not is_reading:
            yield piece


def _outermost_kept(element: Element) -> Iterator[Element]:
    for child in element.children:
        if child.name in _SPANS:
            yield from _outermost_kept(child)
        else:
            yield child


def _inner(content: str, kept: _Kept) -> list[tuple[int, Paragraph]]:
    return [
        (place, paragraph)
        for place, element in kept
        for paragraph in paragraphs_of(content, element)
        if paragraph is not None and paragraph.texts
    ]


@dataclass(frozen=True)
class _Text:
    format: str
    """Properties of the run."""
    text: str


def _word_paragraph(content: str, element: Element) -> Paragraph | None:
    """Paragraph of WordprocessingML; None if a field begins or ends in another paragraph."""
    kept: _Kept = []
    children = [child for child in element.children if child.name != "pPr"]
    if not children:
        return Paragraph(content, element.end, element.end, ())
    start, end = children[0].start, children[-1].end
    try:
        parts = list(_parts(content, children, kept))
    except _FieldError:
        return None
    sizes = Counter[str]()
    for part in parts:
        if isinstance(part, _Text):
            sizes[_visible(part.format)] += len(part.text.strip())
    formats = {_visible(part.format): part.format for part in parts if isinstance(part, _Text)}
    most = max(formats, key=lambda name: sizes[name], default="")
    run = partial(_run, element.tag[0])
    base = run(formats.get(most, ""))
    segments = _segments(_pieces(parts, most, base, run))
    return Paragraph(content, start, end, *segments, base, _inner(content, kept))


class _FieldError(Exception):
    """A field does not end in its paragraph."""


def _visible(properties: str) -> str:
    return re.sub(r"<w:rPr>\s*</w:rPr>", "", _NO_FORMAT.sub("", properties))


def _run(prefix: str, properties: str) -> tuple[str, str]:
    space = ' xml:space="preserve"' if prefix == "w" else ""
    return f"<{prefix}:r>{properties}<{prefix}:t{space}>", f"</{prefix}:t></{prefix}:r>"


def _parts(content: str, children: Sequence[Element], kept: _Kept) -> Iterator[_Text | Tag]:
    index = 0
    while index < len(children):
        child, first = children[index], index
        index += 1
        depth = _field_depth(child)
        if depth:
            while depth > 0 and index < len(children):
                depth += _field_depth(children[index])
                index += 1
            if depth:
                raise _FieldError
            raw = content[child.start : children[index - 1].end]
            kept += ((child.start, part) for part in children[first:index])
            yield Tag(raw, "", place=child.start)
        elif child.name == "r":
            yield from _parts_of_run(content, child, kept)
        elif child.name in _CONTAINERS and not any(_field_depth(part) for part in child.walk()):
            inner = child.child("sdtContent") if child.name == "sdt" else child
            runs = [] if inner is None else [part for part in inner.children if not part.name.endswith("Pr")]
            if not runs:
                yield Tag(content[child.start : child.end], "", place=child.start)
                continue
            yield Tag(content[child.start : runs[0].start], child.name, "start")
            yield from _parts(content, runs, kept)
            yield Tag(content[runs[-1].end : child.end], child.name, "end")
        elif child.name != "proofErr":
            kept.append((child.start, child))
            yield Tag(content[child.start : child.end], child.name, place=child.start)


def _field_depth(element: Element) -> int:
    """Number of fields that begin in a run, less those that end in it."""
    types = [child.attributes.get("w:fldCharType") for child in element.children if child.name == "fldChar"]
    return types.count("begin") - types.count("end") if element.name == "r" else 0


def _parts_of_run(content: str, run: Element, kept: _Kept) -> Iterator[_Text | Tag]:
    properties = run.child("rPr")
    raw = content[properties.start : properties.end] if properties else ""
    for child in run.children:
        if child is properties or child.name in ("lastRenderedPageBreak", "softHyphen"):
            continue
        if child.name == "ruby" and (base := child.child("rubyBase")):
            yield from _parts(content, base.children, kept)
            continue
        if child.name == "noBreakHyphen":
            yield _Text(raw, "\u2011")
            continue
        if child.name == "t" and not child.children:
            text = "".join(piece for piece, is_text in sections_of(content[child.inner : child.inner_end]) if is_text)
            yield _Text(raw, text)
        elif len(run.children) == 1 + (properties is not None):
            kept.append((run.start, run))
            yield Tag(content[run.start : run.end], child.name, place=run.start)
        else:
            before = f"<{run.tag}>{raw}"
            place = child.start - len(before)
            kept.append((place, child))
            yield Tag(f"{before}{content[child.start : child.end]}</{run.tag}>", child.name, place=place)


def _pieces(
    parts: Sequence[_Text | Tag], most: str, base: tuple[str, str], run: Callable[[str], tuple[str, str]]
) -> Iterator[Piece]:
    """Text of the formatting that most has, and all else as tags between two texts of it."""
    before, after = base
    current: str | None = None
    for part in parts:
        style = _visible(part.format) if isinstance(part, _Text) else most
        if current is not None and (style != current or isinstance(part, Tag)):
            yield Tag(after + before, "r", "end")
            current = None
        if isinstance(part, Tag):
            yield replace(part, raw=after + part.raw + before)
            continue
        if style != most and current is None and part.text:
            yield Tag(after + run(part.format)[0], "r", "start")
            current = style
        yield part.text
    if current is not None:
        yield Tag(after + before, "r", "end")
