"""Translation memories and term bases: TMX 1.4b (Translation Memory eXchange), XLIFF 1.2, 2.0 and 2.1, and TBX.

TBX (TermBase eXchange, ISO 30042) is read in its editions of 2008 (`termEntry`) and 2019 (`conceptEntry`).

Inline codes (native markup, placeholders) are dropped: the elements `bpt`, `ept`, `it`, `ph` and `ut` of TMX, and `bx`,
`ex`, `x`, `sc` and `ec` of XLIFF. All other elements (`hi`, `g`, `pc`) only mark text, which is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree.ElementTree import Element

from mt_cli.corpus.formats.xml_elements import Found, elements, watch_elements
from mt_cli.corpus.languages import SPACELESS_CHARACTER
from mt_cli.corpus.rows import ReadReport, Row, is_of_word
from mt_cli.corpus.varieties import variety_of
from mt_cli.errors import CorpusError

_XML_LANG = "http://www.w3.org/XML/1998/namespace}lang"
_LANGUAGES_OF_TERMS = ("langSet", "langSec")
_SIDES = ("tuv", *_LANGUAGES_OF_TERMS)
_STATUS, _DISCOURAGED = "administrativeStatus", ("deprecated", "superseded")
_DRAFTS = frozenset(("new", "initial"))
_MACHINE = frozenset(("mt-suggestion", "leveraged-mt"))
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


def read_tmx(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Translation units; each side is the first segment of the variety of its code."""
    sides = first, second = variety_of(codes[0]), variety_of(codes[1])
    for line, unit, _ in elements(path, ("tu",)):
        texts = dict[str, str]()
        for variant in unit:
            variety = variety_of(_code_of(variant.attrib)) if variant.tag == "tuv" else ""
            segment = variant.find("seg") if variety in sides and variety not in texts else None
            if segment is not None:
                texts[variety], dropped = text_of_segment(segment)
                report.add_codes(dropped, path, line)
        yield line, texts.get(first, ""), texts.get(second, "")


def read_tbx(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Each source term of an entry with each of its target terms, the preferred ones first.

    Target terms that are deprecated or superseded are left out.
    """
    first, second = (variety_of(code) for code in codes)
    for line, entry, _ in elements(path, ("termEntry", "conceptEntry")):
        terms: dict[str, list[tuple[str, str]]] = {}
        for section in entry.iter():
            if section.tag in _LANGUAGES_OF_TERMS:
                terms.setdefault(variety_of(_code_of(section.attrib)), []).extend(_terms_in(section))
        targets = [row for row in terms.get(second, ()) if not row[0].startswith(_DISCOURAGED)]
        targets.sort(key=lambda row: not row[0].startswith("preferred"))
        for _, source in terms.get(first, [("", "")]):
            for _, target in targets or [("", "")]:
                yield line, source, target


def _terms_in(section: Element) -> Iterator[tuple[str, str]]:
    """Status (empty without one) and text of each term in a language."""
    for group in section.iter():
        if group.tag in ("tig", "ntig", "termSec"):
            statuses = (part.text or "" for part in group.iter() if _STATUS in (part.tag, part.get("type")))
            status = next(statuses, "")
            yield from ((status, "".join(term.itertext())) for term in group.iter("term"))


def varieties_in_units(path: Path) -> Counter[str]:
    """Number of segments or entries of each language code in TMX or TBX; raises CorpusError if it is damaged."""
    counts = Counter[str]()

    def count(tag: str, attributes: Mapping[str, str]) -> None:
        if tag.endswith(_SIDES) and (code := _code_of(attributes)) and tag.rpartition("}")[2] in _SIDES:
            counts[code] += 1

    watch_elements(path, count)
    return counts


def _code_of(attributes: Mapping[str, str]) -> str:
    return attributes.get(_XML_LANG) or attributes.get("lang") or ""


def read_xliff(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Segments of a file; drafts and machine translations count as missing unless `report` keeps them."""
    for unit in elements(path, ("trans-unit", "segment")):
        line, element, _ = unit
        source, target = element.find("source"), element.find("target")
        if source is None:
            raise CorpusError(f"{path}, line {line:,}: this <{element.tag}> has no <source>")
        texts = dict[str, str]()
        is_missing = _is_draft(element, target) and not report.keeps_drafts
        for code, side in zip(_codes_of(unit), (source, None if is_missing else target), strict=True):
            if side is not None and code and variety_of(code) not in texts:
                texts[variety_of(code)], dropped = text_of_segment(side)
                report.add_codes(dropped, path, line)
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
    if not (before and after and is_of_word(after)) or any(map(SPACELESS_CHARACTER.match, (before, after))):
        return False
    return is_of_word(before) or (before in ".!?…,;:" and after.isalpha())
