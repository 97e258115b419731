"""What a config's corpora hold: the report of `mt data check`, and the pairs of `mt data show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mt_cli.batching.encoded import SideStatistics
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, STATUS_NAMES, clean
from mt_cli.corpus.suspicion import Problem, odd_pairs
from mt_cli.errors import InputError, reason
from mt_cli.experiment.data import Data, languages_of, note_on_overlap, notes_on_words, report_on_data
from mt_cli.tokenizer import untagged

_NUM_ODD = 10
_MANY_UNKNOWN = 0.1
_BAR, _WIDTH = "█", 30


def examine(data: Data, config: Config) -> dict[str, Any]:
    """Everything that `mt data check` says, as plain values."""
    rows = report_on_data(data, config)
    return {
        "run": config.name,
        "corpora": rows,
        "tokens": {
            name: {side: _token_report(getattr(statistics, side)) for side in ("source", "target")}
            for name, statistics in data.statistics.items()
        },
        "vocabulary": {
            side: tokenizer.vocab_size for side, tokenizer in zip(("source", "target"), data.tokenizers, strict=True)
        },
        "notes": [
            *notes_on_words(config),
            *note_on_overlap(rows),
            *_notes_on_scored_sets(data, config),
            *_notes_on_unknown_tokens(data, config),
        ],
        "problems": [asdict(problem) for problem in data.problems],
        "suspicious": [
            asdict(pair) for pair in odd_pairs(data.corpora["train"], languages_of(config, "train"), _NUM_ODD)
        ],
    }


def _token_report(counts: SideStatistics) -> dict[str, Any]:
    num_sentences = sum(counts.length_counts)
    return {
        "num_tokens": counts.num_tokens,
        "tokens_per_sentence": round(counts.num_tokens / max(1, num_sentences), 2),
        "unknown_share": round(counts.num_unknown / max(1, counts.num_tokens), 6),
        "length_counts": np.trim_zeros(np.array(counts.length_counts), "b").tolist(),
    }


def _notes_on_scored_sets(data: Data, config: Config) -> list[str]:
    """What training filters would say of the sets that scores come from, and which of these share sentences."""
    notes = []
    scored = {name: corpus for name, corpus in data.corpora.items() if name != "train"}
    for name, corpus in scored.items():
        rows = [(number, untagged(source, config.corpus.tags), target) for number, source, target in corpus.rows()]
        codes = clean(rows, config.corpus.filters, (config.corpus.source, config.corpus.target)).statuses
        if counts := Counter(STATUS_NAMES[code] for code in codes.tolist() if code != KEPT):
            found = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
            notes.append(f"{name} has pairs that would be left out of train: {found}; they are scored all the same")
    names = list(scored)
    for index, name in enumerate(names):
        for other in names[index + 1 :]:
            sources = {source for source, _ in scored[other].pairs}
            if shared := sum(source in sources for source, _ in scored[name].pairs):
                notes.append(f"{shared:,} sources of {name} stand in {other} too")
    return notes


def _notes_on_unknown_tokens(data: Data, config: Config) -> list[str]:
    """On which sides of the sets that scores come from a tokenizer does not know enough."""
    if config.tokenizer.algorithm in ("bpe", "unigram"):
        advice = "set tokenizer.byte_fallback to true"
    else:
        what = "words" if config.tokenizer.algorithm == "word_level" else "characters"
        advice = (
            f"train has these {what} too seldom or never; train on text of the same kind, or use tokenizer.algorithm "
            "bpe or unigram, which have no unknown tokens"
        )
    notes = []
    for name, statistics in data.statistics.items():
        for side, counts in (("source", statistics.source), ("target", statistics.target)):
            share = counts.num_unknown / max(1, counts.num_tokens)
            if name != "train" and share > _MANY_UNKNOWN:
                notes.append(f"{100 * share:.0f} % of the {side} tokens of {name} are unknown: {advice}")
    return notes


def format_examination(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for people, line by line."""
    yield f"{report['run']}\n"
    yield from _format_counts(report["corpora"])
    yield from _format_tokens(report)
    yield from _format_lengths(report["tokens"].get("train") or next(iter(report["tokens"].values())))
    for note in report["notes"]:
        yield f"note: {note}"
    for problem in report["problems"]:
        yield str(Problem(**problem))
    if report["suspicious"]:
        yield "\nthe most suspicious of the pairs that are kept"
    for pair in report["suspicious"]:
        yield f"  {pair['part']}, line {pair['number']:,}: {', '.join(pair['why'])}"
        yield f"    {_short(pair['source'])}"
        yield f"    {_short(pair['target'])}"


