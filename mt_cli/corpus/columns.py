"""Columns of the two sides among the headers of a table, the keys of an object or the languages of a `translation`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mt_cli.corpus.languages import is_common, language_in, primary
from mt_cli.corpus.rows import Columns, Languages
from mt_cli.corpus.varieties import is_variety_of
from mt_cli.errors import ColumnError, CorpusError

_ROLES = (("source", "src"), ("target", "tgt", "trg"))


def columns_of(names: Sequence[str], languages: Languages, columns: Columns, where: str) -> tuple[int, int] | None:
    """Indices of the source and the target column; None if no name means a side or a language.

    `columns` name them; otherwise they are named like the languages or the roles. Upper and lower case do not matter
    unless names differ only in it. Raises CorpusError, which begins with `where`, if one of `columns` is missing or
    several columns are meant.
    """
    if columns is not None:
        sides = [[index for index, name in enumerate(names) if name == column] for column in columns]
        return _only(names, sides, columns, where)
    for rule in _rules(languages):
        sides = [[index for index, name in enumerate(names) if rule(name, side)] for side in (0, 1)]
        if all(sides):
            return _only(names, sides, languages, where)
    return None


def columns_by_role(names: Sequence[str]) -> tuple[str, str] | None:
    for rule in (_is_role, _has_role):
        source, target = ([name for name in names if rule(name, side)] for side in (0, 1))
        if len(source) == len(target) == 1:
            return source[0], target[0]
    return None


def is_header(names: Sequence[str], languages: Languages) -> bool:
    """True if texts are names of columns: a source and a target, or two or more languages and nothing else.

    Many words are also codes of languages, so texts count as languages only if all are common languages, or if one is
    common and one is expected.
    """
    if columns_by_role(names):
        return True
    codes = [language_in(name) for name in names]
    known = {code.lower(): code for code in codes if code}
    common = {code for code in known.values() if is_common(code)}
    expected = {primary(language) for language in languages}
    found = {primary(code) for code in known.values()}
    if expected <= found and common:
        return True
    return None not in codes and len(known) > 1 and (len(common) == len(known) or bool(common and expected & found))


def _rules(languages: Languages) -> Sequence[Callable[[str, int], bool]]:
    """Conditions on a name and a side, from the strictest on."""
    return (
        lambda name, side: name == languages[side],
        lambda name, side: name.strip().lower() == languages[side].lower(),
        _is_role,
        lambda name, side: is_variety_of(language_in(name) or "", languages[side]),
        _has_role,
    )


def _is_role(name: str, side: int) -> bool:
    return name.strip().lower() in _ROLES[side]


def _has_role(name: str, side: int) -> bool:
    """True if one of two words means the side and the other one neither side: `Target text`, `src_sentence`."""
    words = re.findall("[a-z]{3,}", name.lower())
    is_of_side = [any(word in roles for word in words) for roles in _ROLES]
    has_form = re.fullmatch("[a-z]+[ _.-]+[a-z]+", name.strip().lower()) is not None
    return has_form and len(words) == 2 and is_of_side[side] and not is_of_side[1 - side]


def _only(names: Sequence[str], sides: Sequence[Sequence[int]], wanted: Sequence[str], where: str) -> tuple[int, int]:
    """The only column of each side; raises CorpusError if there are several or none, or one for both sides."""
    for side, indices in zip(wanted, sides, strict=True):
        if not indices:
            listed = ", ".join(map(repr, names[:20])) or "nothing"
            raise ColumnError(f"{where}: no column {side!r} among {listed}")
        if len({names[index] for index in indices}) < len(indices):
            raise CorpusError(
                f"{where}: the column {names[indices[0]]!r} occurs {len(indices)} times; keep one of them"
            )
        if len(indices) > 1 or sides[0] == sides[1]:
            listed = ", ".join(repr(names[index]) for index in indices)
            raise ColumnError(f"{where}: the header names {listed} for the languages {' and '.join(wanted)}")
    return sides[0][0], sides[1][0]
