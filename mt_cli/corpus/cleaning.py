"""Filters: the status of each pair.

A block of rows is filtered column by column. A pair gets the status of the first filter that drops it; statuses are
named like the options of `corpus.filters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.languages import COMMON_WORDS, primary, scripts_of, words_of
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.text_hashes import Hashes, hash_of, hashes_of
from mt_cli.errors import CorpusError

Mask = NDArray[np.bool_]

_GARBLED = "|".join(
    (
        r"[\x00-\x08\x0e-\x1b\x7f-\x{84}\x{86}-\x{9f}]|\x{fffd}",
        r"[ÃÂ][\x{a1}-\x{aa}\x{ac}-\x{ba}\x{bc}-\x{bf}]|Ã[ŠŒŽšœžŸƒˆ‰‡†€]|(?:^|[^\p{Lu}])[ÃÂ]«",
        # Good text has these letters before a space or a mark, but not after a small letter: `« Â »`, `«AMANHÃ»`.
        r"\p{Ll}[ÃÂ](?:\P{L}|$)|(?:^|[ \d.,;:!?)('’%-])[ÃÂ]\x{a0}",
        r"â€[\x{80}-\x{bf}œ™˜“”¦]|Ð[\x{80}-\x{bf}]Ñ",
    )
)
"""Control characters, U+FFFD, and UTF-8 decoded as Latin-1 or Windows-1252."""
_ADDED_CHARACTERS = 10
_FEWEST_TEXTS, _FACTOR_OF_MARKERS = 10, 2.5
"""A marker stands for this many different texts, which are on average this many times as long as translations of it
would be, after adding 10 characters. In good text, a translation that is so short stands for at most three."""
_HASH_MULTIPLIER = np.int64(-7046029254386353131)
"""2^64 divided by the golden ratio, an odd number. It combines two hashes so that their order matters."""


class _Side(NamedTuple):
    """One side of a block of rows."""

    raw: Sequence[str]
    """Texts as they were read."""
    texts: Sequence[str]
    """Texts with normalised white space."""
    column: pa.StringArray
    language: str

    def lengths(self) -> NDArray[np.int32]:
        return np.asarray(pc.utf8_length(self.column))


_Sides = Sequence[_Side]


def _any_side(find: Callable[[_Side, Any], Mask]) -> Callable[[_Sides, Any], Mask]:
    """Filter of the pairs with a side that is dropped."""
    return lambda sides, value: find(sides[0], value) | find(sides[1], value)


def _is_garbled(side: _Side, _: bool) -> Mask:
    return matches(pa.array(side.raw), _GARBLED)  # A no-break space is a part of the damage.


def _are_identical(sides: _Sides, _: bool) -> Mask:
    """Mask of the pairs whose sides are equal and have letters; a number is its own translation."""
    return np.asarray(pc.equal(sides[0].column, sides[1].column)) & matches(sides[0].column, r"\p{L}")


def _are_unequal(sides: _Sides, ratio: float) -> Mask:
    shorter, longer = np.sort(np.stack([side.lengths() for side in sides]) + _ADDED_CHARACTERS, axis=0)
    return np.asarray(longer > ratio * shorter)


def _outside_script(side: _Side) -> Mask:
    """Mask of the texts with less than half of their letters in the scripts of their language."""
    scripts = scripts_of(side.language)
    if scripts is None:
        return np.zeros(len(side.texts), dtype=bool)
    inside = "".join(rf"\p{{{script}}}" for script in scripts)
    foreign_letter = rf"[^\P{{L}}{inside}]"
    mask = matches(side.column, foreign_letter)  # Fast; letters are counted only in the matches.
    if len(rows := np.flatnonzero(mask)):
        examined = side.column.take(pa.array(rows))
        num_letters, num_foreign = (
            np.asarray(pc.count_substring_regex(examined, pattern)) for pattern in (r"\p{L}", foreign_letter)
        )
        mask[rows] = 2 * num_foreign > num_letters
    return mask


def _in_another_language(side: _Side) -> Mask:
    """Mask of the texts with three common words of another known language, and none of their own."""
    code = primary(side.language)
    expected = COMMON_WORDS.get(code)
    if expected is None:
        return np.zeros(len(side.texts), dtype=bool)
    # RE2 has no Unicode word boundaries. With a space at both ends of the text, each word is between two marks.
    padded = pc.binary_join_element_wise("", side.column, "", " ")
    mask = ~matches(padded, rf"(?i)[\s\pP](?:{'|'.join(sorted(expected))})[\s\pP]")
    # Words that related languages share, such as Norwegian, Danish and Swedish, do not count.
    foreign = [common - expected for other, common in COMMON_WORDS.items() if other != code]
    for row in np.flatnonzero(mask).tolist():
        words = words_of(side.texts[row])
        mask[row] = not words & expected and any(len(words & common) >= 3 for common in foreign)
    return mask


def matches(column: pa.StringArray, pattern: str) -> Mask:
    """Mask of the texts with a match of an RE2 pattern."""
    return np.array(pc.match_substring_regex(column, pattern))


_FILTERS: Mapping[str, Callable[[_Sides, Any], Mask]] = {
    "garbled": _any_side(_is_garbled),
    "identical": _are_identical,
    "max_characters": _any_side(lambda side, most: side.lengths() > most),
    "max_length_ratio": _are_unequal,
    "wrong_language": _any_side(lambda side, _: _outside_script(side) | _in_another_language(side)),
}
"""Filters of single pairs by option, in order: masks of the pairs to drop, given both sides and the option's value."""
_BLANK = ("blank_source", "blank_target", "blank_pair")
STATUS_NAMES = ("kept", "held_out", *_BLANK, *_FILTERS, "markers", "duplicates", "overlap", "max_tokens")
"""Statuses of pairs; the index is the code. `held_out` is for `valid: {fraction: ...}`."""
STATUS_CODES = {name: code for code, name in enumerate(STATUS_NAMES)}
KEPT, HELD_OUT = STATUS_CODES["kept"], STATUS_CODES["held_out"]


