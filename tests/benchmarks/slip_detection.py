"""Reliability of the search for slipped lines on real text of many languages, as a table.

    python tests/benchmarks/slip_detection.py --data ../shared/data

Lines are removed from one side, at the top or in the middle, and both sides are truncated to the same number of lines.
A case counts as found if exactly one stretch is reported, with the right slip, within ten lines of the right place.
Clean text is examined in blocks of 1,000 lines and as a whole; anything reported there is a false alarm.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

from figures import add_option, record

from mt_cli.corpus.slips import find_slips

_BLOCK = 10_000
_CORPORA = {
    "captions en-de": ("multi30k/train.en", "multi30k/train.de"),
    "captions en-fr": ("multi30k/train.en", "multi30k/train.fr"),
    "captions en-zh": ("3am/train.en", "3am/train.zh"),
    "news en-de": ("news/train.en", "news/train.de"),
    "short en-de": ("tatoeba/eng-deu.eng", "tatoeba/eng-deu.deu"),
    "short en-ar": ("tatoeba/eng-ara.eng", "tatoeba/eng-ara.ara"),
    "short en-he": ("tatoeba/eng-heb.eng", "tatoeba/eng-heb.heb"),
    "short en-ru": ("tatoeba/eng-rus.eng", "tatoeba/eng-rus.rus"),
}
Lines = list[str]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    add_option(parser)
    options = parser.parse_args()
    folder = options.data
    print("| text | lines | slip 1, top | slip 1, middle | slip 5, top | slip 5, middle | false alarms |")
    print("|---|---|---|---|---|---|---|")
    started_at, num_lines, num_cases, num_found = time.perf_counter(), 0, 0, 0
    for name, paths in _CORPORA.items():
        sides = [read(folder / path) for path in paths]
        for size in (_BLOCK, 1_000):
            lines, cases, found = row(name, [[pieces(side, size) for side in sides]])
            num_lines, num_cases, num_found = num_lines + lines, num_cases + cases, num_found + found
    languages = sorted(path.name for path in (folder / "flores200").glob("*.devtest"))
    pairs = list(itertools.combinations(languages, 2))
    texts = {language: read(folder / "flores200" / language) for language in languages}
    for script in dict.fromkeys(language.partition("_")[2].partition(".")[0] for language in languages):
        chosen = [pair for pair in pairs if any(f"_{script}." in language for language in pair)]
        num_lines += row(  # All of them are counted below.
            f"19 languages, {len(chosen)} pairs with {script}",
            [[[texts[one]], [texts[other]]] for one, other in chosen],
        )[0]
    every = [[[texts[one]], [texts[other]]] for one, other in pairs]
    lines, cases, found = row(f"19 languages, all {len(pairs)} pairs", every)
    num_lines, num_cases, num_found = num_lines + lines, num_cases + cases, num_found + found
    seconds = time.perf_counter() - started_at
    print(f"\n{num_found:,} of {num_cases:,} cases; {num_lines / seconds:,.0f} lines a second on average")
    if options.record:
        record("slip_cases", num_cases)
        record("slips_found", num_found)


def read(path: Path) -> Lines:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def pieces(lines: Lines, size: int) -> list[Lines]:
    return [lines[start : start + size] for start in range(0, max(1, len(lines) - size + 1), size)]


def row(name: str, pairs: list[list[list[Lines]]]) -> tuple[int, int, int]:
    """Print a row of the table; return the numbers of examined lines, of cases and of those that are found."""
    samples = [sample for one, other in pairs for sample in zip(one, other, strict=True)]
    found = {(number, is_middle): 0 for number in (1, 5) for is_middle in (False, True)}
    num_alarms = num_lines = 0
    for sources, targets in samples:
        alignment = find_slips(sources, targets)
        num_alarms += len(alignment.stretches) + alignment.is_unrelated
        for number, is_middle in found:
            place = len(sources) // 2 if is_middle else 0
            stretches = find_slips(sources, targets[:place] + targets[place + number :]).stretches
            found[number, is_middle] += (
                len(stretches) == 1 and stretches[0][2] == -number and abs(stretches[0][0] - 1 - place) <= 10
            )
        num_lines += 5 * len(sources)
    cells = [f"{count} of {len(samples)}" for count in found.values()]
    print(f"| {name} | {len(samples)} x {len(samples[0][0]):,} | {' | '.join(cells)} | {num_alarms} |", flush=True)
    return num_lines, len(found) * len(samples), sum(found.values())


if __name__ == "__main__":
    main()
