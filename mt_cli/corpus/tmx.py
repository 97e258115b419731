"""Reader of translation memories (TMX 1.4b, Translation Memory eXchange).

Each unit `<tu>...</tu>` is parsed separately, so damage ends with its unit. A unit has no document type declaration:
entities are never expanded, and no other file is read. Text between units is not examined.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from mt_cli.corpus.inline_codes import SegmentText
from mt_cli.corpus.lines import LONGEST, opened, other_kind
from mt_cli.corpus.read_report import SKIP_HINT, DroppedCodes, Item, ReadOptions, Skipped
from mt_cli.corpus.rows import Columns, Languages, Names
from mt_cli.corpus.varieties import Varieties, Variety, chosen_varieties, plain_code, variety_of
from mt_cli.errors import CorpusError

_TOKEN = re.compile(
    r"<!--(?:-?[^-])*+(?:-->|-{0,2}\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|(?P<start><tu(?=[\s/>]))[^>]*(?:(?<!/)>|\Z)"
    r"|(?P<end></tu\s*>)|(?P<last></tmx\s*>)",
    re.DOTALL,
)
"""Comments, CDATA sections, and tags of units. A comment with `--` inside has lost its end."""
_LONGEST_TAG = 100
"""Number of characters at the end of the text so far that may hold an incomplete tag."""
_PIECE = 1 << 14
_DECLARED = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_BEGINNINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BEGINNINGS |= {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_UNDECODABLE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True)
class Unit:
    """A translation unit."""

    line: int
    segments: list[tuple[str, Element]]
    """Code of the language and element of each segment."""


class Part(NamedTuple):
    """Part of a file: a unit from `<tu` to `</tu>`, or damaged text."""

    line: int
    text: str
    problem: str


def read_tmx(path: Path, languages: Languages, columns: Columns, options: ReadOptions) -> Iterator[Item]:
    """Translation units; each side is the first segment of one variety of its language.

    `columns` name the varieties instead of `languages`. The varieties are chosen by the codes of all units, so the file
    is read twice. Raises CorpusError if a unit is damaged, unless `options.skip_damaged`.
    """
    varieties = options.varieties
    if varieties is None:
        varieties = chosen_varieties(varieties_in(path, options.skip_damaged), columns or languages, str(path))
        yield varieties
    for unit in _units(path, options.skip_damaged):
        if isinstance(unit, Skipped):
            yield unit
            continue
        sides = [_segment(unit, variety, options.keep_codes) for variety in varieties.sides]
        for side in sides:
            if side is not None and side.num_codes:
                yield DroppedCodes(side.num_codes, side.first_code, f"{path}, line {unit.line:,}")
        source, target = ("" if side is None else side.text for side in sides)
        yield unit.line, source, target


def _segment(unit: Unit, variety: Variety, keep_codes: bool) -> SegmentText | None:
    segments = (segment for code, segment in unit.segments if variety_of(code) == variety)
    return next((SegmentText(segment, keep_codes) for segment in segments), None)


def varieties_in(path: Path, skip_damaged: bool = False) -> Varieties:
    """Languages of all segments of a file; raises CorpusError as `read_tmx` does."""
    version = None
    with suppress(OSError, ValueError):  # `opened` explains what is wrong.
        status = path.stat()
        version = status.st_mtime_ns, status.st_size, status.st_ino
    return _varieties_in(path, skip_damaged, version)


@lru_cache(maxsize=1_000)
def _varieties_in(path: Path, skip_damaged: bool, version: object) -> Varieties:
    """Languages of a file; `version` changes with its content."""
    varieties = Varieties()
    for unit in _units(path, skip_damaged):
        for code, _ in unit.segments if isinstance(unit, Unit) else ():
            varieties.add(code)
    if not varieties.counts:
        varieties.problem = f"{path}: has no <tu> with segments, so it holds no translation unit"
    return varieties


def names_in_tmx(path: Path) -> Names:
    """Languages of a file as codes for a config."""
    return Names(list(dict.fromkeys(map(plain_code, varieties_in(path).counts))), True)


def _units(path: Path, skip_damaged: bool) -> Iterator[Unit | Skipped]:
    """Units of a file. Raises CorpusError for the first damaged unit; with `skip_damaged`, only if most are damaged."""
    num_intact, num_damaged, first = 0, 0, ""
    for part in parts_of(text_of(path)):
        unit = _unit(part)
        if isinstance(unit, Unit):
            num_intact += 1
            yield unit
            continue
        problem = f"{path}, {unit}"
        if not skip_damaged:
            raise CorpusError(f"{problem}; {SKIP_HINT}")
        num_damaged, first = num_damaged + 1, first or problem
        yield Skipped("unit", problem)
    if num_damaged > num_intact:
        raise CorpusError(
            f"{path}: {num_damaged:,} of its {num_damaged + num_intact:,} units are damaged, so the fault may be that "
            f"of the whole file, such as its encoding; the first: {first}"
        )


def _unit(part: Part) -> Unit | str:
    """Unit in a part of a file, or the line and the problem if it is damaged."""
    line, problem = part.line, part.problem
    if not problem and not part.text.isascii() and (undecodable := _UNDECODABLE.search(part.text)):
        line += part.text.count("\n", 0, undecodable.start())
        problem = "a character is not in the encoding of the file (UTF-8, if none is declared)"
    if not problem:
        try:
            variants = [(tuv, tuv.find("seg")) for tuv in element_of(part.text).iter("tuv")]
            segments = [(tuv.get("xml:lang") or tuv.get("lang") or "", seg) for tuv, seg in variants if seg is not None]
            if all(len(list(segment.iter("seg"))) == 1 for _, segment in segments):
                return Unit(part.line, segments)
            problem = "<seg> within <seg>"
        except expat.ExpatError as error:
            line += error.lineno - 1
            problem = f"not well-formed XML: {expat.errors.messages[error.code]}"
    return f"line {line:,}: {problem}"


def element_of(text: str) -> Element:
    """XML without namespaces as an element."""
    builder, parser = TreeBuilder(), expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    return builder.close()


def text_of(path: Path) -> Iterator[str]:
    """Text of a file in pieces; bytes that are not in its encoding become surrogates or, in UTF-16, U+FFFD."""
    with opened(path) as file:
        beginning = file.peek(_PIECE)[:8192]
        encoding = next((name for mark, name in _BEGINNINGS.items() if beginning.startswith(mark)), None)
        if encoding is None and (problem := other_kind(beginning)):
            raise CorpusError(f"{path}: {problem}")
        declared = _DECLARED.search(beginning)
        encoding = encoding or (declared[1].decode("ascii") if declared else "utf-8")
        is_wide = re.match("utf[-_]?(16|32)", encoding, re.IGNORECASE)
        try:
            text = io.TextIOWrapper(file, encoding, "replace" if is_wide else "surrogateescape")
            while piece := text.read(_PIECE):
                yield piece
        except (LookupError, UnicodeError) as error:
            advice = "correct the encoding in this line, or convert the file to UTF-8"
            raise CorpusError(f"{path}, line 1: not {encoding}: {error}; {advice}") from None


def parts_of(pieces: Iterable[str], longest: int = LONGEST) -> Iterator[Part]:
    """Units and damaged parts of a text; a commented unit does not count, and text between units is not damage.

    A part longer than `longest` characters counts as damaged and is not held in memory.
    """
    text, line = "", 1  # Text that is not yet in a part, and its first line. An open unit begins with it.
    place, is_open, is_complete = 0, False, False
    for piece in chain(pieces, [None]):
        text += piece or ""
        while token := _TOKEN.search(text, place):
            may_be_incomplete = token.end() == len(text) or token.start() > len(text) - _LONGEST_TAG
            if piece is not None and may_be_incomplete and len(text) <= longest:
                break
            if not token[0].endswith(">"):  # The token has lost its end.
                place = token.start() + 1
                continue
            place = token.end()
            is_complete |= token["last"] is not None
            if token["end"] or (token["start"] and is_open):
                end = token.end() if token["end"] else token.start()
                problem = "" if is_open and token["end"] else f"its {'</tu>' if is_open else '<tu>'} is missing"
                yield Part(line if is_open else line + text.count("\n", 0, end), text[:end], problem)
                is_open = False
            if token["end"] or token["start"]:
                end, is_open = (token.start(), True) if token["start"] else (token.end(), False)
                line, text, place = line + text.count("\n", 0, end), text[end:], place - end
        if piece is None and (is_open or not is_complete):
            missing = "its </tu>" if is_open else "the end of the file"
            yield Part(line, text, f"{missing} is missing: it seems to be cut off")
        if is_open and len(text) > longest:
            yield Part(line, text, f"more than {longest:,} characters without </tu>")
            is_open = False
        place = max(place, token.start() if token else len(text) - _LONGEST_TAG)
        if not is_open:
            line, text, place = line + text.count("\n", 0, place), text[place:], 0
