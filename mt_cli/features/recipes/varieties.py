"""Languages of translation memories, whose texts have codes, and of catalogues, whose headers name one language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mt_cli.corpus.varieties import Varieties, plain_code, varieties_for, variety_of
from mt_cli.errors import InputError

_SHARE_OF_MISTAKES = 0.02
"""Languages in fewer of the headers of catalogues are mistakes of those who copied a header."""
_SHARE_OF_A_VARIETY = 0.1
"""Varieties of other territories in more of the headers make a mixture."""
SIDES = ("source", "target")
_Given = tuple[str | None, str | None]


def languages_of_memory(varieties: Varieties) -> list[str]:
    """Languages of a translation memory as codes for a config: varieties of those that have several."""
    languages = [variety_of(code).language for code in varieties.counts]
    return [
        plain_code(code) if languages.count(language) == 1 else code.replace("-", "_")
        for code, language in zip(varieties.counts, languages, strict=True)
    ]


def sides_of_memory(title: str, varieties: Varieties, named: _Given, given: _Given) -> tuple[str, str]:
    """Source and target language of a translation memory: those given or named, otherwise its only other language.

    Raises InputError, with all varieties and their counts, if a side is not clear: varieties are never mixed.
    """
    if not varieties.counts:
        raise InputError(varieties.problem or f"{title}: has no segments")
    chosen = [None if code is None else _variety_given(title, varieties, code, side) for side, code in enumerate(named)]
    rest = [code for code in varieties.counts if code not in chosen]
    languages = {variety_of(code).language for code in chosen if code}
    rest = [code for code in rest if variety_of(code).language not in languages] or rest
    missing = [f"--{side}-language" for side, code in zip(SIDES, chosen, strict=True) if code is None]
    if len(rest) < len(missing):
        raise InputError(f"{title}: there is text in {varieties.listed()} alone; a memory needs two languages")
    if missing and len(rest) > len(missing):
        groups: dict[str, list[str]] = {}
        for code in rest:
            groups.setdefault(variety_of(code).language, []).append(code)
        if len(groups) == len(missing):
            missing = [option for option, codes in zip(missing, groups.values(), strict=True) if len(codes) > 1]
        options, listed = " and ".join(missing), varieties.listed()
        raise InputError(f"{title}: there are the languages {listed}; choose with {options}{_example(rest)}")
    names = dict(zip(varieties.counts, languages_of_memory(varieties), strict=True))
    source, target = (
        one or (other.replace("-", "_") if other else names[rest.pop(0)])
        for one, other in zip(given, named, strict=True)
    )
    return source, target


def _variety_given(title: str, varieties: Varieties, code: str, side: int) -> str:
    """The variety that a given code means; raises InputError unless there is exactly one."""
    codes = varieties_for(code, varieties.counts)
    if len(codes) == 1:
        return codes[0]
    option = f"--{SIDES[side]}-language"
    if not codes:
        raise InputError(f"{title}: {option} {code}: there is no text in it; there is text in {varieties.listed()}")
    raise InputError(
        f"{title}: {option} {code}: there are several varieties of it: {varieties.listed(codes)}; choose one"
        f"{_example(codes)}"
    )


def _example(codes: Sequence[str]) -> str:
    """Codes of varieties of one language, as examples for an option."""
    languages = [variety_of(code).language for code in codes]
    several = [code for code, language in zip(codes, languages, strict=True) if languages.count(language) > 1]
    return f", such as {several[0].replace('-', '_')}" if several else ""


def languages_of_headers(counts: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """The languages in the headers of catalogues, and notes on headers that say otherwise.

    `counts` has the number of headers with each code. Varieties of one language and script are one language, called by
    the most common code, unless many headers name different territories. Other languages in a few headers are mistakes.
    """
    total = sum(counts.values())
    groups: dict[tuple[str, str | None], list[str]] = {}
    for code in sorted(counts, key=lambda code: (-counts[code], len(code))):
        variety = variety_of(code)
        groups.setdefault((variety.language, variety.script), []).append(code)
    common = [group for group in groups.values() if sum(map(counts.__getitem__, group)) > _SHARE_OF_MISTAKES * total]
    names = [name for group in common for name in _without_minorities(group, counts, total)]
    if len(names) != 1:
        return names, []
    others = [f"{counts[code]:,} {code}" for group in groups.values() for code in group if code != names[0]]
    if not others:
        return names, []
    return names, [f"{counts[names[0]]:,} of {total:,} headers say {names[0]}, the others {', '.join(others)}"]


def _without_minorities(codes: Sequence[str], counts: Mapping[str, int], total: int) -> Iterable[str]:
    """The most common of the codes of one language, and those that contradict it in many headers."""
    yield codes[0]
    territory = variety_of(codes[0]).territory
    for code in codes[1:]:
        other = variety_of(code).territory
        if None not in (territory, other) and territory != other and counts[code] > _SHARE_OF_A_VARIETY * total:
            yield code
