"""Varieties of languages: which codes are equal, and which variety in a file matches a code of the config.

`por_BR`, `pt-br` and `pt-Latn-BR` are one variety. A code without a script has the likely script of BCP 47: `zh` and
`zh-CN` are Simplified, `zh-TW` and `zh-HK` Traditional Chinese. Text in one script is never read for a code in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from mt_cli.corpus.languages import parsed, primary, script_of
from mt_cli.corpus.rows import Languages, ReadReport
from mt_cli.errors import CorpusError
from mt_cli.runtime.console import listed as first_of


@lru_cache(maxsize=10_000)
def variety_of(code: str) -> str:
    """Full spelling of a code, the same for all codes of a variety: `pt-Latn-BR` for `por_BR`.

    For a text that is not a code, the text in lower case.
    """
    tag = parsed(code)
    if tag is None:
        return code.lower()
    subtags = [tag.language, script_of(code), tag.territory, *(tag.variants or ()), *(tag.extensions or ())]
    return "-".join([*filter(None, subtags), *([tag.private] if tag.private else [])])


def merged_spellings(counts: Mapping[str, int]) -> dict[str, int]:
    """Number of segments of each variety, by its first spelling, given the number for each spelling."""
    merged: dict[str, tuple[str, int]] = {}
    for code, number in counts.items():
        spelling, earlier = merged.get(variety_of(code), (code, 0))
        merged[variety_of(code)] = spelling, earlier + number
    return dict(merged.values())


def listed(varieties: Mapping[str, int]) -> str:
    return first_of([f"{code} ({number:,} segments)" for code, number in varieties.items()], 20)


def is_same_variety(code: str, second_code: str) -> bool:
    """True if two codes are spellings of one variety: `en`, `eng` and `en_Latn`, but not `en` and `en_GB`."""
    return variety_of(code) == variety_of(second_code)


def is_variety_of(name: str, language: str) -> bool:
    """True if text called `name` is in a language: `en-US` is in `en` but not in `en-GB`, `zh-TW` not in `zh_Hans`."""
    return _are_compatible(name, language) and not contradicts(name, language)


def plain_code(code: str) -> str:
    """Language of a variety, with the script only if it is not the likely one: `zh_Hant` for `zh-TW`."""
    language, script = primary(code), script_of(code)
    return language if script in (None, script_of(language)) else f"{language}_{script}"


def nearest_variety(code: str, codes: Iterable[str]) -> str | None:
    """Code of the same language and script that is nearest to a code; None without one.

    An equal code comes first, then a code of the same or a near territory, as in `langcodes.closest_supported_match`.
    """
    import langcodes

    wanted = variety_of(code)
    candidates = {variety_of(candidate): candidate for candidate in codes if _are_compatible(code, candidate)}
    if wanted in candidates or parsed(code) is None:
        return candidates.get(wanted)
    ordered = sorted(candidates, key=lambda variety: (len(variety), variety))
    nearest = langcodes.closest_supported_match(wanted, ordered, max_distance=1_000)
    return candidates[nearest] if nearest else None


def _are_compatible(code: str, second_code: str) -> bool:
    scripts = {script_of(code), script_of(second_code)}
    return primary(code) == primary(second_code) and (len(scripts) == 1 or None in scripts)


def is_in_same_region(code: str, second_code: str) -> bool:
    """True if two codes of catalogues are one variety: `de` and `de_DE`, `pt` and `pt_PT`, but not `pt` and `pt_BR`.

    A code without a territory has the likely one; gettext uses `pt` for Portugal.
    """
    return _are_compatible(code, second_code) and _territory_of(code) == _territory_of(second_code)


def _territory_of(code: str) -> str | None:
    tag = parsed(code)
    if tag is None or tag.territory:
        return tag.territory if tag else None
    return "PT" if tag.language == "pt" else tag.maximize().territory


def contradicts(code: str, second_code: str) -> bool:
    """True if two codes name different territories."""
    territories = {tag.territory for tag in (parsed(code), parsed(second_code)) if tag and tag.territory}
    return len(territories) > 1


def chosen_varieties(
    varieties: Mapping[str, int], languages: Languages, where: str, report: ReadReport
) -> tuple[str, str]:
    """Choose the code in a source for each language of a config; varieties are never mixed.

    `report` gets the choice, with a note if other varieties are not read, or if a variety contradicts its language.
    Raises CorpusError if a language has no segment.
    """
    codes: dict[str, str] = {}
    for language in languages:
        code = nearest_variety(language, varieties)
        if code is None:
            raise CorpusError(f"{where}: no segment is in `{language}`; there is text in {listed(varieties)}")
        codes[language] = code
        chosen = listed({code: varieties[code]})
        others = {other: number for other, number in varieties.items() if primary(other) == primary(language)}
        others.pop(code)
        if others:
            report.choices.append(f"{where}: `{language}` is read from {chosen}; not read: {listed(others)}")
        elif contradicts(language, code):
            report.choices.append(f"{where}: has no `{language}`; {chosen} is read instead")
    source, target = (codes[language] for language in languages)
    if source == target:
        both = " and ".join(f"`{language}`" for language in languages)
        raise CorpusError(f"{where}: {both} are both read from {source}; there is text in {listed(varieties)}")
    return source, target
