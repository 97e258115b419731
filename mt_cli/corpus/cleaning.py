"""Filters: the status of each pair.

A block of rows is filtered column by column. A pair gets the status of the first filter that drops it; statuses are
named like the options of `corpus.filters`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.languages import COMMON_WORDS, primary, scripts_of, words_of
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.text_hashes import AS_WRITTEN, Hashes, Spelling, hash_of, hashes_of
from mt_cli.errors import CorpusError

STATUS_NAMES = (
    *("kept", "held_out", "blank_source", "blank_target", "blank_pair", "garbled", "identical"),
    *("max_characters", "max_length_ratio", "min_script_share", "wrong_language"),
    *("markers", "duplicates", "overlap", "max_tokens"),
)
"""Statuses of pairs; the index is the code. `held_out` is for `valid: {fraction: ...}`."""
STATUS_CODES = {name: code for code, name in enumerate(STATUS_NAMES)}
KEPT, HELD_OUT = STATUS_CODES["kept"], STATUS_CODES["held_out"]

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
_FEWEST_TEXTS, _FACTOR_OF_MARKERS = 10, 2.5
"""A marker stands for this many different texts, which are on average this many times as long as translations of it
would be, after adding 10 characters. In good text, a translation that is so short stands for at most three."""
_BLANK = [STATUS_CODES[name] for name in ("blank_source", "blank_target", "blank_pair")]
_HASH_MULTIPLIER = np.int64(-7046029254386353131)
"""2^64 divided by the golden ratio, an odd number. It combines two hashes so that their order matters."""


@dataclass(frozen=True)
class Block:
    """Rows as columns with normalised white space, the status of each row, and hashes."""

    numbers: NDArray[np.int64]
    source: pa.StringArray
    target: pa.StringArray
    statuses: NDArray[np.uint8]
    """Index into `STATUS_NAMES` of each row."""
    hashes: Hashes
    """Hashes of the sources without tags, of the targets, and of the pairs with tags, as they are spelled; then the
    numbers of characters of both sides, 5xN."""

    def __len__(self) -> int:
        return len(self.numbers)

    def tagged(self, tag: str) -> Block:
        """Copy with a tag before each source sentence."""
        hashes = self.hashes.copy()
        hashes[2] += np.array(hash_of(tag), np.uint64).view(np.int64)
        return replace(self, source=pc.binary_join_element_wise(tag, self.source, " "), hashes=hashes)

    def kept_texts(self) -> tuple[list[str], list[str]]:
        """Sources and targets of the kept rows."""
        mask = pa.array(self.statuses == KEPT)
        return self.source.filter(mask).to_pylist(), self.target.filter(mask).to_pylist()


def clean(
    rows: Sequence[Row], filters: FilterConfig | None, languages: Languages, spelling: Spelling = AS_WRITTEN
) -> Block:
    """Normalise white space and apply the filters of single rows; with `filters` None, drop only blank sides."""
    numbers, raw_sources, raw_targets = zip(*rows, strict=True)
    texts = [[" ".join(text.split()) for text in side] for side in (raw_sources, raw_targets)]
    source, target = sides = [pa.array(side, pa.string()) for side in texts]
    statuses = np.zeros(len(rows), dtype=np.uint8)

    def drop(status: str, mask: Mask) -> None:
        statuses[(statuses == KEPT) & mask] = STATUS_CODES[status]

    blank_source, blank_target = (_mask(pc.equal(pc.binary_length(side), 0)) for side in sides)
    drop("blank_pair", blank_source & blank_target)
    drop("blank_source", blank_source)
    drop("blank_target", blank_target)
    lengths = np.stack([pc.utf8_length(side).to_numpy(zero_copy_only=False) for side in sides])
    if filters is not None:
        if filters.garbled:
            # A no-break space is a part of the damage.
            drop("garbled", _any_matches(_GARBLED, [pa.array(raw_sources), pa.array(raw_targets)]))
        if filters.identical:
            drop("identical", _are_identical(source, target))
        if filters.max_characters is not None:
            drop("max_characters", lengths.max(axis=0) > filters.max_characters)
        if filters.max_length_ratio is not None:
            shorter, longer = np.sort(lengths + _ADDED_CHARACTERS, axis=0)
            drop("max_length_ratio", longer > filters.max_length_ratio * shorter)
        if filters.min_script_share is not None:
            for side, language in zip(sides, languages, strict=True):
                drop("min_script_share", _outside_script(side, language, filters.min_script_share))
        if filters.wrong_language:
            for side, side_texts, language in zip(sides, texts, languages, strict=True):
                drop("wrong_language", _in_another_language(side, side_texts, language))
    hashes = [hashes_of(side, language, spelling) for side, language in zip(texts, languages, strict=True)]
    hashes.append(hashes[0] * _HASH_MULTIPLIER + hashes[1])
    return Block(np.array(numbers, np.int64), source, target, statuses, np.stack([*hashes, *lengths]))


def _mask(values: pa.BooleanArray) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask


def _are_identical(source: pa.StringArray, target: pa.StringArray) -> Mask:
    """Mask of the pairs whose sides are equal and have letters; a number is its own translation."""
    mask = _mask(pc.equal(source, target)).copy()
    rows = np.flatnonzero(mask)
    mask[rows] = _mask(pc.match_substring_regex(source.take(pa.array(rows)), r"\p{L}"))
    return mask


def _any_matches(pattern: str, sides: Sequence[pa.StringArray]) -> Mask:
    source, target = (_mask(pc.match_substring_regex(side, pattern)) for side in sides)
    return source | target


def _outside_script(side: pa.StringArray, language: str, min_share: float) -> Mask:
    """Mask of the texts with less than `min_share` of their letters in the scripts of their language."""
    scripts = scripts_of(language)
    if scripts is None:
        return np.zeros(len(side), dtype=bool)
    inside = "".join(rf"\p{{{script}}}" for script in scripts)
    foreign_letter = rf"[^\P{{L}}{inside}]"
    # Most texts pass the fast test for foreign letters; letters are counted only in the rest.
    mask = _mask(pc.match_substring_regex(side, foreign_letter))
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
    mask = ~_mask(pc.match_substring_regex(padded, rf"(?i)[\s\pP](?:{'|'.join(sorted(expected))})[\s\pP]"))
    # Words that related languages share, such as Norwegian, Danish and Swedish, do not count.
    foreign = [common - expected for other, common in COMMON_WORDS.items() if other != code]
    for row in np.flatnonzero(mask).tolist():
        words = words_of(texts[row])
        mask[row] = not words & expected and any(len(words & common) >= 3 for common in foreign)
    return mask


def are_foreign(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> Mask:
    """Mask of the pairs with a side that seems to be in another script or language than expected."""
    mask = np.zeros(len(sources), dtype=bool)
    for texts, language in ((sources, languages[0]), (targets, languages[1])):
        side = pa.array(texts, pa.string())
        mask |= _outside_script(side, language, _DEFAULT_SCRIPT_SHARE)
        mask |= _in_another_language(side, texts, language)
    return mask


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

    `filters` has the length and the filters of each span of rows, and `hashes` those of `Block`. Markers are found
    in all rows that are not blank.
    """
    lengths = [length for length, _ in filters]

    def drop(status: str, enabled: Sequence[bool], find: Callable[[NDArray[np.intp]], Mask]) -> None:
        if any(enabled):
            rows = np.flatnonzero(statuses == KEPT)
            matches = rows[find(rows)]
            statuses[matches[np.repeat(enabled, lengths)[matches]]] = STATUS_CODES[status]

    def repeated(rows: NDArray[np.intp]) -> Mask:
        is_repeated = np.ones(len(rows), dtype=bool)
        is_repeated[np.unique(hashes[2, rows], return_index=True)[1]] = False
        return is_repeated

    def overlapping(rows: NDArray[np.intp]) -> Mask:
        sentences = pa.array(evaluation_hashes)
        source, target = (_mask(pc.is_in(pa.array(side[rows]), value_set=sentences)) for side in hashes[:2])
        return source | target

    drop("markers", [options.markers for _, options in filters], lambda rows: _are_markers(statuses, hashes)[rows])
    drop("duplicates", [options.duplicates for _, options in filters], repeated)
    drop("overlap", [options.overlap for _, options in filters], overlapping)


def _are_markers(statuses: NDArray[np.uint8], hashes: Hashes) -> Mask:
    """Mask of the rows with a side that stands for many different texts which are far longer than it."""
    mask = np.zeros(len(statuses), dtype=bool)
    rows = np.flatnonzero(~np.isin(statuses, _BLANK))
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
    overlap_only = [
        (length, FilterConfig(markers=False, duplicates=False, overlap=options.overlap)) for length, options in filters
    ]
    drop_repeated(statuses, hashes, overlap_only, np.concatenate([*hashes[:2, held_out]]))
