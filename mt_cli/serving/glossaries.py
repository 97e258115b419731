"""Glossaries of a server, each for the directions of its languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mt_cli.corpus.columns import is_header
from mt_cli.corpus.formats.table import names_in
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.languages import language_in, primary
from mt_cli.errors import InputError
from mt_cli.serving.models import Direction, Models


def read_glossaries(paths: Sequence[Path], models: Models) -> Mapping[Direction, Glossary]:
    """Glossary of each direction of the models, with the codes of their runs, from the files that have its languages.

    Raises InputError if a file has no direction, or does not name its languages and there are several directions, or
    no model takes terms.
    """
    takers = [model for model in models.models if model.translator.takes_terms]
    directions = list(dict.fromkeys(pair for model in takers for pair in model.directions))
    if paths and not directions:
        raise InputError("--terms: no model has learned to use terms; train one with corpus.terms: true")
    by_direction: dict[Direction, list[Path]] = {}
    for path in paths:
        of_file = [pair for pair in directions if _has(path, pair)] if len(directions) > 1 else directions
        if not of_file:
            raise InputError(f"{path}: does not name two languages of a direction of this server in its first row")
        for pair in of_file:
            by_direction.setdefault(pair, []).append(path)
    return {pair: Glossary.read(of_pair, pair) for pair, of_pair in by_direction.items()}


def _has(path: Path, direction: Direction) -> bool:
    """True if a file names the languages of a direction; a catalogue names only the target."""
    names = names_in(path)
    has_names = names.are_languages or is_header(names.names, direction)
    codes = {primary(code) for name in names.names if has_names and (code := language_in(name))}
    return primary(direction.target) in codes and (len(codes) == 1 or primary(direction.source) in codes)
