"""Which pairs are kept, and why the others are not. Knows text and filters; does not know where text comes from.

A block of rows is judged at once, column by column. Each pair is counted under the first reason that catches it; the
statuses carry the names of the options of `corpus.filters`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.corpora import FilterConfig
from mt_cli.corpus.formats import Languages, Row
from mt_cli.corpus.languages import COMMON_WORDS, primary, scripts_of
from mt_cli.errors import CorpusError

STATUS_NAMES = (
    *("kept", "held_out", "blank_source", "blank_target", "blank_pair", "control_characters", "garbled", "identical"),
    *("max_characters", "max_length_ratio", "min_script_share", "wrong_language", "duplicates"),
    *("max_targets_per_source", "overlap", "max_tokens"),
)
"""What can become of a pair; the index is its code. `held_out` pairs are those of a `valid: {fraction: ...}`."""
STATUS_CODES = {reason: code for code, reason in enumerate(STATUS_NAMES)}
KEPT, HELD_OUT = STATUS_CODES["kept"], STATUS_CODES["held_out"]

Mask = NDArray[np.bool_]
Hashes = NDArray[np.int64]

_CONTROL = r"[\x00-\x08\x0e-\x1b\x7f-\x{84}\x{86}-\x{9f}]"
_GARBLED = r"\x{fffd}|[ÃÂ][\x{80}-\x{bf}]|â€[\x{80}-\x{bf}œ™˜“”¦]|Ð[\x{80}-\x{bf}]Ñ"
_ADDED_CHARACTERS = 10
_DEFAULT_SCRIPT_SHARE = 0.5
_ODD = np.int64(-7046029254386353131)
"""An odd multiplier with bits all over (2^64 over the golden ratio): mixes two hashes so that their order counts."""
_NO_TEXT = pa.array([], pa.string())
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Block:
    """Rows as columns, white space tidied up, and what is known of each."""

    numbers: NDArray[np.int64]
    source: pa.StringArray
    target: pa.StringArray
    statuses: NDArray[np.uint8]
    """A code of `STATUS_NAMES` for each row."""
    source_hashes: Hashes
    target_hashes: Hashes

    def __len__(self) -> int:
        return len(self.numbers)

    def tagged(self, tag: str) -> Block:
        """The same with a tag before each source sentence."""
        return replace(self, source=pc.binary_join_element_wise(tag, self.source, " "))

    def kept_texts(self) -> tuple[list[str], list[str]]:
        """Sources and targets of the rows that are kept."""
        mask = pa.array(self.statuses == KEPT)
        return self.source.filter(mask).to_pylist(), self.target.filter(mask).to_pylist()

    def without_text(self) -> Block:
        """The judgements and hashes alone, which are small."""
        return replace(self, source=_NO_TEXT, target=_NO_TEXT)


def clean(rows: Sequence[Row], filters: FilterConfig | None, languages: Languages) -> Block:
    """Rows with runs of white space made one space, each judged by itself; without filters only blanks are dropped."""
    numbers, raw_sources, raw_targets = zip(*rows, strict=True)
    sources, targets = ([" ".join(text.split()) for text in side] for side in (raw_sources, raw_targets))
    source, target = pa.array(sources, pa.string()), pa.array(targets, pa.string())
    statuses = np.zeros(len(rows), dtype=np.uint8)

    def drop(reason: str, mask: Mask) -> None:
        statuses[(statuses == KEPT) & mask] = STATUS_CODES[reason]

    blank_source, blank_target = (_mask(pc.equal(pc.binary_length(side), 0)) for side in (source, target))
    drop("blank_pair", blank_source & blank_target)
    drop("blank_source", blank_source)
    drop("blank_target", blank_target)
    if filters is not None:
        if filters.control_characters:
            drop("control_characters", _either(_CONTROL, pa.array(raw_sources), pa.array(raw_targets)))
        if filters.garbled:
            drop("garbled", _either(_GARBLED, source, target))
        if filters.identical:
            drop("identical", _mask(pc.equal(source, target)))
        lengths = np.stack([pc.utf8_length(side).to_numpy(zero_copy_only=False) for side in (source, target)])
        if filters.max_characters is not None:
            drop("max_characters", lengths.max(axis=0) > filters.max_characters)
        if filters.max_length_ratio is not None:
            shorter, longer = np.sort(lengths + _ADDED_CHARACTERS, axis=0)
            drop("max_length_ratio", longer > filters.max_length_ratio * shorter)
        for side, texts, language in ((source, sources, languages[0]), (target, targets, languages[1])):
            if filters.min_script_share is not None:
                drop("min_script_share", _outside_script(side, texts, language, filters.min_script_share))
        for side, texts, language in ((source, sources, languages[0]), (target, targets, languages[1])):
            if filters.wrong_language:
                drop("wrong_language", _in_another_language(side, texts, language))
    return Block(np.array(numbers, np.int64), source, target, statuses, hashes_of(sources), hashes_of(targets))


def hashes_of(texts: Iterable[str]) -> Hashes:
    """64 bits for each text: equal texts have equal ones, within this process."""
    return np.fromiter(map(hash, texts), dtype=np.int64)


def _mask(values: pa.BooleanArray) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False)
    return mask


def _either(pattern: str, source: pa.StringArray, target: pa.StringArray) -> Mask:
    masks = (_mask(pc.match_substring_regex(side, pattern)) for side in (source, target))
    return next(masks) | next(masks)


def _outside_script(side: pa.StringArray, texts: Sequence[str], language: str, min_share: float) -> Mask:
    """Whether less than a share of a text's letters is in the scripts of its language."""
    scripts = scripts_of(language)
    if scripts is None:
        return np.zeros(len(texts), dtype=bool)
    inside = "".join(rf"\p{{{script}}}" for script in scripts)
    # Most texts have no foreign letter at all, and this sees it quickly; in the others, letters are counted.
    mask = _mask(pc.match_substring_regex(side, rf"[^\P{{L}}{inside}]"))
    rows = np.flatnonzero(mask)
    if len(rows):
        some = side.take(pa.array(rows))
        letters, foreign = (
            pc.count_substring_regex(some, pattern).to_numpy(zero_copy_only=False)
            for pattern in (r"\p{L}", rf"[^\P{{L}}{inside}]")
        )
        mask[rows] = letters - foreign < min_share * letters
    return mask


