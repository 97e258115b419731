"""Corrections in a document of drafts that a person has edited, found by comparing it with the drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mt_cli.corpus.corrections import Correction
from mt_cli.corpus.formats.table import format_of, read_file
from mt_cli.corpus.rows import Languages, Pair, ReadReport
from mt_cli.errors import InputError


def compare_with_drafts(
    edited: Path, drafts: Path, languages: Languages, model: str
) -> tuple[list[Correction], Counter[str]]:
    """Corrections in an edited document, and numbers of its other texts: `unchanged`, `emptied`, `without a draft`.

    Texts are matched by their source, the n-th of each source with the n-th; a translation that is a draft of another
    text with the same source is unchanged. Raises InputError if the files have different formats or no draft in common,
    and CorpusError as `read_file` does.
    """
    if format_of(edited) is not format_of(drafts):
        raise InputError(f"{drafts} and {edited}: give two files of one format")
    known = {(source, number): target for (source, target), number in _numbered(drafts, languages) if target.strip()}
    drafted = {(source, draft) for (source, _), draft in known.items()}
    corrections, counts = list[Correction](), Counter[str]()
    for (source, target), number in _numbered(edited, languages):
        draft = known.get((source, number))
        if draft is None:
            counts["without a draft"] += 1
        elif (source, target) in drafted:
            counts["unchanged"] += 1
        elif not target.strip():
            counts["emptied"] += 1
        else:
            corrections.append(Correction.of(source, target, draft, languages, model))
    if not corrections and counts.total() == counts["without a draft"]:
        raise InputError(f"{edited}: no text has a draft in {drafts}; give the file that mt translate wrote")
    return corrections, counts


def _numbered(path: Path, languages: Languages) -> Iterator[tuple[Pair, int]]:
    seen = Counter[str]()
    for _, source, target in read_file(path, languages, None, report=ReadReport(keeps_drafts=True)):
        if source.strip():
            yield (source, target), seen[source]
            seen[source] += 1
