"""Translation memories (`.tmx`, TMX 1.4b): units with the source language get a draft in the target language.

A draft is a `tuv` after those of its unit, whose `creationid` is `mt`; a note says if its tags were lost. All other
languages, properties and attributes stay as they are. See "TMX 1.4b Specification" of LISA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.corpus.varieties import Varieties, varieties_for, variety_of
from mt_cli.corpus.xml_places import Element, XmlError, parse_xml
from mt_cli.features.documents.document import Document, DocumentError, Options, Unit
from mt_cli.features.documents.inline_tags import TaggedText
from mt_cli.features.documents.xml_files import escaper, indentation, pieces_of, read_xml

_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))
_NOTE = "<note>needs review: tags were lost</note>"

_Variant = tuple[str, Element, Element]
"""Code of the language, `tuv` and `seg`."""


def read_memory(path: Path, options: Options) -> Document:
    """Units of a memory that have the source language.

    Raises DocumentError if the file is damaged, or has no text in the source language.
    """
    content, encoding, mark, units = read_xml(path, _units_of)
    sources, targets = _codes(path, units, options)
    escape, parts = escaper(content, encoding), list[Unit]()
    for variants in units:
        source = next((variant for variant in variants if variety_of(variant[0]) in sources), None)
        target = next((variant for variant in variants if variety_of(variant[0]) in targets), None)
        if source is None:
            continue
        tagged = TaggedText.of(list(pieces_of(content, source[2], lambda element: element.name in _CODES)))
        if not tagged.has_text:
            continue
        writer = _Writer(content, source, target, tagged, options.languages[1].replace("_", "-"), escape)
        seg, last = target[2] if target else None, variants[-1][1]
        start, end = (seg.start, seg.end) if seg else (last.end, last.end)
        is_translated = seg is not None and bool(content[seg.inner : seg.inner_end].strip())
        parts.append(Unit(start, end, (tagged.text,), writer, is_translated, "\n" not in tagged.text))
    return Document(content, parts, encoding, mark)


def _units_of(content: str) -> list[list[_Variant]]:
    """Variants of each unit in a file; raises XmlError if it is damaged or no memory."""
    root = parse_xml(content)
    if root.name != "tmx":
        raise XmlError(root.line, f"its first element is <{root.tag[:60]}>, not <tmx>")
    units = []
    for unit in root.walk():
        if unit.name == "tu":
            pairs = [(tuv, tuv.child("seg")) for tuv in unit.children if tuv.name == "tuv"]
            units.append([(_code_of(tuv), tuv, seg) for tuv, seg in pairs if seg is not None])
    return units


def _code_of(tuv: Element) -> str:
    return tuv.attributes.get("xml:lang") or tuv.attributes.get("lang") or ""


def _codes(path: Path, units: Sequence[Sequence[_Variant]], options: Options) -> tuple[set[object], set[object]]:
    """Varieties of a memory that are in the source language, and in the target language."""
    varieties = Varieties()
    for code in (code for variants in units for code, _, _ in variants if code):
        varieties.add(code)
    sources, targets = (
        {variety_of(code) for code in varieties_for(language, varieties.counts)} if language else set[object]()
        for language in options.languages
    )
    if units and (not sources or not options.languages[1]):
        raise DocumentError(
            f"{path}: has no text in the source language `{options.languages[0]}` of the model; there is text in "
            f"{varieties.listed() or 'no language'}"
        )
    return set(sources - targets or sources), set(targets)


@dataclass(frozen=True)
class _Writer:
    """Writes the segment of a translation, or a new `tuv` with it."""

    content: str
    source: _Variant
    target: _Variant | None
    tagged: TaggedText
    language: str
    escape: Callable[[str], str]

    def __call__(self, translations: Sequence[str], needs_review: bool) -> str:
        """Content of the part."""
        written, is_damaged = self.tagged.written_with_surroundings(translations[0], self.escape)
        _, tuv, seg = self.target or self.source
        space = indentation(self.content, seg.start)
        note = _NOTE + space if needs_review or is_damaged else ""
        if self.target:
            tag = self.content[seg.start : seg.inner].removesuffix("/>").rstrip().removesuffix(">") + ">"
            return f"{note}{tag}{written}</{seg.tag}>"
        name = "lang" if "xml:lang" not in tuv.attributes else "xml:lang"
        end = self.content[seg.end : tuv.inner_end]
        return (
            f'{indentation(self.content, tuv.start)}<{tuv.tag} {name}="{self.language}" creationid="mt">'
            f"{space}{note}<{seg.tag}>{written}</{seg.tag}>{end if end.isspace() else ''}</{tuv.tag}>"
        )