@dataclass(frozen=True)
class Block:
    """Rows as columns with normalised white space, the status of each row, and hashes."""

    numbers: NDArray[np.int64]
    source: pa.StringArray
    target: pa.StringArray
    statuses: NDArray[np.uint8]
    """Index into `STATUS_NAMES` of each row."""
    hashes: Hashes
    """Hashes of the sources without tags, of the targets, and of the pairs with tags; then the numbers of characters of
    both sides, 5xN."""

    def __len__(self) -> int:
        return len(self.numbers)

    def tagged(self, tag: str) -> Block:
        """Copy with a tag before each source sentence."""
        hashes = self.hashes.copy()
        hashes[2] += np.array(hash_of(tag), np.uint64).view(np.int64)
        return replace(self, source=pc.binary_join_element_wise(tag, self.source, " "), hashes=hashes)

    def kept_texts(self) -> tuple[list[str], list[str]]:
        mask = pa.array(self.statuses == KEPT)
        return self.source.filter(mask).to_pylist(), self.target.filter(mask).to_pylist()


def clean(rows: Sequence[Row], filters: FilterConfig | None, languages: Languages) -> Block:
    """Normalise white space and apply the filters of single rows; with `filters` None, drop only blank sides."""
    numbers, *raw = zip(*rows, strict=True)
    texts = [[" ".join(text.split()) for text in side] for side in raw]
    source, target = columns = [pa.array(side, pa.string()) for side in texts]
    blank_source, blank_target = (np.asarray(pc.equal(column, "")) for column in columns)
    statuses = np.zeros(len(rows), dtype=np.uint8)
    statuses[blank_source], statuses[blank_target] = STATUS_CODES["blank_source"], STATUS_CODES["blank_target"]
    statuses[blank_source & blank_target] = STATUS_CODES["blank_pair"]
    sides = [*map(_Side, raw, texts, columns, languages)]
    for name, find in _FILTERS.items() if filters is not None else ():
        if value := getattr(filters, name):
            statuses[(statuses == KEPT) & find(sides, value)] = STATUS_CODES[name]
    hashes = [hashes_of(side, language) for side, language in zip(texts, languages, strict=True)]
    hashes.append(hashes[0] * _HASH_MULTIPLIER + hashes[1])
    return Block(
        np.array(numbers, np.int64), source, target, statuses, np.stack([*hashes, *(side.lengths() for side in sides)])
    )