def are_foreign(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> Mask:
    """Whether a side of each pair is in another script or language than it should be, as far as that is known."""
    mask = np.zeros(len(sources), dtype=bool)
    for texts, language in ((sources, languages[0]), (targets, languages[1])):
        side = pa.array(texts, pa.string())
        mask |= _outside_script(side, texts, language, _DEFAULT_SCRIPT_SHARE)
        mask |= _in_another_language(side, texts, language)
    return mask


def seem_swapped(sources: Sequence[str], targets: Sequence[str], languages: Languages) -> bool:
    """Whether most pairs are in the wrong languages as they stand, and few would be if the sides were exchanged."""
    return bool(
        primary(languages[0]) != primary(languages[1])
        and are_foreign(sources, targets, languages).mean() > 0.5
        and are_foreign(targets, sources, languages).mean() < 0.25
    )


def _in_another_language(side: pa.StringArray, texts: Sequence[str], language: str) -> Mask:
    """Whether a text has at least three common words of another known language, and none of its own."""
    code = primary(language)
    own = COMMON_WORDS.get(code)
    if own is None:
        return np.zeros(len(texts), dtype=bool)
    # A space at both ends makes every word stand between two marks; RE2 has no Unicode word boundaries.
    padded = pc.binary_join_element_wise("", side, "", " ")
    pattern = rf"(?i)[\s\pP](?:{'|'.join(sorted(own))})[\s\pP]"
    mask = ~_mask(pc.match_substring_regex(padded, pattern))
    # Norwegian, Danish and Swedish, or Russian and Ukrainian, share words: only what is not one's own counts.
    others = [common - own for other, common in COMMON_WORDS.items() if other != code]
    for row in np.flatnonzero(mask).tolist():
        words = set(_WORD.findall(texts[row].lower()))
        mask[row] = not words & own and any(len(words & common) >= 3 for common in others)
    return mask


def filter_together(
    statuses: NDArray[np.uint8],
    hashes: Sequence[Hashes],
    filters: Sequence[tuple[int, FilterConfig]],
    evaluation_hashes: Sequence[Hashes],
) -> None:
    """Judge the rows still kept, in place, by what else is in the corpus and in the sets that scores come from.

    Args:
        statuses: codes of the rows.
        hashes: of their sources and of their targets.
        filters: for each stretch of rows its length and its filters.
        evaluation_hashes: hashes of all sources and of all targets of validation and test sets.
    """
    lengths = [length for length, _ in filters]
    source_hashes, target_hashes = hashes

    def drop(reason: str, is_wanted: Sequence[bool], find: Callable[[NDArray[np.intp]], Mask]) -> None:
        if any(is_wanted):
            rows = np.flatnonzero(statuses == KEPT)
            found = rows[find(rows)]
            statuses[found[np.repeat(is_wanted, lengths)[found]]] = STATUS_CODES[reason]

    def repeated(rows: NDArray[np.intp]) -> Mask:
        is_repeated = np.ones(len(rows), dtype=bool)
        is_repeated[np.unique(source_hashes[rows] * _ODD + target_hashes[rows], return_index=True)[1]] = False
        return is_repeated

    def beyond_limit(rows: NDArray[np.intp]) -> Mask:
        limits = np.repeat([each.max_targets_per_source or 2**31 for _, each in filters], lengths)
        return _occurrence(source_hashes[rows]) >= limits[rows]

    drop("duplicates", [each.duplicates for _, each in filters], repeated)
    drop("max_targets_per_source", [each.max_targets_per_source is not None for _, each in filters], beyond_limit)
    drop(
        "overlap",
        [each.overlap for _, each in filters],
        lambda rows: (
            _is_in(source_hashes[rows], evaluation_hashes[0]) | _is_in(target_hashes[rows], evaluation_hashes[1])
        ),
    )


def _occurrence(values: Hashes) -> NDArray[np.int64]:
    """For each value how many equal ones stand before it."""
    order = values.argsort(kind="stable")
    ordered = values[order]
    position = np.arange(len(values))
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(values)]
    occurrence = np.empty(len(values), dtype=np.int64)
    occurrence[order] = position - np.maximum.accumulate(np.where(begins, position, 0))
    return occurrence


