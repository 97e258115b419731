"""XLIFF 1.2, 2.0 and 2.1 (`.xlf`, `.xliff`): segments without a translation get a draft as their target.

A draft has the state `needs-review-translation` in XLIFF 1.2. In XLIFF 2 it is `translated`, or `initial` if its tags
were lost. Segments that are final, approved or not to be translated stay as they are. See the specifications of OASIS,
"XLIFF Version 1.2" and "XLIFF Version 2.1".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mt_cli.corpus.languages import primary
from mt_cli.documents.document import Document, DocumentError, Options, State, Unit, line_end_of, read_content
from mt_cli.documents.xml_places import (
    Element,
    XmlError,
    allowed,
    declared_encoding,
    escaped,
    parse_xml,
    pieces_of,
    with_attributes,
)
from mt_cli.translation.inline_marks import INTERFACE, PLACEHOLDERS
from mt_cli.translation.inline_tags import TaggedText

_CODES = frozenset(("bpt", "ept", "it", "ph"))
_FINAL = frozenset(("final", "signed-off"))
_FRESH = frozenset(("", "new", "initial", "needs-translation"))
_CDATA = re.compile(r"(\s*)<!\[CDATA\[((?:(?!\]\]>).)*+)\]\]>(\s*)", re.DOTALL)


def read_xliff_document(path: Path, options: Options) -> Document:
    """Segments of an XLIFF file as units.

    Raises DocumentError if it is damaged, not XLIFF, or in other languages than `options`.
    """
    content, encoding, mark = read_content(path, declared_encoding)
    try:
        segments = list(_segments_of(content))
    except XmlError as error:
        raise DocumentError(f"{path}, {error}") from None
    escape = partial(escaped, encoding=encoding, line_end=line_end_of(content))
    units = list[Unit]()
    edits: dict[int, tuple[int, int, str]] = {}
    checked: Element | None = None
    for segment in segments:
        if segment.holder is not checked:
            checked = segment.holder
            _check_languages(path, segment, options)
        if _is_kept(segment):
            continue
        writer = _writer(content, segment, escape)
        if not writer.texts:
            continue
        target, is_translated = segment.target, _is_translated(content, segment)
        start = target.start if target else writer.last.end
        start = segment.element.start if segment.is_version_2 else start
        if options.languages[1] and not segment.codes[1]:
            holder, code = segment.holder, options.languages[1].replace("_", "-")
            tag = with_attributes(content[holder.start : holder.inner], {segment.names[1]: code})
            edits[holder.start] = holder.start, holder.inner, tag
        is_block = segment.source.inherited("xml:space") != "preserve" or "\n" not in "".join(writer.texts)
        end = (target or writer.last).end
        units.append(Unit(start, end, writer.texts, writer, is_translated, is_block, has_states=True))
    return Document(content, units, encoding, mark, marks=(*PLACEHOLDERS, INTERFACE), edits=[*edits.values()])


def _check_languages(path: Path, segment: _Segment, options: Options) -> None:
    """Raise DocumentError for other languages; a target language that repeats the source language is a template's."""
    source, target = segment.codes
    codes = (source, "" if target == source else target)
    for name, code, language in zip(segment.names, codes, options.languages, strict=True):
        if code and language and primary(code) != primary(language):
            raise DocumentError(
                f"{path}, line {segment.holder.line:,}: its {name} is {code}, but the model has `{language}`; use "
                "another model, or correct the code if it is wrong"
            )


def _is_kept(segment: _Segment) -> bool:
    """Whether a segment stays as it is even if all are translated."""
    is_final = segment.state in _FINAL or segment.element.attributes.get("approved") == "yes"
    return is_final or segment.element.inherited("translate") == "no"


def _is_translated(content: str, segment: _Segment) -> bool:
    """Whether a segment has a translation; a copy of its source in a fresh state is none."""
    target, source = segment.target, segment.source
    if target is None or not content[target.inner : target.inner_end].strip():
        return False
    if not any(isinstance(piece, str) and piece.strip() for piece in pieces_of(content, target, _is_code)):
        return False
    is_copy = content[target.inner : target.inner_end] == content[source.inner : source.inner_end]
    return not (is_copy and segment.state in _FRESH - {""})


def _is_code(element: Element) -> bool:
    """Whether an inline element holds native code, or text that is not to be translated."""
    attributes = element.attributes
    is_protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
    return element.name in _CODES or is_protected


@dataclass(frozen=True)
class _Segment:
    """A `trans-unit` of XLIFF 1.2, or a `segment` of XLIFF 2."""

    element: Element
    source: Element
    target: Element | None
    holder: Element
    """Element with the codes of the languages: `file` in XLIFF 1.2, `xliff` in XLIFF 2."""
    is_version_2: bool

    @property
    def names(self) -> tuple[str, str]:
        return ("srcLang", "trgLang") if self.is_version_2 else ("source-language", "target-language")

    @property
    def codes(self) -> tuple[str, str]:
        return self.holder.attributes.get(self.names[0], ""), self.holder.attributes.get(self.names[1], "")

    @property
    def state(self) -> str:
        """State of the translation; empty if the file does not say it."""
        holder = self.element if self.is_version_2 else self.target
        return "" if holder is None else holder.attributes.get("state", "")