def are_foreign(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> Mask:
    """Mask of the pairs with a side that seems to be in another script or language than expected."""
    texts = (sources, targets)
    sides = [*map(_Side, texts, texts, [pa.array(side, pa.string()) for side in texts], languages)]
    return _FILTERS["wrong_language"](sides, True)


def drop_repeated(
    statuses: NDArray[np.uint8],
    hashes: Hashes,
    filters: Sequence[tuple[int, FilterConfig]],
    evaluation_hashes: Hashes,
) -> None:
    """Drop kept rows because of other rows: duplicates, and sentences of evaluation sets in the same language.

    `filters` has the length and the filters of each span of rows, and `hashes` those of `Block`. Markers are found
    in all rows that are not blank.
    """
    lengths = [length for length, _ in filters]

    def repeated(rows: NDArray[np.intp]) -> Mask:
        is_repeated = np.ones(len(rows), dtype=bool)
        is_repeated[np.unique(hashes[2, rows], return_index=True)[1]] = False
        return is_repeated

    def overlapping(rows: NDArray[np.intp]) -> Mask:
        sentences = pa.array(evaluation_hashes)
        source, target = (pc.is_in(pa.array(side[rows]), value_set=sentences) for side in hashes[:2])
        return np.asarray(pc.or_(source, target))

    found = ("markers", lambda rows: _are_markers(statuses, hashes)[rows]), ("duplicates", repeated)
    for name, find in (*found, ("overlap", overlapping)):
        is_on = np.repeat(np.array([getattr(options, name) for _, options in filters], bool), lengths)
        if is_on.any():
            rows = np.flatnonzero(statuses == KEPT)
            statuses[rows[find(rows) & is_on[rows]]] = STATUS_CODES[name]


def _are_markers(statuses: NDArray[np.uint8], hashes: Hashes) -> Mask:
    """Mask of the rows with a side that stands for many different texts which are far longer than it."""
    mask = np.zeros(len(statuses), dtype=bool)
    rows = np.flatnonzero(~np.isin(statuses, [STATUS_CODES[name] for name in _BLANK]))
    _, first_rows = np.unique(hashes[0, rows] * _HASH_MULTIPLIER + hashes[1, rows], return_index=True)
    distinct = rows[first_rows]
    if len(distinct) < _FEWEST_TEXTS:
        return mask
    for side in (0, 1):
        length, other_length = hashes[[3 + side, 4 - side]] + _ADDED_CHARACTERS
        texts, numbers, counts = np.unique(hashes[side, distinct], return_inverse=True, return_counts=True)
        usual = max(1.0, other_length[distinct].mean() / length[distinct].mean())
        ratios = np.bincount(numbers, other_length[distinct] / length[distinct]) / counts
        markers = texts[(counts >= _FEWEST_TEXTS) & (ratios >= _FACTOR_OF_MARKERS * usual)]
        mask |= np.isin(hashes[side], markers)
    return mask


def hold_out(
    statuses: NDArray[np.uint8],
    hashes: Hashes,
    filters: Sequence[tuple[int, FilterConfig]],
    fraction: float,
    keys: NDArray[np.uint64],
    natural: Sequence[bool],
) -> None:
    """Mark a fraction of the kept rows as held out, and drop other rows that contain a held-out sentence.

    Rows come from the spans of `filters` for which `natural` is true. Only `keys`, hashes of the rows, decide, so a
    held-out row stays held out when rows are added. Raises CorpusError if `train` or `valid` would be empty.
    """
    rows = np.flatnonzero((statuses == KEPT) & np.repeat(natural, [length for length, _ in filters]))
    is_chosen = keys[rows] < np.uint64(fraction * 2.0**64)
    if not is_chosen.any() and round(fraction * len(rows)):
        is_chosen = keys[rows] == keys[rows].min()
    if not is_chosen.any() or (is_chosen.all() and len(rows) == np.count_nonzero(statuses == KEPT)):
        raise CorpusError(f"corpus.valid: a share of {fraction} of {len(rows):,} pairs leaves `train` or `valid` empty")
    held_out = rows[is_chosen]
    statuses[held_out] = HELD_OUT
    overlap_only = [
        (length, FilterConfig(markers=False, duplicates=False, overlap=options.overlap)) for length, options in filters
    ]
    drop_repeated(statuses, hashes, overlap_only, np.concatenate([*hashes[:2, held_out]]))
