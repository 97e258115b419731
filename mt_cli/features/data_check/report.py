"""The report of `mt data check`: as plain values, and as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mt_cli.batching.encoded import SIDES, SideStatistics
from mt_cli.config.sections import Config
from mt_cli.corpus.sources import places_in
from mt_cli.data.describe import notes_on_overlap, notes_on_reading, report_on_data
from mt_cli.data.prepare import Data, notes_on_tags, notes_on_words
from mt_cli.features.data_check import notes
from mt_cli.features.data_check.contradictions import contradictions_in
from mt_cli.features.data_check.findings import Finding, shorten
from mt_cli.features.data_check.stretches import odd_pairs

_NUM_ODD = 10
_BAR, _WIDTH = "█", 30


def examine(data: Data, config: Config, problems: Sequence[Finding]) -> dict[str, Any]:
    """Report of `mt data check` as plain values."""
    rows = report_on_data(data, config)
    return {
        "run": config.name,
        "corpora": rows,
        "tokens": {
            name: {side: _token_report(getattr(statistics, side)) for side in SIDES}
            for name, statistics in data.statistics.items()
        },
        "vocabulary": {side: tokenizer.vocab_size for side, tokenizer in zip(SIDES, data.tokenizers, strict=True)},
        "notes": [
            *notes_on_tags(config),
            *notes_on_words(config),
            *notes_on_reading(data.corpora),
            *notes_on_overlap(rows),
            *notes.notes_on_leaks(data, config),
            *notes.notes_on_languages(data, config, problems),
            *notes.notes_on_evaluation_sets(data, config),
            *notes.notes_on_unknown_tokens(data, config),
            *notes.notes_on_texts(data, config),
            *(problem.message for problem in problems if problem.is_note),
        ],
        "problems": [asdict(problem) for problem in problems if not problem.is_note],
        "contradictions": asdict(contradictions_in(data.corpora["train"], config.corpus)),
        "suspicious": list(_suspicious(data, config)),
    }


def _suspicious(data: Data, config: Config) -> Iterator[dict[str, Any]]:
    """Pairs of `train` whose sides fit each other least, with their places for people."""
    pairs = odd_pairs(data.corpora["train"], config.corpus, _NUM_ODD)
    places = places_in(config.corpus, "train", [(pair.part, pair.number) for pair in pairs])
    for pair in pairs:
        yield {**asdict(pair), "place": places[pair.part, pair.number]}


def _token_report(counts: SideStatistics) -> dict[str, Any]:
    return {
        "num_tokens": counts.num_tokens,
        "tokens_per_sentence": round(counts.tokens_per_sentence, 2),
        "unknown_share": round(counts.unknown_share, 6),
        "length_counts": np.trim_zeros(np.array(counts.length_counts), "b").tolist(),
    }


def format_examination(report: Mapping[str, Any]) -> Iterator[str]:
    """Lines of the report for people."""
    yield f"{report['run']}\n"
    yield from _format_counts(report["corpora"])
    yield from _format_tokens(report)
    yield from _format_lengths(report["tokens"].get("train") or next(iter(report["tokens"].values())))
    counts = report["contradictions"]
    if number := counts["num_contradictory"]:
        yield f"sources of train with several different targets: {number:,} of {counts['num_sources']:,}\n"
    for note in report["notes"]:
        yield f"note: {note}"
    for problem in report["problems"]:
        yield str(Finding(**problem))
    if report["suspicious"]:
        yield "\nthe kept pairs whose sides fit each other least (clean text has such pairs, too)"
    for pair in report["suspicious"]:
        yield f"  {pair['part']}, {pair['place']}: {', '.join(pair['why'])}"
        yield f"    {shorten(pair['source'])}"
        yield f"    {shorten(pair['target'])}"


def _format_counts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{'corpus':<20}{'source':<26}{'':<24}{'pairs':>12}{'share':>9}"
    for row in rows:
        if "num_read" not in row:
            continue
        labels = [row["corpus"], row["name"]]
        counts = {"read": row["num_read"], "kept": row["num_kept"]}
        counts |= ({"held out for valid": row["num_held_out"]} if row["num_held_out"] else {}) | row["dropped"]
        for status, count in counts.items():
            share = f"{count / max(1, row['num_read']):8.1%}" if status != "read" else ""
            yield f"{labels[0]:<20}{shorten(labels[1], 24):<26}{status:<24}{count:>12,} {share}".rstrip()
            labels = ["", ""]
        if row.get("times_per_epoch", 1) != 1:
            yield f"{'':<46}{'times seen per epoch':<24}{row['times_per_epoch']:>12.3g}"
    yield ""


def _format_tokens(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'tokens':<20}{'source':>14}{'a sentence':>12}{'unknown':>9}{'target':>16}{'a sentence':>12}{'unknown':>9}"
    for name, sides in report["tokens"].items():
        cells = (
            f"{sides[side]['num_tokens']:>14,}{sides[side]['tokens_per_sentence']:>12.1f}"
            f"{sides[side]['unknown_share']:>9.2%}"
            for side in SIDES
        )
        yield f"  {name:<18}{'  '.join(cells)}"
    yield f"  {'vocabulary':<18}{report['vocabulary']['source']:>14,}{report['vocabulary']['target']:>37,}"
    yield ""


def _format_lengths(sides: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Histogram of both sides, with bins up to the 99th percentile."""
    counts = [np.array(sides[side]["length_counts"], int) for side in SIDES]
    longest = max(map(len, counts))
    counts = [np.pad(side, (0, longest - len(side))) for side in counts]
    most = int(np.searchsorted(np.cumsum(sum(counts)), 0.99 * sum(map(np.sum, counts))))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step == 100 or most / step <= 12)
    starts = list(range(0, max(most, 1) + step, step))  # The last bin has all longer sentences.
    bins = [np.add.reduceat(np.pad(side, (0, starts[-1] + 1)), starts) for side in counts]
    highest = max(1, *(count for side in bins for count in side))
    yield f"{'length in tokens':<20}{'source':<{_WIDTH + 12}}target"
    for start, pair in zip(starts, zip(*bins, strict=True), strict=True):
        label = f"{start:>4} and more" if start == starts[-1] else f"{start:>4} to {start + step - 1}"
        bars = (f"{_BAR * round(_WIDTH * count / highest):<{_WIDTH}}{count:>10,}" for count in pair)
        yield f"  {label:<18}{'  '.join(bars)}"
    yield ""