def _format_counts(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"{'corpus':<20}{'source':<26}{'':<24}{'pairs':>12}{'share':>9}"
    for row in rows:
        if "num_read" not in row:
            continue
        labels = [row["corpus"], row["name"]]
        counts = {"read": row["num_read"], "kept": row["num_kept"]}
        counts |= ({"held out for valid": row["num_held_out"]} if row["num_held_out"] else {}) | row["dropped"]
        for what, count in counts.items():
            share = f"{count / max(1, row['num_read']):8.1%}" if what != "read" else ""
            yield f"{labels[0]:<20}{_short(labels[1], 24):<26}{what:<24}{count:>12,} {share}"
            labels = ["", ""]
        if row.get("times_per_epoch", 1) != 1:
            yield f"{'':<46}{'times seen per epoch':<24}{row['times_per_epoch']:>12.3g}"
    yield ""


def _format_tokens(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{'tokens':<20}{'source':>14}{'a sentence':>12}{'unknown':>9}{'target':>16}{'a sentence':>12}{'unknown':>9}"
    for name, sides in report["tokens"].items():
        cells = (
            f"{each['num_tokens']:>14,}{each['tokens_per_sentence']:>12.1f}{each['unknown_share']:>9.2%}"
            for each in (sides["source"], sides["target"])
        )
        yield f"  {name:<18}{'  '.join(cells)}"
    yield f"  {'vocabulary':<18}{report['vocabulary']['source']:>14,}{report['vocabulary']['target']:>37,}"
    yield ""


def _format_lengths(sides: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A histogram of both sides."""
    counts = [np.array(sides[side]["length_counts"]) for side in ("source", "target")]
    longest = max(map(len, counts))
    counts = [np.pad(side, (0, longest - len(side))) for side in counts]
    most = int(np.searchsorted(np.cumsum(sum(counts)), 0.99 * sum(map(np.sum, counts))))
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step == 100 or most / step <= 12)
    starts = list(range(0, max(most, 1), step))
    sums = [[int(side[start : start + step].sum()) for start in starts] for side in counts]
    for side, kept in zip(counts, sums, strict=True):
        kept.append(int(side[starts[-1] + step :].sum()))
    highest = max(1, *(count for side in sums for count in side))
    yield f"{'length in tokens':<20}{'source':<{_WIDTH + 12}}target"
    for index, pair in enumerate(zip(*sums, strict=True)):
        first = starts[-1] + step if index == len(starts) else starts[index]
        label = f"{first:>4} and more" if index == len(starts) else f"{first:>4} to {first + step - 1}"
        bars = (f"{_BAR * round(_WIDTH * count / highest):<{_WIDTH}}{count:>10,}" for count in pair)
        yield f"  {label:<18}{'  '.join(bars)}"
    yield ""


def _short(text: str, width: int = 150) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def shown_pairs(data: Data, name: str, number: int, dropped: str | None) -> list[str]:
    """Some pairs of a corpus, evenly spread, as the model sees them; or some that were dropped, for a reason or any.

    Raises:
        InputError: if there is no such corpus or reason.
    """
    if name not in data.corpora:
        raise InputError(f"--split {name}: this config has no such corpus, only {', '.join(data.corpora)}")
    if dropped is not None and dropped not in (*STATUS_NAMES[2:], "any"):
        raise InputError(f"--dropped {dropped}: unknown reason; use any or one of {', '.join(STATUS_NAMES[2:])}")
    corpus, statuses = data.corpora[name], data.statuses(name)
    if dropped is None:
        rows = np.flatnonzero(statuses == corpus.code)
    else:
        rows = np.flatnonzero(
            statuses > STATUS_CODES["held_out"] if dropped == "any" else statuses == STATUS_CODES[dropped]
        )
    mask = np.zeros(len(statuses), dtype=bool)
    mask[rows[np.linspace(0, len(rows) - 1, min(number, len(rows))).astype(np.int64)]] = True
    lines = []
    for row, (line, *sides) in zip(np.flatnonzero(mask), corpus.rows(mask), strict=True):
        part = next(part for part in corpus.parts if row < part.first_row + part.num_rows)
        status = "" if dropped is None else f", dropped: {STATUS_NAMES[statuses[row]]}"
        lines.append(f"{part.name}, line {line:,}{status}")
        for label, text, tokenizer in zip(("source", "target"), sides, data.tokenizers, strict=True):
            lines.append(f"  {label}  {_short(text, 2_000)}")
            lines.append(f"  tokens  {_short(' '.join(tokenizer.pieces(text)), 4_000)}")
    return lines


def write_clean(data: Data, config: Config, path: Path) -> int:
    """Write the pairs that are trained on, without tags, as a new TSV file; return their number.

    Raises:
        InputError: if the file exists already, or cannot be written.
    """
    corpus = data.corpora["train"]
    number = 0
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            for _, source, target in corpus.rows(data.statuses("train") == KEPT):
                file.write(f"{untagged(source, config.corpus.tags)}\t{target}\n")
                number += 1
    except FileExistsError:
        raise InputError(f"{path}: is there already; give the clean pairs a new name") from None
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    return number
