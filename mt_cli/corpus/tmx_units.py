"""Parser of the translation units of TMX. Loads no files and expands no entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from xml.parsers import expat

from mt_cli.corpus.inline_codes import SegmentText
from mt_cli.errors import CorpusError


@dataclass
class Unit:
    """One translation unit."""

    line: int
    segments: list[tuple[str, SegmentText]]
    """Each segment with the code of its language."""
    num_without_segment: int = 0
    """Number of `<tuv>` elements that have no `<seg>`."""
    line_without_segment: int = 0


class UnitParser:
    """An XML parser that collects translation units."""

    def __init__(self, keep_codes: bool = False, encoding: str | None = None) -> None:
        self._keep_codes = keep_codes
        self._units: list[Unit] = []
        self._unit: Unit | None = None
        self._open: list[str] = []  # Names of elements.
        self._language, self._line, self._has_segment = "", 0, False
        self._segment: SegmentText | None = None
        self.ended_at = 0
        """The byte where the last unit ended."""
        self.parser = expat.ParserCreate(encoding)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_entities
        self.parser.SkippedEntityHandler = self._refuse_entity

    def take(self) -> list[Unit]:
        """The units completed since the last call."""
        units, self._units = self._units, []
        return units

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in ("tu", "tuv", "seg") and name in self._open:
            raise CorpusError(f"<{name}> within <{name}>")
        line = self.parser.CurrentLineNumber
        if name == "tu":
            self._unit = Unit(line, [])
        elif name == "tuv":
            if self._unit is None:
                raise CorpusError("<tuv> outside of <tu>: the <tu> before it is missing")
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            self._line, self._has_segment = line, False
        elif name == "seg" and self._open[-1:] == ["tuv"]:
            self._segment, self._has_segment = SegmentText(self._keep_codes), True
        elif self._segment is not None:
            self._segment.start(name, attributes)
        self._open.append(name)

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg" and self._segment is not None and self._unit is not None:
            self._unit.segments.append((self._language, self._segment))
            self._segment = None
        elif self._segment is not None:
            self._segment.end()
        elif name == "tuv" and self._unit is not None and not self._has_segment:
            self._unit.line_without_segment = self._unit.line_without_segment or self._line
            self._unit.num_without_segment += 1
        elif name == "tu" and self._unit is not None:
            self._units.append(self._unit)
            self._unit = None
            self.ended_at = self.parser.CurrentByteIndex

    def _characters(self, text: str) -> None:
        if self._segment is not None:
            self._segment.characters(text)

    def _refuse_entities(self, *declaration: object) -> None:
        raise CorpusError("the file declares XML entities, which translation memories do not need; refused")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        mark = "%" if is_parameter else "&"
        raise CorpusError(f"the entity {mark}{name}; is unknown because no DTD is read; write the character itself")
