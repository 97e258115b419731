"""Choice of the texts of a document to review, by their expected chrF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from mt_cli.runtime.console import say
from mt_cli.translation.quality import Estimate, QualityModel, counts_of, lowest


def units_to_review(
    estimates: Mapping[int, Sequence[Estimate]], quality: QualityModel, share: float, name: str
) -> tuple[set[int], set[int]]:
    """Indices of units to review, the share with the lowest estimates, and of units that need no review.

    `estimates` has those of the lines of each unit, of which the lowest counts. If they do not hold for the document,
    no unit is known to need no review. Prints what is expected of the document, whose name is given.
    """
    counts = Counter[str]()
    for estimate in (estimate for of_unit in estimates.values() for estimate in of_unit):
        counts.update(counts_of(estimate))
    if not counts:
        return set(), set()
    say(f"{name}: {quality.describe(counts)}")
    ranks = {unit: min((estimate.rank for estimate in of_unit), default=inf) for unit, of_unit in estimates.items()}
    units = [*ranks]
    chosen = {units[row] for row in lowest([*ranks.values()], share)}
    certain = {unit for unit, rank in ranks.items() if rank >= 0} if quality.holds(counts) else set()
    return chosen, certain - chosen
