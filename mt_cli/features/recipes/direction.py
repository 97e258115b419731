"""Whether the sides of parallel text are the other way round than the languages that are given for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mt_cli.config.sources import FilesSource, Source
from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Row
from mt_cli.corpus.sources import read_rows
from mt_cli.corpus.varieties import variety_of
from mt_cli.features.orthography.recognition import language_of_texts
from mt_cli.features.recipes.naming import Found, is_gettext, title_of
from mt_cli.features.recipes.sides import target_of_catalogues

_Known = tuple[str | None, str | None]


class Oriented(NamedTuple):
    """A source whose sides are in the order of the given languages, as far as that can be seen."""

    source: Source
    named: _Known
    """The language of each side as far as it is given or in names."""
    rows: Sequence[Row]
    notes: Sequence[str]


def in_given_order(source: Source, found: Found, given: _Known, named: _Known, rows: Sequence[Row]) -> Oriented:
    """The source with `reverse` exchanged if its sides are those of the given languages, but exchanged.

    Nothing changes where names decide which text is which, as keys of `translation` do.
    """
    names = _names_by_place(source, found)
    seen = language_of_texts([row[1] for row in rows]), language_of_texts([row[2] for row in rows])
    if rows and found.varieties is None and is_reversed(given, names, seen):
        exchanged = source.model_copy(update={"reverse": not source.reverse})
        if _has_effect(exchanged, named, rows):
            option = str(exchanged.reverse).lower()
            languages = " to ".join(code or "?" for code in (names[0] or seen[0], names[1] or seen[1]))
            note = f"{title_of(source)}: is {languages}; `reverse: {option}` exchanges its sides"
            after = given[0] or names[1], given[1] or names[0]
            return Oriented(exchanged, after, [(number, right, left) for number, left, right in rows], [note])
    return Oriented(source, named, rows, [])


def is_reversed(given: _Known, names: _Known, seen: _Known) -> bool:
    """Whether the given languages are those of the two sides, but exchanged.

    `names` and `seen` have the language of each side by its name and by its text; None where it is not known. Text
    decides where both are known.
    """
    if None not in (*given, *names):
        wanted, exact = [variety_of(code or "") for code in given], [variety_of(code or "") for code in names]
        if exact[0] != exact[1] and exact[0].language == exact[1].language:
            return exact == wanted[::-1]  # Two varieties, which text does not tell apart.
    first, second = (primary(text or name or "") for text, name in zip(seen, names, strict=True))
    source, target = (primary(code or "") for code in given)
    if first == second or (source in ("", first) and target in ("", second)):
        return False
    is_contradicted = (source and second and source != second) or (target and first and target != first)
    is_supported = (source and source == second) or (target and target == first)
    return bool(is_supported and not is_contradicted)


def _names_by_place(source: Source, found: Found) -> _Known:
    """The language of each side by names that do not depend on the given languages."""
    if is_gettext(source):
        return None, target_of_catalogues(source, found.names)
    if isinstance(source, FilesSource) and found.names[0] != found.names[1]:
        return found.names[0] or None, found.names[1] or None
    return None, None


def _has_effect(exchanged: Source, named: _Known, rows: Sequence[Row]) -> bool:
    """Whether a source gives other sides than `rows` has."""
    number, source, target = next((row for row in rows if row[1] != row[2]), rows[0])
    read = read_rows(exchanged, (named[0] or "source", named[1] or "target"))
    return next((row[1:] for row in read if row[0] == number), None) == (target, source)
