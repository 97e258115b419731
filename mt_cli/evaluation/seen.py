"""Which pairs of a test set a run was trained on, by the hashes that it keeps of its training pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """Mask of the pairs that a run, or a run that it began with, was trained on; None if the run does not know.

    Pairs are the same if their letters and digits are, in either direction. Exports, imported runs, runs that began
    with such a run, and runs on streams keep no hashes. Raises RunError for a damaged file.
    """
    directory = RunDirectory(run)
    if not directory.config_path.exists():
        return None  # An exported model.
    known, tags = directory.training_pairs(), directory.config().corpus.tags
    if known is None:
        return None
    mask: Mask = np.isin(pair_hashes(pairs, tags), known)
    return mask


def notes_on_seen_pairs(runs: Sequence[Path], against: Path | None, pairs: Sequence[Pair]) -> Iterator[str]:
    """Notes on pairs that one of the runs was trained on; `runs` are one system, `against` is another one.

    Raises InputError if one of the two systems was trained on more than a few pairs that the other has not seen.
    """
    ours, theirs = ({run: seen_pairs(run, pairs) for run in some} for some in (runs, [against] if against else []))
    if against:
        for one, other in ((ours, theirs), (theirs, ours)):
            _check_fair(one, other, len(pairs))
    for run, mask in (ours | theirs).items():
        if mask is not None and mask.any():
            yield f"{run} was trained on {mask.sum():,} of these {len(pairs):,} pairs, so its scores are too high"
        elif mask is None and against:
            yield f"{run} keeps no record of its training pairs, so it may have been trained on some of these"


def _check_fair(one: Mapping[Path, Mask | None], other: Mapping[Path, Mask | None], number: int) -> None:
    """Raise InputError if a system was trained on pairs that the other has not seen; nothing if that is not known."""
    if any(mask is None for mask in other.values()):
        return
    rest = np.any([np.zeros(number, bool), *(mask for mask in other.values() if mask is not None)], axis=0)
    for run, mask in one.items():
        if mask is not None and (mask & ~rest).sum() >= max(1, _MANY * number):
            raise InputError(
                f"{run}: was trained on {(mask & ~rest).sum():,} of these {number:,} pairs, and the other system was "
                "not, so a comparison says nothing; name other pairs with --source and --reference, and next time give "
                "both configs one test set, or the same `valid: {fraction: ..., seed: ...}`"
            )
