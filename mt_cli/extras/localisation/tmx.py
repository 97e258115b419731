"""Reader of translation memories (TMX 1.4b)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from xml.parsers import expat

from mt_cli.corpus.formats import Format
from mt_cli.corpus.languages import primary
from mt_cli.corpus.lines import CHUNK_BYTES, LONGEST, foreign_kind, not_utf8, opened
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.errors import CorpusError

_XML = expat.errors.codes
_DECLARE_UTF8 = "convert the file to UTF-8, and change the encoding in its first line"


def read_tmx(path: Path, languages: Languages, columns: Columns) -> Iterator[Row]:
    """The translation units of a TMX file (Translation Memory eXchange 1.4b); `en` also matches `en-US`."""
    units = _TranslationUnits(languages)
    parser, num_before, chunk = units.parser, 0, b""
    with opened(path) as file:
        try:
            while chunk := file.read(CHUNK_BYTES):
                parser.Parse(chunk, False)
                yield from units.take()
                num_before += len(chunk)
                if num_before - units.ended_at > LONGEST:
                    raise CorpusError(f"more than {LONGEST:,} bytes without the end of a translation unit")
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            hint = _encoding_hint(error.code, chunk, parser.ErrorByteIndex - num_before)
            problem = f"not well-formed XML: {expat.errors.messages.get(error.code, '')}{hint}"
            raise CorpusError(f"{path}, line {error.lineno:,}: {problem}") from None
        except CorpusError as error:
            raise CorpusError(f"{path}, line {parser.CurrentLineNumber:,}: {error}") from None
        except (LookupError, ValueError) as error:
            raise CorpusError(f"{path}, line 1: {error}; {_DECLARE_UTF8}") from None
    yield from units.take()


def _languages_in(path: Path) -> Names:
    """The languages of the units at the beginning of a TMX file, in their order."""
    found: dict[str, None] = {}

    def note(name: str, attributes: Mapping[str, str]) -> None:
        if name == "tuv":
            found[primary(attributes.get("xml:lang") or attributes.get("lang") or "")] = None

    parser = expat.ParserCreate()
    parser.StartElementHandler = note
    with opened(path) as file, suppress(expat.ExpatError, LookupError, ValueError):  # `read_file` will explain it.
        parser.Parse(file.read(CHUNK_BYTES), False)
    return Names([code for code in found if code], True)


TMX = Format(read_tmx, _languages_in)


def _encoding_hint(code: int, chunk: bytes, place: int) -> str:
    """A hint for an error of the XML parser at a place of a chunk."""
    if code in (_XML[expat.errors.XML_ERROR_UNKNOWN_ENCODING], _XML[expat.errors.XML_ERROR_INCORRECT_ENCODING]):
        return f"; {_DECLARE_UTF8}"
    if code != _XML[expat.errors.XML_ERROR_INVALID_TOKEN] or not 0 <= place < len(chunk):
        return ""
    problem: str | None
    if place < 4:
        problem = "; ".join(foreign_kind(chunk) or ())
    else:
        first = max(0, place - 200)
        problem = not_utf8(chunk[first : place + 200], place - first) if chunk[place] >= 0x80 else None
    return f"; {problem}" if problem else ""


class _TranslationUnits:
    """Collects rows from the events of an XML parser that loads no files and expands no entities."""

    _CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))
    """Inline elements with markup of the original format, which is dropped. The text of others is kept."""

    def __init__(self, languages: Languages) -> None:
        self._languages = languages
        self._rows: list[Row] = []
        self._open: list[str] = []  # Names of elements.
        self._line, self._language = 0, ""
        self._segments: dict[str, str] = {}
        self._text: list[str] | None = None
        self.ended_at = 0
        """The byte where the last unit ended."""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_entities
        self.parser.SkippedEntityHandler = self._refuse_entity

    def take(self) -> list[Row]:
        """The rows completed since the last call."""
        rows, self._rows = self._rows, []
        return rows

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in ("tu", "tuv", "seg") and name in self._open:
            raise CorpusError(f"<{name}> within <{name}>")
        if name == "tu":
            self._line, self._segments = self.parser.CurrentLineNumber, {}
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg" and self._open[-1:] == ["tuv"]:
            self._text = []
        self._open.append(name)

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg" and self._text is not None:
            self._segments.setdefault(self._language.lower().replace("_", "-"), "".join(self._text))
            self._text = None
        elif name == "tu":
            source, target = (self._segment(language.lower().replace("_", "-")) for language in self._languages)
            self._rows.append((self._line, source, target))
            self.ended_at = self.parser.CurrentByteIndex

    def _segment(self, language: str) -> str:
        """The segment in a language, by its whole code or by its primary subtag, or an empty string."""
        if language in self._segments:
            return self._segments[language]
        return next((text for code, text in self._segments.items() if primary(code) == primary(language)), "")

    def _characters(self, text: str) -> None:
        if self._text is not None and self._CODE.isdisjoint(self._open):
            self._text.append(text)

    def _refuse_entities(self, *declaration: object) -> None:
        raise CorpusError("the file declares XML entities, which translation memories do not need; refused")

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:
        mark = "%" if is_parameter else "&"
        raise CorpusError(f"the entity {mark}{name}; is unknown because no DTD is read; write the character itself")
