"""Translation memories (TMX 1.4b, Translation Memory eXchange)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

from mt_cli.corpus.formats.inline_codes import text_of_segment
from mt_cli.corpus.formats.xml_elements import elements
from mt_cli.corpus.read_report import DroppedCodes, Item
from mt_cli.corpus.varieties import ChosenVarieties, Varieties, variety_of
from mt_cli.errors import CorpusError

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, varieties: ChosenVarieties) -> Iterator[Item]:
    """Translation units; each side is the first segment of the variety of its language."""
    for line, segments in _units(path):
        texts = dict[str, str]()
        for code, segment in segments:
            variety = variety_of(code)
            if variety in varieties.sides and variety not in texts:
                texts[variety], codes = text_of_segment(segment)
                if codes:
                    yield DroppedCodes(len(codes), codes[0], f"{path}, line {line:,}")
        source, target = (texts.get(side, "") for side in varieties.sides)
        yield line, source, target


def varieties_in_tmx(path: Path) -> Varieties:
    """Languages of all segments of a file; raises CorpusError as `read_tmx` does."""
    varieties = Varieties()
    for _, segments in _units(path):
        for code, _ in segments:
            varieties.add(code)
    return varieties


def _units(path: Path) -> Iterator[tuple[int, list[tuple[str, Element]]]]:
    """Line of each unit, and the code of the language and the element of each of its segments."""
    for line, unit, _ in elements(path, ("tu",)):
        segments = []
        for variant in unit.iter("tuv"):
            segment = variant.find("seg")
            if segment is not None:
                if segment.find(".//seg") is not None:
                    raise CorpusError(f"{path}, line {line:,}: <seg> within <seg>")
                segments.append((variant.get(_XML_LANG) or variant.get("lang") or "", segment))
        yield line, segments
