"""Filters: the status of each pair.

A block of rows is filtered column by column. A pair gets the status of the first filter that drops it; statuses are
named like the options of `corpus.filters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
_DEFAULT_SCRIPT_SHARE = 0.5
_HASH_MULTIPLIER = np.int64(-7046029254386353131)
"""2^64 divided by the golden ratio, an odd number. It combines two hashes so that their order matters."""


@dataclass(frozen=True)
class _Pairs:
    """Both sides of a block of rows, with their languages."""

    raw: Sequence[Sequence[str]]
    """Texts as they were read."""
    texts: Sequence[Sequence[str]]
    """Texts with normalised white space."""
    sides: Sequence[pa.StringArray]
    """`texts` as columns."""
    languages: Languages

    def any_side(self, is_wrong: Callable[[int], Mask]) -> Mask:
        """Mask of the pairs with a wrong side, of which there are number 0 and number 1."""
        return is_wrong(0) | is_wrong(1)

    def lengths(self) -> NDArray[np.int64]:
        """Number of characters of each text, 2xN."""
        return np.stack([pc.utf8_length(side).to_numpy(zero_copy_only=False) for side in self.sides])


def _is_garbled(pairs: _Pairs, _: bool) -> Mask:
    # A no-break space is a part of the damage.
    return pairs.any_side(lambda side: _matches(pa.array(pairs.raw[side]), _GARBLED))


def _is_identical(pairs: _Pairs, _: bool) -> Mask:
    """Mask of the pairs whose sides are equal and have letters; a number is its own translation."""
    source, target = pairs.sides
    return _mask(pc.equal(source, target)) & _matches(source, r"\p{L}")


def _is_too_long(pairs: _Pairs, most: int) -> Mask:
    mask: Mask = pairs.lengths().max(axis=0) > most
    return mask


def _is_unequal(pairs: _Pairs, ratio: float) -> Mask:
    shorter, longer = np.sort(pairs.lengths() + _ADDED_CHARACTERS, axis=0)
    mask: Mask = longer > ratio * shorter
    return mask


def _is_outside_script(pairs: _Pairs, share: float) -> Mask:
    return pairs.any_side(lambda side: _outside_script(pairs.sides[side], pairs.languages[side], share))


def _is_in_another_language(pairs: _Pairs, _: bool) -> Mask:
    sides, texts, languages = pairs.sides, pairs.texts, pairs.languages
    return pairs.any_side(lambda side: _in_another_language(sides[side], texts[side], languages[side]))


_FILTERS: Mapping[str, Callable[[_Pairs, Any], Mask]] = {
    "garbled": _is_garbled,
    "identical": _is_identical,
    "max_characters": _is_too_long,
    "max_length_ratio": _is_unequal,
    "min_script_share": _is_outside_script,
    "wrong_language": _is_in_another_language,
}
"""Filters of single pairs by option: each gets the value of the option, and returns the mask of the pairs to drop."""
_BLANK = ("blank_source", "blank_target", "blank_pair")
STATUS_NAMES = ("kept", "held_out", *_BLANK, *_FILTERS, "duplicates", "overlap", "max_tokens")
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
    """Hashes of the sources without tags, of the targets, and of the pairs with tags, 3xN."""

    def __len__(self) -> int:
        return len(self.numbers)

    def tagged(self, tag: str) -> Block:
        """Copy with a tag before each source sentence."""
        source, target, pair = self.hashes
        hashes = np.stack([source, target, pair + np.array(hash_of(tag), np.uint64).view(np.int64)])
        return replace(self, source=pc.binary_join_element_wise(tag, self.source, " "), hashes=hashes)

    def kept_texts(self) -> tuple[list[str], list[str]]:
        """Sources and targets of the kept rows."""
        mask = pa.array(self.statuses == KEPT)
        return self.source.filter(mask).to_pylist(), self.target.filter(mask).to_pylist()


def clean(rows: Sequence[Row], filters: FilterConfig | None, languages: Languages) -> Block:
    """Normalise white space and apply the filters of single rows; with `filters` None, drop only blank sides."""
    numbers, *raw = zip(*rows, strict=True)
    texts = [[" ".join(text.split()) for text in side] for side in raw]
    source, target = sides = [pa.array(side, pa.string()) for side in texts]
    blank_source, blank_target = (_mask(pc.equal(pc.binary_length(side), 0)) for side in sides)
    statuses = np.zeros(len(rows), dtype=np.uint8)
    statuses[blank_source], statuses[blank_target] = STATUS_CODES["blank_source"], STATUS_CODES["blank_target"]
    statuses[blank_source & blank_target] = STATUS_CODES["blank_pair"]
    pairs = _Pairs(raw, texts, sides, languages)
    for name, find in _FILTERS.items() if filters is not None else ():
        if value := getattr(filters, name):
            statuses[(statuses == KEPT) & find(pairs, value)] = STATUS_CODES[name]
    hashes = [hashes_of(side, language) for side, language in zip(texts, languages, strict=True)]
    hashes.append(hashes[0] * _HASH_MULTIPLIER + hashes[1])
    return Block(np.array(numbers, np.int64), source, target, statuses, np.stack(hashes))


def _mask(values: pa.BooleanArray) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask


def _matches(side: pa.StringArray, pattern: str) -> Mask:
    return _mask(pc.match_substring_regex(side, pattern))


def _outside_script(side: pa.StringArray, language: str, min_share: float) -> Mask:
    """Mask of the texts with less than `min_share` of their letters in the scripts of their language."""
    scripts = scripts_of(language)
    if scripts is None:
        return np.zeros(len(side), dtype=bool)
    inside = "".join(rf"\p{{{script}}}" for script in scripts)
    foreign_letter = rf"[^\P{{L}}{inside}]"
    mask = _matches(side, foreign_letter)  # Fast; letters are counted only in the matches.
    if len(rows := np.flatnonzero(mask)):
        examined = side.take(pa.array(rows))
        num_letters, num_foreign = (
            pc.count_substring_regex(examined, pattern).to_numpy(zero_copy_only=False)
            for pattern in (r"\p{L}", foreign_letter)
        )
        mask[rows] = num_letters - num_foreign < min_share * num_letters
    return mask


def _in_another_language(side: pa.StringArray, texts: Sequence[str], language: str) -> Mask:
    """Mask of the texts with three common words of another known language, and none of their own."""
    code = primary(language)
    expected = COMMON_WORDS.get(code)
    if expected is None:
        return np.zeros(len(texts), dtype=bool)
    # RE2 has no Unicode word boundaries. With a space at both ends of the text, each word is between two marks.
    padded = pc.binary_join_element_wise("", side, "", " ")
    mask = ~_matches(padded, rf"(?i)[\s\pP](?:{'|'.join(sorted(expected))})[\s\pP]")
    # Words that related languages share, such as Norwegian, Danish and Swedish, do not count.
    foreign = [common - expected for other, common in COMMON_WORDS.items() if other != code]
    for row in np.flatnonzero(mask).tolist():
        words = words_of(texts[row])
        mask[row] = not words & expected and any(len(words & common) >= 3 for common in foreign)
    return mask


def are_foreign(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> Mask:
    """Mask of the pairs with a side that seems to be in another script or language than expected."""
    texts = (sources, targets)
    pairs = _Pairs(texts, texts, [pa.array(side, pa.string()) for side in texts], languages)
    return _is_outside_script(pairs, _DEFAULT_SCRIPT_SHARE) | _is_in_another_language(pairs, True)


def seem_swapped(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> bool:
    """True if most pairs are in the wrong languages, but few are once the sides are exchanged."""
    return bool(
        primary(languages[0]) != primary(languages[1])
        and are_foreign(sources, targets, languages).mean() > 0.5
        and are_foreign(targets, sources, languages).mean() < 0.25
    )


def drop_repeated(
    statuses: NDArray[np.uint8],
    hashes: Hashes,
    filters: Sequence[tuple[int, FilterConfig]],
    evaluation_hashes: Hashes,
) -> None:
    """Drop kept rows because of other rows: duplicates, and sentences of evaluation sets in the same language.

    `filters` has the length and the filters of each span of rows, and `hashes` those of `Block`.
    """
    lengths = [length for length, _ in filters]

    def repeated(rows: NDArray[np.intp]) -> Mask:
        is_repeated = np.ones(len(rows), dtype=bool)
        is_repeated[np.unique(hashes[2, rows], return_index=True)[1]] = False
        return is_repeated

    def overlapping(rows: NDArray[np.intp]) -> Mask:
        sentences = pa.array(evaluation_hashes)
        source, target = (_mask(pc.is_in(pa.array(side[rows]), value_set=sentences)) for side in hashes[:2])
        return source | target

    for name, find in (("duplicates", repeated), ("overlap", overlapping)):
        is_on = np.repeat(np.array([getattr(options, name) for _, options in filters], bool), lengths)
        if is_on.any():
            rows = np.flatnonzero(statuses == KEPT)
            statuses[rows[find(rows) & is_on[rows]]] = STATUS_CODES[name]


def hold_out(
    statuses: NDArray[np.uint8],
    hashes: Hashes,
    filters: Sequence[tuple[int, FilterConfig]],
    fraction: float,
    keys: NDArray[np.uint64],
) -> None:
    """Mark a fraction of the kept rows as held out, and drop other rows that contain a held-out sentence.

    Only `keys`, hashes of the rows, decide, so a held-out row stays held out when rows are added. Raises CorpusError if
    `train` or `valid` would be empty.
    """
    rows = np.flatnonzero(statuses == KEPT)
    is_chosen = keys[rows] < np.uint64(fraction * 2.0**64)
    if not is_chosen.any() and round(fraction * len(rows)):
        is_chosen = keys[rows] == keys[rows].min()
    if not is_chosen.any() or is_chosen.all():
        raise CorpusError(f"corpus.valid: a share of {fraction} of {len(rows):,} pairs leaves `train` or `valid` empty")
    held_out = rows[is_chosen]
    statuses[held_out] = HELD_OUT
    overlap_only = [(length, FilterConfig(duplicates=False, overlap=options.overlap)) for length, options in filters]
    drop_repeated(statuses, hashes, overlap_only, np.concatenate([*hashes[:2, held_out]]))
