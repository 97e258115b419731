"""Choice of the translations that most need reading: a table of lines, and texts of a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from pathlib import Path

from mt_cli.runtime.console import say
from mt_cli.runtime.files import write_atomically
from mt_cli.translation.lines import Translation
from mt_cli.translation.quality import Estimate, QualityModel, counts_of, lowest

_HEADER = "line\texpected_chrf\treason\tsource\ttranslation\n"


def format_review(item: Translation) -> str:
    """Rank, expected chrF, reason, source and translation of a line; empty if nothing was translated."""
    estimate = item.estimate
    if estimate is None or not estimate.reason:
        return ""
    shown = "" if estimate.shown is None else f"{estimate.shown:.1f}"
    cells = repr(estimate.rank), shown, estimate.doubt or estimate.reason, item.source, item.text
    return "\t".join(" ".join(cell.split()) for cell in cells)


def write_review(path: Path, share: float) -> tuple[int, int]:
    """Replace a file of all lines, in the form of `format_review`, by a table of the share with the lowest ranks.

    Returns how many lines the table has, and of how many. Only ranks are in memory.
    """
    with path.open(encoding="utf-8", newline="\n") as lines:
        ranks = [float(rank) if (rank := line.partition("\t")[0].strip()) else inf for line in lines]
    chosen = set(lowest(ranks, share))

    def write(temporary: str) -> None:
        with path.open(encoding="utf-8", newline="\n") as lines, open(temporary, "w", encoding="utf-8") as table:
            table.write(_HEADER)
            rows = ((row, line.partition("\t")[2]) for row, line in enumerate(lines, start=1) if row - 1 in chosen)
            table.writelines(f"{row}\t{cells}" for row, cells in rows)

    write_atomically(path, write)
    return len(chosen), sum(map(isfinite, ranks))


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