def _segments_of(content: str) -> Iterator[_Segment]:
    """Segments of an XLIFF file in their order; raises XmlError if it is damaged or not XLIFF."""
    root = parse_xml(content)
    if root.name != "xliff":
        raise XmlError(root.line, f"its first element is <{root.tag[:60]}>, not <xliff>")
    is_version_2 = root.attributes.get("version", "").startswith("2")
    for element in root.walk():
        if element.name != ("segment" if is_version_2 else "trans-unit"):
            continue
        source, holder = element.child("source"), element
        if source is None:
            raise XmlError(element.line, f"this <{element.tag}> has no <source>")
        while holder.parent is not None and (is_version_2 or holder.name != "file"):
            holder = holder.parent
        yield _Segment(element, source, element.child("target"), holder, is_version_2)


@dataclass(frozen=True)
class _Writer:
    """Writes the target of a segment, with what stands between the segment's start and the target."""

    content: str
    segment: _Segment
    last: Element
    """Element after which a new target stands."""
    frame: Sequence[str]
    """Content of the source around its texts."""
    tagged: Sequence[TaggedText | None]
    """Text of each part of the source; None for a CDATA section."""
    texts: tuple[str, ...]
    escape: Callable[[str], str]

    def __call__(self, translations: Sequence[str], state: State) -> str:
        inner, is_damaged = self._inner(translations)
        segment, target, content = self.segment, self.segment.target, self.content
        qualifier = segment.source.tag.removesuffix(segment.source.name)
        tag = f"<{qualifier}target>" if target is None else content[target.start : target.inner]
        tag = re.sub(r"(?:(?<!\s)\s++)?+/>$", ">", tag)
        if not segment.is_version_2:
            written_state = "translated" if state == "final" and not is_damaged else "needs-review-translation"
            tag = with_attributes(tag, {"state": written_state, "state-qualifier": "mt-suggestion"})
        element = f"{tag}{inner}</{qualifier}target>"
        if target is None:
            element = _indentation(content, segment.source.start) + element
        if not segment.is_version_2:
            return element
        written_state = "initial" if state == "review" or is_damaged else "translated"
        start = with_attributes(content[segment.element.start : segment.element.inner], {"state": written_state})
        end = target.start if target else self.last.end
        return start + content[segment.element.inner : end] + element

    def _inner(self, translations: Sequence[str]) -> tuple[str, bool]:
        parts, is_damaged = [self.frame[0]], False
        waiting = iter(translations)
        for tagged, after in zip(self.tagged, self.frame[1:], strict=True):
            if tagged is None:
                parts += [allowed(next(waiting)).replace("]]>", "]]]]><![CDATA[>"), after]
                continue
            translation = next(waiting) if tagged.has_text else tagged.text
            written, is_repaired = tagged.written(translation, self.escape)
            parts += [written, after]
            is_damaged |= is_repaired
        return "".join(parts), is_damaged


def _writer(content: str, segment: _Segment, escape: Callable[[str], str]) -> _Writer:
    """Writer of a segment, with the texts to translate: one, or one for each part that a CAT tool has marked."""
    segmented = None if segment.is_version_2 else segment.element.child("seg-source")
    last = segmented or segment.source
    raw = content[last.inner : last.inner_end]
    section = _CDATA.fullmatch(raw)
    if section:
        frame = [f"{section[1]}<![CDATA[", f"]]>{section[3]}"]
        text = section[2].replace("\r\n", "\n")
        return _Writer(content, segment, last, frame, [None], (text,) if text.strip() else (), escape)
    marked = list(_marked(segmented)) if segmented else []
    parts, frame, place = marked or [last], [], last.inner
    for part in parts:
        frame.append(content[place : part.inner])
        place = part.inner_end
    frame.append(content[place : last.inner_end])
    tagged = [TaggedText.of(list(pieces_of(content, part, _is_code))) for part in parts]
    texts = tuple(text.text for text in tagged if text.has_text)
    return _Writer(content, segment, last, frame, tagged, texts, escape)


def _marked(element: Element) -> Iterator[Element]:
    """Outermost parts of a source that a CAT tool has marked as segments."""
    for child in element.children:
        if child.name == "mrk" and child.attributes.get("mtype") == "seg":
            yield child
        else:
            yield from _marked(child)


def _indentation(content: str, place: int) -> str:
    """White space before a place, from the last line end on."""
    start = place
    while start > 0 and content[start - 1].isspace():
        start -= 1
    space = content[start:place]
    last = space.rfind("\n")
    return space[last - (space[last - 1 : last] == "\r") :] if last >= 0 else space
