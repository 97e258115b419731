"""Notes beside scores: problems of the scored texts that the scores do not show."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from mt_cli.corpus.rows import BlankRow, Languages
from mt_cli.evaluation.scores import rows_by_direction
from mt_cli.translation.stream import listed_lines

FEWEST_SENTENCES = 100
"""Number of sentences below which the intervals and p-values of the bootstrap are too small."""
_TOKEN = regex.compile(r"\w+|[^\w\s]")
_LONGEST_NGRAM = 4
_MISSING = {"blank_source": "no source", "blank_target": "no reference", "blank_pair": "neither side"}


def notes_on_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
    skipped: Sequence[BlankRow] = (),
) -> list[str]:
    """All notes on the scores of one system; `languages` has the direction of each pair, if there are several."""
    notes = [_note_on_skipped_rows(skipped, len(references))] if skipped else []
    fewest = min(map(len, rows_by_direction(languages).values()), default=len(references))
    if fewest < FEWEST_SENTENCES:
        notes.append(
            f"{fewest} sentence{'s' * (fewest != 1)}: intervals and p-values mean little below {FEWEST_SENTENCES} "
            "sentences, where single ones decide"
        )
    sides = zip(hypotheses, references, strict=True)
    if number := sum(not text.strip() and bool(reference.strip()) for text, reference in sides):
        notes.append(f"{number:,} of {len(hypotheses):,} translations are empty")
    return notes


def is_short(texts: Sequence[str]) -> bool:
    """True if most texts have fewer than four words and punctuation marks."""
    return 2 * sum(len(_TOKEN.findall(text)) < _LONGEST_NGRAM for text in texts) > len(texts)


def _note_on_skipped_rows(skipped: Sequence[BlankRow], num_pairs: int) -> str:
    """Note on rows that are not scored because a side is blank: number and places."""
    parts = []
    for status, missing in _MISSING.items():
        rows = [row for row in skipped if row.status == status]
        if lines := [f"{row.number:,}" + (f" of {row.origin}" if row.origin else "") for row in rows]:
            parts.append(f"{listed_lines(lines)} {'has' if len(lines) == 1 else 'have'} {missing}")
    are = "is" if len(skipped) == 1 else "are"
    return f"{len(skipped):,} of {num_pairs + len(skipped):,} pairs {are} left out: {'; '.join(parts)}"
