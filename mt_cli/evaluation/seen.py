"""Pairs of a test set that a run was trained on, found by the hashes of its training pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.corpus.cleaning import Mask
from mt_cli.corpus.identity import pair_hashes
from mt_cli.corpus.rows import Pair
from mt_cli.errors import InputError

_MANY = 0.01
"""Share of the pairs that makes a comparison unfair; short sentences such as greetings are in most corpora."""


def seen_pairs(run: Path, pairs: Sequence[Pair]) -> Mask | None:
    """Mask of the pairs that a run, or a run that it began with, was trained on; None if unknown.

    Two pairs are equal if their letters and digits are equal, in either direction. Exports, imported runs, runs that
    began with such a run, and runs on streams keep no hashes. Raises RunError for a damaged file.
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
    """Notes on pairs that one of the runs was trained on; `runs` are one system, `against` is another one.

    Raises InputError if one of the two systems was trained on more than a few pairs that the other has not seen.
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
