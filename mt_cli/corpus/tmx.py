"""Reader of translation memories (TMX 1.4b)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from xml.parsers import expat

from mt_cli.corpus.lines import CHUNK_BYTES, LONGEST, foreign_kind, not_utf8, opened
from mt_cli.corpus.record import SKIP_HINT, Reading, Record
from mt_cli.corpus.rows import Columns, Languages, Names, Row
from mt_cli.corpus.tmx_damaged import intact_units
from mt_cli.corpus.tmx_units import Unit, UnitParser
from mt_cli.corpus.varieties import Varieties, Variety, chosen_varieties, plain_code, variety_of
from mt_cli.errors import CorpusError

_XML = expat.errors.codes
_DECLARE_UTF8 = "convert the file to UTF-8, and change the encoding in its first line"

_MANY_DAMAGED = 10
"""From this number on, damage of more than half of the units is that of the whole file."""


def read_tmx(path: Path, languages: Languages, columns: Columns, reading: Reading) -> Iterator[Row]:
    """The translation units of a TMX file (Translation Memory eXchange 1.4b).

    Each side is the first segment of one variety of its language; `columns` name the varieties instead of `languages`.
    """
    record, varieties = reading.record, reading.varieties
    if varieties is None:
        found = varieties_in(path, reading.skip_damaged)
        varieties = chosen_varieties(found, columns or languages, str(path), record)
    for unit in _units(path, reading.skip_damaged, reading.keep_codes, record):
        record.num_read["unit"] += 1
        source, target = (_side(unit, variety, path, record) for variety in varieties)
        yield unit.line, source, target


def _side(unit: Unit, variety: Variety, path: Path, record: Record) -> str:
    """The first segment of a unit in a variety, or an empty string."""
    segment = next((segment for code, segment in unit.segments if variety_of(code) == variety), None)
    if segment is None:
        return ""
    if segment.num_codes:
        record.leave_out_codes(segment.num_codes, segment.first_code, f"{path}, line {unit.line:,}")
    return segment.text


def varieties_in(path: Path, skip_damaged: bool = False) -> Varieties:
    """The languages of all segments of a file; raises CorpusError as `read_tmx` does."""
    version = None
    with suppress(OSError, ValueError):  # `opened` explains what is wrong.
        status = path.stat()
        version = status.st_mtime_ns, status.st_size, status.st_ino
    return _varieties_in(path, skip_damaged, version)


@lru_cache(maxsize=1_000)
def _varieties_in(path: Path, skip_damaged: bool, version: object) -> Varieties:
    """The languages of a file; `version` changes with its content."""
    varieties, num_units, num_without, line_without = Varieties(), 0, 0, 0
    for unit in _units(path, skip_damaged, False, Record()):
        num_units += 1
        for code, _ in unit.segments:
            varieties.add(code)
        num_without += unit.num_without_segment
        line_without = line_without or unit.line_without_segment
    if num_without:
        problem = f"a <tuv> has no <seg>, which should hold its text ({num_without:,} of them in this file)"
        varieties.problem = f"{path}, line {line_without:,}: {problem}"
    elif not num_units:
        varieties.problem = f"{path}: has no <tu>, so it holds no translation unit"
    return varieties


def names_in_tmx(path: Path) -> Names:
    """The languages of a TMX file, as codes for a config."""
    return Names(list(dict.fromkeys(map(plain_code, varieties_in(path).counts))), True)


def _units(path: Path, skip_damaged: bool, keep_codes: bool, record: Record) -> Iterator[Unit]:
    """The units of a file; damaged ones are recorded, or raise CorpusError."""
    if not skip_damaged:
        yield from _units_of_xml(path, keep_codes)
        return
    num_intact, before = 0, record.num_skipped["unit"]

    def skip(line: int, problem: str) -> None:
        record.num_read["unit"] += 1
        record.skip("unit", f"{path}, line {line:,}: {problem}")

    for unit in intact_units(path, keep_codes, skip):
        num_intact += 1
        yield unit
    number = record.num_skipped["unit"] - before
    if (number and not num_intact) or number > max(num_intact, _MANY_DAMAGED):
        amount = f"{number:,} of its {number + num_intact:,}" if num_intact else "all of its"
        raise CorpusError(
            f"{path}: {amount} units are damaged, so the fault may be that of the whole file, such as its encoding; "
            f"the first: {record.skipped['unit'][0]}"
        )


def _units_of_xml(path: Path, keep_codes: bool) -> Iterator[Unit]:
    """The units of well-formed XML."""
    units = UnitParser(keep_codes)
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
            hint = _hint(error.code, chunk, parser.ErrorByteIndex - num_before)
            problem = f"not well-formed XML: {expat.errors.messages.get(error.code, '')}{hint}"
            raise CorpusError(f"{path}, line {error.lineno:,}: {problem}") from None
        except CorpusError as error:
            raise CorpusError(f"{path}, line {parser.CurrentLineNumber:,}: {error}; {SKIP_HINT}") from None
        except (LookupError, ValueError) as error:
            raise CorpusError(f"{path}, line 1: {error}; {_DECLARE_UTF8}") from None
    yield from units.take()


def _hint(code: int, chunk: bytes, place: int) -> str:
    """What to do about an error of the XML parser at a place of a chunk."""
    if code in (_XML[expat.errors.XML_ERROR_UNKNOWN_ENCODING], _XML[expat.errors.XML_ERROR_INCORRECT_ENCODING]):
        return f"; {_DECLARE_UTF8}"
    if code == _XML[expat.errors.XML_ERROR_UNDEFINED_ENTITY]:
        return f"; write the character itself; {SKIP_HINT}"
    if code != _XML[expat.errors.XML_ERROR_INVALID_TOKEN] or not 0 <= place < len(chunk):
        return f"; {SKIP_HINT}"
    problem: str | None = None
    if b"&" in chunk[max(0, place - 1) : place + 1]:
        return f"; write &amp; for &; {SKIP_HINT}"
    if place < 4:
        problem = "; ".join(foreign_kind(chunk) or ())
    else:
        first = max(0, place - 200)
        problem = not_utf8(chunk[first : place + 200], place - first) if chunk[place] >= 0x80 else None
    return f"; {problem or SKIP_HINT}"
