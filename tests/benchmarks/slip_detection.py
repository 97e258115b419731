"""Reliability of the search for slipped lines on real text of many languages, as a table.

    python tests/benchmarks/slip_detection.py --data ../shared/data

Lines are removed from one side, at the top or in the middle, and both sides are truncated to the same number of lines.
A case counts as found if exactly one stretch is reported, with the right slip, within ten lines of the right place.
Clean text is examined in blocks of 1,000 and of 10,000 lines; anything reported there is a false alarm. `--texts`
examines these alone.
"""

import itertools
import time
from pathlib import Path

import common
from figures import record

from mt_cli.corpus.misalignment import find_misaligned_stretches

CORPORA = {
    "captions en-de": ("multi30k/train.en", "multi30k/train.de"),
    "captions en-fr": ("multi30k/train.en", "multi30k/train.fr"),
    "captions en-zh": ("3am/train.en", "3am/train.zh"),
    "news en-de": ("news/train.en", "news/train.de"),
    "short en-de": ("tatoeba/eng-deu.eng", "tatoeba/eng-deu.deu"),
    "short en-ar": ("tatoeba/eng-ara.eng", "tatoeba/eng-ara.ara"),
    "short en-he": ("tatoeba/eng-heb.eng", "tatoeba/eng-heb.heb"),
    "short en-ru": ("tatoeba/eng-rus.eng", "tatoeba/eng-rus.rus"),
}
CASES = tuple(itertools.product((1, 5), (False, True)))
"""Number of removed lines, and whether they are in the middle."""
Lines = list[str]


def read_blocks(folder: Path) -> dict[str, list[tuple[Lines, Lines]]]:
    """Line-aligned blocks by the name of their text."""
    blocks = {}
    for name, paths in CORPORA.items():
        sides = [common.read_lines(folder / path) for path in paths]
        for size in (10_000, 1_000):
            starts = range(0, max(1, len(sides[0]) - size + 1), size)
            blocks[f"{name}, {size:,} lines"] = [
                tuple(side[start : start + size] for side in sides) for start in starts
            ]
    texts = [common.read_lines(path) for path in sorted((folder / "flores200").glob("*.devtest"))]
    return blocks | {f"{len(texts)} languages": list(itertools.combinations(texts, 2))}


def is_found(sources: Lines, targets: Lines, num_removed: int, is_middle: bool) -> bool:
    """Whether the search finds the slip after lines are removed from the targets."""
    place = len(sources) // 2 if is_middle else 0
    stretches = find_misaligned_stretches(sources, targets[:place] + targets[place + num_removed :]).stretches
    return len(stretches) == 1 and stretches[0][2] == -num_removed and abs(stretches[0][0] - 1 - place) <= 10


def main() -> None:
    """Print a row for each text, and the sums."""
    options = common.read_options(__doc__, record=True, data=Path, texts=[])
    common.print_titles(
        "text", "blocks", "slip 1, top", "slip 1, middle", "slip 5, top", "slip 5, middle", "false alarms"
    )
    started_at, num_lines, num_cases, num_found = time.perf_counter(), 0, 0, 0
    for name, blocks in read_blocks(options.data).items():
        if options.texts and name not in options.texts:
            continue
        clean = [find_misaligned_stretches(*block) for block in blocks]
        num_alarms = sum(len(alignment.stretches) + alignment.is_unrelated for alignment in clean)
        counts = [sum(is_found(*block, *case) for block in blocks) for case in CASES]
        common.print_row(name, len(blocks), *counts, num_alarms)
        num_lines += (1 + len(CASES)) * sum(len(sources) for sources, _ in blocks)
        num_cases += len(CASES) * len(blocks)
        num_found += sum(counts)
    speed = num_lines / (time.perf_counter() - started_at)
    print(f"\n{num_found:,} of {num_cases:,} cases; {speed:,.0f} lines a second on average")
    if options.record:
        record("slip_cases", num_cases)
        record("slips_found", num_found)


if __name__ == "__main__":
    main()
