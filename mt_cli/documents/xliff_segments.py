"""Segments of XLIFF 1.2, 2.0 and 2.1, with their places in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mt_cli.documents.xml_places import Element, XmlError, parse_xml


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
