"""Translations of a baseline, which a run is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mt_cli.corpus.plain_text import input_lines
from mt_cli.corpus.rows import BlankRow, Languages, untagged
from mt_cli.errors import InputError
from mt_cli.translation.target import target_tag
from mt_cli.translation.translator import Translator


def read_translations(path: Path, num_pairs: int, left_out: Sequence[BlankRow]) -> list[str]:
    """Read the translations in a file, without those of rows that are left out if it has them too."""
    lines = list(input_lines(path, as_lines=True))
    if len(lines) == num_pairs + len(left_out):
        blank = {row.num_before + place for place, row in enumerate(left_out)}
        lines = [line for place, line in enumerate(lines) if place not in blank]
    if len(lines) != num_pairs:
        raise InputError(f"{path}: has {len(lines):,} lines for {num_pairs:,} sentences")
    return lines


def translate_as_baseline(
    path: Path,
    load: Callable[[Path], Translator],
    sources: Sequence[str],
    languages: Sequence[Languages],
    tags: Sequence[str],
    search: Mapping[str, Any],
) -> list[str]:
    """Translate with another run; `languages` has the direction of each source.

    A source keeps its tag, one of `tags`, if the other run knows it too. Raises InputError if the other run does not
    translate in a direction.
    """
    baseline = load(path)
    has_targets = bool(baseline.tagging.targets)
    unknown_tags = [tag for tag in tags if tag not in baseline.tags]
    translations = [""] * len(sources)
    for direction in dict.fromkeys(languages):
        if not has_targets and direction != baseline.languages:
            names = [" to ".join(pair) for pair in (baseline.languages, direction)]
            raise InputError(
                f"--against {path}: translates {names[0]}, and this run {names[1]}; the languages must agree"
            )
        rows = [row for row, pair in enumerate(languages) if pair == direction]
        texts = [untagged(sources[row], unknown_tags) for row in rows]
        try:
            tag = target_tag(baseline, direction[1]) if has_targets else None
            translated = baseline.translate(texts, **{**search, "tag": tag})
        except InputError as error:
            raise InputError(f"--against {path}: {error}; --to compares one direction of this run") from None
        for row, text in zip(rows, translated, strict=True):
            translations[row] = text
    return translations