def _is_in(values: Hashes, few: Hashes) -> Mask:
    """Which values are among a few."""
    few = np.unique(few)
    if not len(few):
        return np.zeros(len(values), dtype=bool)
    places = np.searchsorted(few, values)
    mask: Mask = few[np.minimum(places, len(few) - 1)] == values
    return mask


def hold_out(
    statuses: NDArray[np.uint8],
    hashes: Sequence[Hashes],
    filters: Sequence[tuple[int, FilterConfig]],
    share: float,
    seed: int,
) -> None:
    """Mark a seeded share of the rows still kept as held out, and drop the others that have a sentence of it.

    Raises:
        CorpusError: if no row would be on one of the two sides.
    """
    rows = np.flatnonzero(statuses == KEPT)
    number = round(share * len(rows))
    if not 0 < number < len(rows):
        raise CorpusError(f"corpus.valid: a share of {share} of {len(rows):,} pairs leaves one side empty")
    held_out = rows[np.random.default_rng(seed).choice(len(rows), number, replace=False, shuffle=False)]
    statuses[held_out] = HELD_OUT
    filter_together(
        statuses,
        hashes,
        [(length, FilterConfig(duplicates=False, overlap=each.overlap)) for length, each in filters],
        [side[held_out] for side in hashes],
    )
