"""Translation memories (TMX 1.4b, Translation Memory eXchange)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from mt_cli.corpus.formats.inline_codes import text_of_segment
from mt_cli.corpus.formats.xml_elements import elements, text_of
from mt_cli.corpus.read_report import DroppedCodes, Item
from mt_cli.corpus.varieties import ChosenVarieties, Varieties, variety_of

_LANGUAGE = re.compile(r"<tuv\s(?:[^<>]*?\s)?(?:xml:)?lang\s*=\s*[\"']([^\"'<>]*)")
_XML_LANG = "http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, varieties: ChosenVarieties) -> Iterator[Item]:
    """Translation units; each side is the first segment of the variety of its language."""
    sides = first, second = varieties.sides
    for line, unit, _ in elements(path, ("tu",)):
        texts = dict[str, str]()
        for variant in unit:
            variety = variety_of(variant.get(_XML_LANG) or variant.get("lang") or "") if variant.tag == "tuv" else ""
            if variety not in sides or variety in texts:
                continue
            segment = next((child for child in variant if child.tag == "seg"), None)
            if segment is not None:
                texts[variety], codes = text_of_segment(segment)
                if codes:
                    yield DroppedCodes(len(codes), codes[0], f"{path}, line {line:,}")
        yield line, texts.get(first, ""), texts.get(second, "")


def varieties_in_tmx(path: Path) -> Varieties:
    """Languages of all segments of a file, which is not parsed; damage is found when it is read."""
    counts, rest = Counter[str](), ""
    for piece in text_of(path):
        text, bracket, rest = (rest + piece).rpartition("<")
        counts.update(_LANGUAGE.findall(text))
        rest = bracket + rest
    varieties = Varieties()
    for code, number in counts.items():
        varieties.add(unescape(code), number)
    return varieties
