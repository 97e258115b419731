"""Reader of translation memories (TMX 1.4b, Translation Memory eXchange).

Each `<tu>...</tu>` is found in the text and parsed on its own, so damage ends with its unit. A unit has no document
type declaration: entities are never expanded, and no other file is read. Text between units is not examined.
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
from mt_cli.corpus.lines import LONGEST, not_utf8, opened, other_kind
from mt_cli.corpus.read_report import SKIP_HINT, DroppedCodes, Item, ReadOptions, Skipped
from mt_cli.corpus.rows import Columns, Languages, Names
from mt_cli.corpus.varieties import Varieties, Variety, chosen_varieties, plain_code, variety_of
from mt_cli.errors import CorpusError

_TOKEN = re.compile(
    r"<!--(?:-?[^-])*+(?:-->|-{0,2}\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|(?P<start><tu(?=[\s/>]))[^>]*(?:>|\Z)"
    r"|(?P<end></tu\s*>)|(?P<last></tmx\s*>)",
    re.DOTALL,
)
"""Comments (without `--` inside: otherwise a comment has lost its end), CDATA sections, and tags of units."""
_LONGEST_TAG = 100
"""Number of characters at the end of the text so far that may hold an incomplete tag."""
_CONTENT = re.compile(r"<(?:tuv|seg)[\s/>]")
_PIECE = 1 << 16
_DECLARED = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w.:-]+)")
_BEGINNINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BEGINNINGS |= {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_UNDECODABLE = re.compile("[\udc80-\udcff]")
_ADVICE = {
    re.compile(r"&(?!#?\w+;)"): "; write &amp; for &",
    re.compile(r"&(?!amp|lt|gt|quot|apos)\w+;"): "; write the character itself",
}
_SHOWN = 200
"""Number of characters on each side of an undecodable byte that are used to guess the encoding."""
_MANY_DAMAGED = 10
"""With more damaged units than this, and more damaged than intact ones, the whole file counts as damaged."""


@dataclass(frozen=True)
class Unit:
    """A translation unit."""

    line: int
    segments: list[tuple[str, Element]]
    """Code of the language and element of each segment."""
    num_without_segment: int
    """Number of `<tuv>` elements that have no `<seg>`."""


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
    varieties, num_units, num_without, first_line = Varieties(), 0, 0, 0
    for unit in _units(path, skip_damaged):
        if isinstance(unit, Unit):
            num_units += 1
            for code, _ in unit.segments:
                varieties.add(code)
            num_without += unit.num_without_segment
            first_line = first_line or unit.line * bool(unit.num_without_segment)
    if num_without:
        problem = f"a <tuv> has no <seg>, which should hold its text ({num_without:,} of them in this file)"
        varieties.problem = f"{path}, line {first_line:,}: {problem}"
    elif not num_units:
        varieties.problem = f"{path}: has no <tu>, so it holds no translation unit"
    return varieties


def names_in_tmx(path: Path) -> Names:
    """Languages of a file as codes for a config."""
    return Names(list(dict.fromkeys(map(plain_code, varieties_in(path).counts))), True)


def _units(path: Path, skip_damaged: bool) -> Iterator[Unit | Skipped]:
    """Units of a file. Raises CorpusError for the first damaged one or, if they are skipped, if most are damaged."""
    num_intact, num_damaged, first = 0, 0, ""
    for part in parts_of(_text_of(path)):
        unit = _unit(part)
        if isinstance(unit, Unit):
            num_intact += 1
            yield unit
            continue
        problem = f"{path}, {unit}"
        if not skip_damaged:
            advice = next((advice for pattern, advice in _ADVICE.items() if pattern.search(part.text)), "")
            raise CorpusError(f"{problem}{advice}; {SKIP_HINT}")
        num_damaged, first = num_damaged + 1, first or problem
        yield Skipped("unit", problem)
    if (num_damaged and not num_intact) or num_damaged > max(num_intact, _MANY_DAMAGED):
        amount = f"{num_damaged:,} of its {num_damaged + num_intact:,}" if num_intact else "all of its"
        raise CorpusError(
            f"{path}: {amount} units are damaged, so the fault may be that of the whole file, such as its encoding; "
            f"the first: {first}"
        )


def _unit(part: Part) -> Unit | str:
    """Unit in a part of a file, or the line and the problem if it is damaged."""
    line, problem = part.line, part.problem
    if not problem and not part.text.isascii() and (undecodable := _UNDECODABLE.search(part.text)):
        line += part.text.count("\n", 0, undecodable.start())
        before = part.text[: undecodable.start()][-_SHOWN:].encode()
        rest = part.text[undecodable.start() :][:_SHOWN].encode("utf-8", "surrogateescape")
        problem = not_utf8(before + rest, len(before))
    if not problem:
        try:
            unit = _element(part.text)
        except expat.ExpatError as error:
            line += error.lineno - 1
            problem = f"not well-formed XML: {expat.errors.messages[error.code]}"
    if not problem:
        variants = [(tuv, tuv.find("seg")) for tuv in unit.iter("tuv")]
        segments = [
            (tuv.get("xml:lang") or tuv.get("lang") or "", segment) for tuv, segment in variants if segment is not None
        ]
        if all(len(list(segment.iter("seg"))) == 1 for _, segment in segments):
            return Unit(part.line, segments, len(variants) - len(segments))
        problem = "<seg> within <seg>"
    return f"line {line:,}: {problem}"


def _element(text: str) -> Element:
    """XML without namespaces as an element."""
    builder, parser = TreeBuilder(), expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data
    parser.Parse(text.encode("utf-8", "surrogatepass"), True)
    return builder.close()


def _text_of(path: Path) -> Iterator[str]:
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
    """Units and damaged parts of a text; comments are no units, and text between units is no damage.

    Parts longer than `longest` characters are not held in memory, but are damaged.
    """
    scanner = _Scanner(longest)
    for piece in chain(pieces, [None]):
        yield from scanner.parts(piece)


class _Scanner:
    """Splits a text into parts piece by piece, and holds the text of the incomplete part."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._text, self._line = "", 1  # Line where the text begins, but for `_begin`.
        self._begin, self._place = 0, 0  # Where the next part begins, and where the search continues.
        self._is_open = False  # Whether the next part begins with `<tu`.
        self._is_complete = False  # Whether `</tmx>` was found.

    def parts(self, piece: str | None) -> Iterator[Part]:
        """Parts that end in one more piece of the text; None ends the text."""
        self._text = self._text[self._begin :] + (piece or "")
        self._place -= self._begin
        self._begin = 0
        size = len(self._text)
        while token := _TOKEN.search(self._text, self._place):
            may_be_incomplete = token.end() == size or token.start() > size - _LONGEST_TAG
            if piece is not None and may_be_incomplete and size - self._begin <= self._longest:
                break
            if not token[0].endswith(">"):  # It has lost its end.
                self._place = token.start() + 1
                continue
            self._place = token.end()
            self._is_complete |= token["last"] is not None
            yield from self._parts_at(token)
        yield from self._end() if piece is None else self._rest(size)

    def _parts_at(self, token: re.Match[str]) -> Iterator[Part]:
        """Parts that a token ends."""
        is_start, is_end = token["start"] is not None, token["end"] is not None
        if is_end:
            yield self._take(token.end(), "" if self._is_open else "its <tu> is missing")
        elif is_start and self._is_open:
            yield self._take(token.start(), "its </tu> is missing")
        elif not self._is_open:
            if _CONTENT.search(self._text, self._begin, token.start()):
                yield self._take(token.start(), "text outside of <tu>")
            self._drop(token.start() if is_start else token.end())
        if is_start:
            self._is_open = True
            if token[0].endswith("/>"):
                yield self._take(token.end(), "")

    def _rest(self, size: int) -> Iterator[Part]:
        """Drop text between units that cannot begin one, and take a part that is too long."""
        if not self._is_open and not _CONTENT.search(self._text, self._begin):
            self._drop(max(self._begin, self._place, size - _LONGEST_TAG))
        if size - self._begin > self._longest:
            yield self._take(size, f"more than {self._longest:,} characters without </tu>")

    def _end(self) -> Iterator[Part]:
        if self._is_open or _CONTENT.search(self._text, self._begin):
            yield self._take(len(self._text), "its </tu> is missing: the file seems to be cut off")
        elif not self._is_complete:
            yield self._take(len(self._text), "the end of the file is missing: it seems to be cut off")

    def _take(self, end: int, problem: str) -> Part:
        """Remove the text up to a place and return it as a part; damage without `<tu>` has the line of its content."""
        content = None if self._is_open else _CONTENT.search(self._text, self._begin, end)
        line = self._line + (self._text.count("\n", self._begin, content.start()) if content else 0)
        part = Part(line, self._text[self._begin : end], problem)
        self._drop(end)
        self._is_open = False
        return part

    def _drop(self, end: int) -> None:
        self._line += self._text.count("\n", self._begin, end)
        self._begin = end
        self._place = max(self._place, end)
