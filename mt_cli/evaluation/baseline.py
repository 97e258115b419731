"""Comparison with a baseline: its translations, and pairs of the test set that a system was trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.corpus.cleaning import Mask
from mt_cli.corpus.plain_text import input_lines
from mt_cli.corpus.rows import BlankRow, Languages, Pair, untagged
from mt_cli.corpus.text_hashes import pair_hashes
from mt_cli.errors import InputError
from mt_cli.translation.translator import Translator

_MANY = 0.01
"""Share of seen pairs above which a comparison is unfair; short sentences such as greetings are in most corpora."""


def read_translations(path: Path, num_pairs: int, skipped: Sequence[BlankRow]) -> list[str]:
    """Read the translations in a file; if the file has lines for rows that are not scored, skip these lines."""
    lines = list(input_lines(path, as_lines=True))
    if len(lines) == num_pairs + len(skipped):
        blank = {row.num_before + place for place, row in enumerate(skipped)}
        lines = [line for place, line in enumerate(lines) if place not in blank]
    if len(lines) != num_pairs:
        raise InputError(f"{path}: has {len(lines):,} lines for {num_pairs:,} sentences")
    return lines


def translate_as_baseline(
    path: Path,
    load: Callable[[Path], Translator],
    sources: Sequence[str],
    languages: Sequence[Languages],
    tags: Sequence[str],
    search: Mapping[str, Any],
) -> list[str]:
    """Translate with a baseline run; `languages` has the direction of each source.

    A source keeps its tag, one of `tags`, if the baseline knows it too. Raises InputError if the baseline does not
    translate in a direction.
    """
    baseline = load(path)
    has_targets = bool(baseline.tagging.targets)
    unknown_tags = [tag for tag in tags if tag not in baseline.tags]
    translations = [""] * len(sources)
    for direction in dict.fromkeys(languages):
        if not has_targets and direction != baseline.languages:
            names = [" to ".join(pair) for pair in (baseline.languages, direction)]
            raise InputError(
                f"--against {path}: translates {names[0]}, and this run {names[1]}; the languages must agree"
            )
        rows = [row for row, pair in enumerate(languages) if pair == direction]
        texts = [untagged(sources[row], unknown_tags) for row in rows]
        try:
            tag = baseline.target_tag(direction[1]) if has_targets else None
            translated = baseline.translate(texts, **{**search, "tag": tag})
        except InputError as error:
            raise InputError(f"--against {path}: {error}; --to compares one direction of this run") from None
        for row, text in zip(rows, translated, strict=True):
            translations[row] = text
    return translations


def seen_pairs(run: Path, pairs: Sequence[Pair]) -> Mask | None:
    """Mask of the pairs that a run or one of its ancestors was trained on; None if unknown.

    Two pairs are equal if their letters and digits are equal, in either direction. Exports, imported runs, runs on
    streams, and runs that began with a run of these kinds have no hashes. Raises RunError for a damaged file.
    """
    directory = RunDirectory(run)
    if not directory.config_path.exists():
        return None  # An exported model.
    hashes, tags = directory.training_pairs(), directory.config().corpus.tags
    if hashes is None:
        return None
    mask: Mask = np.isin(pair_hashes(pairs, tags), hashes)
    return mask


def notes_on_seen_pairs(runs: Sequence[Path], against: Path | None, pairs: Sequence[Pair]) -> Iterator[str]:
    """Notes on pairs that a system was trained on; `runs` form one system, `against` is the baseline.

    Raises InputError if one system was trained on more than a few pairs that the other has not seen.
    """
    systems = [{run: seen_pairs(run, pairs) for run in system} for system in (runs, [against] if against else [])]
    for system, other in (systems, systems[::-1]) if against else ():
        masks = [mask for mask in other.values() if mask is not None]
        seen_by_other = np.any([np.zeros(len(pairs), bool), *masks], axis=0)
        for run, mask in system.items() if len(masks) == len(other) else ():
            number = 0 if mask is None else int((mask & ~seen_by_other).sum())
            if number >= max(1, _MANY * len(pairs)):
                raise InputError(
                    f"{run}: was trained on {number:,} of these {len(pairs):,} pairs, and the other system was not, so "
                    "a comparison says nothing; name other pairs with --source and --reference, and next time give "
                    "both configs one test set, or the same `valid: {fraction: ..., seed: ...}`"
                )
    for run, mask in (systems[0] | systems[1]).items():
        if mask is not None and mask.any():
            yield f"{run} was trained on {mask.sum():,} of these {len(pairs):,} pairs, so its scores are too high"
        elif mask is None and against:
            yield f"{run} keeps no record of its training pairs, so it may have been trained on some of these"
