"""The report of `mt data check` as plain values and as lines, and pairs for `mt data show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.advice import notes
from mt_cli.advice.problems import Finding
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import HELD_OUT, STATUS_CODES, STATUS_NAMES
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.source_rows import places_in
from mt_cli.data.encode import SIDES, SideStatistics
from mt_cli.data.prepare import Data, notes_on_tags, notes_on_words
from mt_cli.data.statistics import notes_on_monolingual, notes_on_overlap, notes_on_reading, report_on_data
from mt_cli.errors import InputError
from mt_cli.runtime.console import truncate

_FILTERS = STATUS_NAMES[HELD_OUT + 1 :]


def examine(
    data: Data, config: Config, problems: Sequence[Finding], glossary: Glossary | None = None
) -> dict[str, Any]:
    """Report of `mt data check` as plain values."""
    rows = report_on_data(data, config)
    return {
        "run": config.name,
        "corpora": rows,
        **token_report(data),
        "notes": [
            *notes_on_tags(config),
            *notes_on_words(config),
            *notes_on_reading(data.corpora),
            *notes_on_overlap(rows),
            *notes_on_monolingual(data, config),
            *notes.notes_on_markers(data),
            *notes.notes_on_leaks(data, config),
            *notes.notes_on_unknown_tokens(data, config),
            *notes.notes_on_texts(data, config),
            *notes.notes_on_spans(data, config),
            *(notes.notes_on_terms(data, config, glossary) if glossary else ()),
            *(problem.message for problem in problems if problem.is_note),
        ],
        "problems": [asdict(problem) for problem in problems if not problem.is_note],
    }


def token_report(data: Data) -> dict[str, Any]:
    """Tokens of each corpus and sizes of the vocabularies, as plain values for `format_tokens`."""
    return {
        "tokens": {
            name: {side: _token_counts(getattr(statistics, side)) for side in SIDES}
            for name, statistics in data.statistics.items()
        },
        "vocabulary": {side: tokenizer.vocab_size for side, tokenizer in zip(SIDES, data.tokenizers, strict=True)},
    }


def _token_counts(counts: SideStatistics) -> dict[str, Any]:
    return {
        "num_tokens": counts.num_tokens,
        "tokens_per_sentence": round(counts.tokens_per_sentence, 2),
        "unknown_share": round(counts.unknown_share, 6),
    }


def format_examination(report: Mapping[str, Any]) -> Iterator[str]:
    yield f"{report['run']}\n"
    yield from _format_counts(report["corpora"])
    yield from format_tokens(report)
    yield ""
    for note in report["notes"]:
        yield f"note: {note}"
    for problem in report["problems"]:
        yield str(Finding(**problem))


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
            yield f"{labels[0]:<20}{truncate(labels[1], 24):<26}{status:<24}{count:>12,} {share}".rstrip()
            labels = ["", ""]
        if "not_held_out" in row:
            yield f"{'':<46}none held out for valid: {row['not_held_out']}"
        if row.get("times_per_epoch", 1) != 1:
            yield f"{'':<46}{'times seen per epoch':<24}{row['times_per_epoch']:>12.3g}"
    yield ""


def format_tokens(report: Mapping[str, Any]) -> Iterator[str]:
    """Table of tokens, tokens per sentence and unknown tokens of each corpus, then the sizes of the vocabularies."""
    yield f"{'tokens':<20}{'source':>14}{'a sentence':>12}{'unknown':>9}{'target':>16}{'a sentence':>12}{'unknown':>9}"
    for name, sides in report["tokens"].items():
        cells = (
            f"{sides[side]['num_tokens']:>14,}{sides[side]['tokens_per_sentence']:>12.1f}"
            f"{sides[side]['unknown_share']:>9.2%}"
            for side in SIDES
        )
        yield f"  {name:<18}{'  '.join(cells)}"
    yield f"  {'vocabulary':<18}{report['vocabulary']['source']:>14,}{report['vocabulary']['target']:>37,}"


def shown_pairs(data: Data, config: Config, name: str, number: int, dropped: str | None) -> list[str]:
    """Lines that show pairs of a corpus, evenly spread, as the model sees them; or pairs with the status `dropped`.

    `any` shows, if possible, equally many pairs for each filter. Raises InputError if the corpus or the status does not
    exist.
    """
    if name not in data.corpora:
        raise InputError(f"--split {name}: this config has no such corpus, only {', '.join(data.corpora)}")
    if dropped is not None and dropped not in (*_FILTERS, "any"):
        raise InputError(f"--dropped {dropped}: unknown filter; use any or one of {', '.join(_FILTERS)}")
    corpus, statuses = data.corpora[name], data.statuses(name)
    if dropped == "any":
        codes = [code for code in np.unique(statuses) if code > HELD_OUT]
    else:
        codes = [STATUS_CODES[dropped] if dropped else corpus.code]
    mask = _evenly_spread(statuses, codes, number)
    shown = list(corpus.rows_of_parts(mask))
    places = places_in(config.corpus, name, [(part.name, line) for part, (line, _, _) in shown])
    lines = []
    for code, (part, (line, *sides)) in zip(statuses[mask], shown, strict=True):
        status = f", dropped: {STATUS_NAMES[code]}" if dropped else ""
        lines.append(f"{part.name}, {places[part.name, line]}{status}")
        for label, text, tokenizer in zip(SIDES, sides, data.tokenizers, strict=True):
            lines.append(f"  {label}  {truncate(text, 2_000)}")
            lines.append(f"  tokens  {truncate(' '.join(tokenizer.pieces(text)), 4_000)}")
    return lines


def _evenly_spread(statuses: NDArray[np.uint8], codes: Sequence[int], number: int) -> NDArray[np.bool_]:
    """Mask of at most `number` rows, with about the same number of rows for each status if there are enough."""
    mask = np.zeros(len(statuses), dtype=bool)
    rows_of_codes = sorted((np.flatnonzero(statuses == code) for code in codes), key=len)
    for index, rows in enumerate(rows_of_codes):
        share = min(-(-number // (len(rows_of_codes) - index)), len(rows))
        mask[rows[np.linspace(0, len(rows) - 1, share).astype(np.int64)]] = True
        number -= share
    return mask
