"""Translation memories: TMX 1.4b (Translation Memory eXchange) and XLIFF 1.2, 2.0 and 2.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from mt_cli.corpus.formats.inline_codes import text_of_segment
from mt_cli.corpus.formats.xml_elements import Found, elements
from mt_cli.corpus.read_report import ReadReport
from mt_cli.corpus.rows import Row
from mt_cli.corpus.varieties import variety_of
from mt_cli.errors import CorpusError

_XML_LANG = "http://www.w3.org/XML/1998/namespace}lang"
_DRAFTS = frozenset(("new", "initial"))
_MACHINE = frozenset(("mt-suggestion", "leveraged-mt"))


def read_tmx(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Translation units; each side is the first segment of the variety of its code."""
    sides = first, second = variety_of(codes[0]), variety_of(codes[1])
    for line, unit, _ in elements(path, ("tu",)):
        texts = dict[str, str]()
        for variant in unit:
            variety = variety_of(_code_of(variant))
            segment = variant.find("seg") if variety in sides and variety not in texts else None
            if segment is not None:
                texts[variety], dropped = text_of_segment(segment)
                report.add_codes(dropped, f"{path}, line {line:,}")
        yield line, texts.get(first, ""), texts.get(second, "")


def varieties_in_tmx(path: Path) -> Counter[str]:
    """Number of segments of each language code in a file; raises CorpusError if it is damaged."""
    codes = (_code_of(variant) for unit in elements(path, ("tu",)) for variant in unit.element)
    return Counter(filter(None, codes))


def _code_of(variant: Element) -> str:
    """Language code of a side of a unit; empty for notes and properties."""
    return (variant.get(_XML_LANG) or variant.get("lang") or "") if variant.tag == "tuv" else ""


def read_xliff(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Segments of a file; drafts and machine translations count as missing."""
    for unit in elements(path, ("trans-unit", "segment")):
        line, element, _ = unit
        source, target = element.find("source"), element.find("target")
        if source is None:
            raise CorpusError(f"{path}, line {line:,}: this <{element.tag}> has no <source>")
        texts = dict[str, str]()
        for code, side in zip(_codes_of(unit), (source, None if _is_draft(element, target) else target), strict=True):
            if side is not None and code and variety_of(code) not in texts:
                texts[variety_of(code)], dropped = text_of_segment(side)
                report.add_codes(dropped, f"{path}, line {line:,}")
        yield line, texts.get(variety_of(codes[0]), ""), texts.get(variety_of(codes[1]), "")


def varieties_in_xliff(path: Path) -> Counter[str]:
    """Number of segments of each language code in a file; raises CorpusError as `read_xliff` does."""
    units = elements(path, ("trans-unit", "segment"))
    return Counter(code for unit in units for code in _codes_of(unit) if code)


def _codes_of(unit: Found) -> tuple[str, str]:
    """Codes of the source and the target language; empty if the file does not name them."""
    names, holder = ("srcLang", "trgLang"), unit.parents[:1]
    if unit.element.tag == "trans-unit":
        names, holder = ("source-language", "target-language"), [p for p in unit.parents if p.tag == "file"]
    source, target = (holder[0].get(name, "") if holder else "" for name in names)
    return source, target


def _is_draft(segment: Element, target: Element | None) -> bool:
    if target is None:
        return True
    state = (segment if segment.tag == "segment" else target).get("state", "")
    return state in _DRAFTS or state.startswith("needs-") or target.get("state-qualifier", "") in _MACHINE
