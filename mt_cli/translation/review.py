"""Table of the translations that most need reading."""

from __future__ import annotations

from math import inf, isfinite
from pathlib import Path

from mt_cli.runtime.files import write_atomically
from mt_cli.translation.lines import Translation
from mt_cli.translation.quality import lowest

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
