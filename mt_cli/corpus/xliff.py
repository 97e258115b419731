"""XLIFF 1.2, 2.0 and 2.1: segments with their places, and a reader of them as a corpus.

A file is held in memory. Damage ends the whole file, because its segments do not stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mt_cli.corpus.inline_codes import SegmentText
from mt_cli.corpus.read_report import DroppedCodes, Item, ReadOptions
from mt_cli.corpus.rows import Columns, Languages, Names
from mt_cli.corpus.tmx import element_of, text_of
from mt_cli.corpus.varieties import Varieties, chosen_varieties, plain_code, variety_of
from mt_cli.corpus.xml_places import Element, XmlError, parse_xml
from mt_cli.errors import CorpusError

_MOST_CHARACTERS = 2**28
_DRAFTS = frozenset(("new", "initial"))
_MACHINE = frozenset(("mt-suggestion", "leveraged-mt"))


@dataclass(frozen=True)
class Segment:
    """A `trans-unit` of XLIFF 1.2, or a `segment` of XLIFF 2."""

    element: Element
    source: Element
    target: Element | None
    holder: Element
    """Element with the codes of the languages: `file` in XLIFF 1.2, `xliff` in XLIFF 2."""
    is_version_2: bool

    @property
    def codes(self) -> tuple[str, str]:
        """Codes of the source and the target language; empty if the file does not name them."""
        names = ("srcLang", "trgLang") if self.is_version_2 else ("source-language", "target-language")
        return self.holder.attributes.get(names[0], ""), self.holder.attributes.get(names[1], "")

    @property
    def state(self) -> str:
        """State of the translation; empty if the file does not say it."""
        holder = self.element if self.is_version_2 else self.target
        return "" if holder is None else holder.attributes.get("state", "")

    @property
    def is_draft(self) -> bool:
        """Whether the file says that its translation is missing, unchecked, or of a machine."""
        qualifier = "" if self.target is None else self.target.attributes.get("state-qualifier", "")
        return self.state in _DRAFTS or self.state.startswith("needs-") or qualifier in _MACHINE


def segments_of(content: str) -> Iterator[Segment]:
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
        yield Segment(element, source, element.child("target"), holder, is_version_2)


def read_xliff(path: Path, languages: Languages, columns: Columns, options: ReadOptions) -> Iterator[Item]:
    """Segments of a file; drafts and machine translations count as missing.

    `columns` name the varieties instead of `languages`. Raises CorpusError if the file is damaged.
    """
    content, segments = _read(path)
    varieties = options.varieties
    if varieties is None:
        varieties = chosen_varieties(_varieties_of(path, segments), columns or languages, str(path))
        yield varieties
    for segment in segments:
        texts = {}
        sides = (segment.source, None if segment.is_draft else segment.target)
        for code, side in zip(segment.codes, sides, strict=True):
            if side is None or not code or variety_of(code) in texts:
                continue
            element = element_of(f"<seg>{content[side.inner : side.inner_end]}</seg>")
            texts[variety_of(code)] = text = SegmentText(element, options.keep_codes)
            if text.num_codes:
                yield DroppedCodes(text.num_codes, text.first_code, f"{path}, line {side.line:,}")
        source, target = (texts[side].text if side in texts else "" for side in varieties.sides)
        yield segment.element.line, source, target


def varieties_in_xliff(path: Path, skip_damaged: bool = False) -> Varieties:
    """Languages of all segments of a file; raises CorpusError as `read_xliff` does."""
    return _varieties_of(path, _read(path)[1])


def names_in_xliff(path: Path) -> Names:
    """Languages of a file as codes for a config."""
    return Names(list(dict.fromkeys(map(plain_code, varieties_in_xliff(path).counts))), True)


def _varieties_of(path: Path, segments: list[Segment]) -> Varieties:
    varieties = Varieties()
    for segment in segments:
        for code in filter(None, segment.codes):
            varieties.add(code)
    if not varieties.counts:
        varieties.problem = f"{path}: has no segment in a language that it names"
    return varieties


def _read(path: Path) -> tuple[str, list[Segment]]:
    """Content and segments of a file, kept for the next call."""
    version = None
    with suppress(OSError, ValueError):  # `text_of` explains what is wrong.
        status = path.stat()
        version = status.st_mtime_ns, status.st_size, status.st_ino
    return _read_version(path, version)


@lru_cache(maxsize=1)
def _read_version(path: Path, version: object) -> tuple[str, list[Segment]]:
    pieces, number = [], 0
    for piece in text_of(path):
        pieces.append(piece)
        number += len(piece)
        if number > _MOST_CHARACTERS:
            raise CorpusError(f"{path}: longer than {_MOST_CHARACTERS:,} characters; split the file")
    content = "".join(pieces)
    try:
        return content, list(segments_of(content))
    except XmlError as error:
        raise CorpusError(f"{path}, {error}") from None
