"""Translation memories (TMX 1.4b, Translation Memory eXchange)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from mt_cli.corpus.formats.inline_codes import text_of_segment
from mt_cli.corpus.formats.xml_elements import elements, text_of
from mt_cli.corpus.read_report import ReadReport
from mt_cli.corpus.rows import Row
from mt_cli.corpus.varieties import variety_of

_LANGUAGE = re.compile(r"<tuv\s(?:[^<>]*?\s)?(?:xml:)?lang\s*=\s*[\"']([^\"'<>]*)")
_XML_LANG = "http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, codes: tuple[str, str], report: ReadReport) -> Iterator[Row]:
    """Translation units; each side is the first segment of the variety of its code."""
    sides = first, second = variety_of(codes[0]), variety_of(codes[1])
    for line, unit, _ in elements(path, ("tu",)):
        texts = dict[str, str]()
        for variant in unit:
            variety = variety_of(variant.get(_XML_LANG) or variant.get("lang") or "") if variant.tag == "tuv" else ""
            segment = variant.find("seg") if variety in sides and variety not in texts else None
            if segment is not None:
                texts[variety], dropped = text_of_segment(segment)
                report.add_codes(dropped, f"{path}, line {line:,}")
        yield line, texts.get(first, ""), texts.get(second, "")


def varieties_in_tmx(path: Path) -> Counter[str]:
    """Number of segments of each language code in a file, which is not parsed; damage is found when it is read."""
    counts, rest = Counter[str](), ""
    for piece in text_of(path):
        text, bracket, rest = (rest + piece).rpartition("<")
        counts.update(map(unescape, _LANGUAGE.findall(text)))
        rest = bracket + rest
    return counts
