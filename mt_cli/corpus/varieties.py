"""Varieties of languages: which codes are equal, and which variety in a file matches a code of the config.

Codes are compared by their subtags, so `por_BR`, `pt-br` and `pt-Latn-BR` are one variety. A code without a script has
the likely script of BCP 47: `zh` and `zh-CN` are Simplified, `zh-TW` and `zh-HK` Traditional Chinese. Text in one
script is never read for a code in another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Languages
from mt_cli.errors import CorpusError

_MODIFIERS = {"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab"}
"""Scripts in modifiers of POSIX locales, such as `sr_RS@latin`."""
_OLD_SUBTAGS = {"chs": "Hans", "cht": "Hant"}
"""Scripts in codes of old translation tools, such as `zh-CHT`."""
_SAME_SCRIPTS = {"Hang": "Kore", "Aran": "Arab", "Hira": "Jpan", "Hrkt": "Jpan", "Kana": "Jpan", "Latf": "Latn"}
_LISTED = 20


class Variety(NamedTuple):
    """Parts of a language code. Codes with equal parts are spellings of one variety."""

    language: str
    script: str | None
    """Script of the code or, without one, its likely script; None if it is unknown."""
    territory: str | None
    others: frozenset[str]
    """Variants, extensions and private use."""


@dataclass
class Varieties:
    """Languages of the segments in a file or folder."""

    counts: dict[str, int] = field(default_factory=dict)
    """Number of segments of each variety, by its first spelling."""
    problem: str = ""
    """Place and number of units that have no segment."""
    _spellings: dict[Variety, str] = field(default_factory=dict)

    def add(self, code: str, number: int = 1) -> None:
        """Count segments of a language."""
        spelling = self._spellings.setdefault(variety_of(code), code)
        self.counts[spelling] = self.counts.get(spelling, 0) + number

    def update(self, other: Varieties) -> None:
        """Add the segments of another file."""
        for code, number in other.counts.items():
            self.add(code, number)
        self.problem = self.problem or other.problem

    def listed(self, codes: Iterable[str] | None = None) -> str:
        """Varieties with their number of segments, for people; by default all of them."""
        counts = [(code, self.counts[code]) for code in (self.counts if codes is None else codes)]
        texts = [f"{code} ({number:,})" for code, number in counts[:_LISTED]]
        if counts:
            (code, number), *_ = counts
            texts[0] = f"{code} ({number:,} segment{'s' * (number != 1)})"
        return ", ".join(texts + [f"{len(counts) - _LISTED:,} more"] * (len(counts) > _LISTED))


@dataclass(frozen=True)
class ChosenVarieties:
    """Varieties in a source, chosen for the languages of a config."""

    sides: tuple[Variety, Variety]
    codes: Mapping[str, str]
    """Code in the source, by language of the config."""
    notes: Sequence[str]
    """Lines for users."""


@lru_cache(maxsize=10_000)
def variety_of(code: str) -> Variety:
    """Parts of a code in any spelling; for a text that is not a code, only the part before the first hyphen."""
    import langcodes  # Takes a while.

    locale, _, modifier = code.replace("_", "-").partition("@")
    first, *subtags = locale.partition(".")[0].split("-")
    subtags = [_OLD_SUBTAGS.get(subtag.lower(), subtag) for subtag in subtags]
    script = [_MODIFIERS[modifier]] if modifier in _MODIFIERS else []
    variants = {modifier.lower()} if modifier and not script else set()
    try:
        tag = langcodes.Language.get("-".join([first, *script, *subtags]))
    except ValueError:
        return Variety(primary(code), None, None, frozenset(subtag.lower() for subtag in subtags) | variants)
    others = {*variants, *(tag.variants or ()), *(tag.extensions or ()), *([tag.private] if tag.private else ())}
    language = primary(tag.language or first)
    return Variety(language, _script(tag), tag.territory, frozenset(others))


def _script(tag: object) -> str | None:
    """Script in a parsed code, or its likely script; None if it is not known."""
    import langcodes

    assert isinstance(tag, langcodes.Language)
    likely = tag.maximize()
    # For languages without an entry, `langcodes` returns the script and the territory of English.
    is_unknown = tag.script is None and tag.territory is None and tag.language != "en" and likely.territory == "US"
    script = None if is_unknown else tag.script or likely.script
    return _SAME_SCRIPTS.get(script, script) if script else None


def is_same_variety(code: str, second_code: str) -> bool:
    """Whether two codes are spellings of one variety: `en`, `eng` and `en_Latn`, but not `en` and `en_GB`."""
    return variety_of(code) == variety_of(second_code)


def is_variety_of(name: str, language: str) -> bool:
    """Whether text called `name` is in a language: `en-US` is in `en` but not in `en-GB`, `zh-TW` not in `zh_Hans`."""
    wanted, variety = variety_of(language), variety_of(name)
    return _are_compatible(wanted, variety) and not _contradicts(wanted, variety)


def plain_code(code: str) -> str:
    """Language of a variety, with the script only if it is not the likely one: `zh_Hant` for `zh-TW`."""
    variety = variety_of(code)
    likely = variety_of(variety.language).script
    return variety.language if variety.script in (None, likely) else f"{variety.language}_{variety.script}"


def varieties_for(code: str, codes: Iterable[str]) -> list[str]:
    """Codes that match a code best: one, none, or several that match equally well.

    An equal code comes first, then the code with the most matching subtags and no contradiction, then any variety of
    the language in the same script.
    """
    wanted = variety_of(code)
    ranked: dict[tuple[int, int], list[str]] = {}
    for candidate in codes:
        variety = variety_of(candidate)
        if variety == wanted:
            return [candidate]
        if _are_compatible(wanted, variety):
            ranked.setdefault(_rank(wanted, variety), []).append(candidate)
    return ranked[max(ranked)] if ranked else []


def _are_compatible(wanted: Variety, variety: Variety) -> bool:
    scripts = {wanted.script, variety.script}
    return wanted.language == variety.language and (len(scripts) == 1 or None in scripts)


def _rank(wanted: Variety, variety: Variety) -> tuple[int, int]:
    """Number of equal subtags, and of contradicting ones (negative)."""
    has_territory = wanted.territory is not None and wanted.territory == variety.territory
    num_equal = (wanted.script == variety.script) + has_territory + len(wanted.others & variety.others)
    return num_equal, -_contradicts(wanted, variety) - len(wanted.others - variety.others)


def _contradicts(wanted: Variety, variety: Variety) -> bool:
    return None not in (wanted.territory, variety.territory) and wanted.territory != variety.territory


def chosen_varieties(varieties: Varieties, languages: Languages, where: str) -> ChosenVarieties:
    """Choose a variety in a source for each language of a config.

    Raises CorpusError if a language has no segment, or if several varieties fit equally well, because varieties are
    never mixed.
    """
    if not varieties.counts:
        raise CorpusError(varieties.problem or f"{where}: has no segments")
    source, target = codes = [_chosen(varieties, language, where) for language in languages]
    if source == target:
        both = " and ".join(f"`{language}`" for language in languages)
        raise CorpusError(f"{where}: {both} are both read from {source}; there is text in {varieties.listed()}")
    notes = [_note_on_choice(varieties, *choice, where) for choice in zip(languages, codes, strict=True)]
    chosen = variety_of(source), variety_of(target)
    return ChosenVarieties(
        chosen, dict(zip(languages, codes, strict=True)), [*filter(None, (varieties.problem, *notes))]
    )


def _chosen(varieties: Varieties, language: str, where: str) -> str:
    codes = varieties_for(language, varieties.counts)
    if not codes:
        problem = f"; {varieties.problem}" if varieties.problem else ""
        raise CorpusError(f"{where}: no segment is in `{language}`; there is text in {varieties.listed()}{problem}")
    if len(codes) > 1:
        raise CorpusError(
            f"{where}: `{language}` fits several varieties equally well: {varieties.listed(codes)}; write one of them "
            f"in the config, such as {codes[0].replace('-', '_')} (mt init: --source-language or --target-language)"
        )
    return codes[0]


def _note_on_choice(varieties: Varieties, language: str, code: str, where: str) -> str:
    """Note if other varieties are not read, or if the variety contradicts the language; otherwise empty."""
    wanted, variety = variety_of(language), variety_of(code)
    others = [other for other in varieties.counts if other != code and variety_of(other).language == wanted.language]
    if others:
        return f"{where}: `{language}` is read from {varieties.listed([code])}; not read: {varieties.listed(others)}"
    if _contradicts(wanted, variety):
        return f"{where}: has no `{language}`; {varieties.listed([code])} is read instead"
    return ""


def notes_on_mixtures(readings: Iterable[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """Note languages of a config that are different varieties in different corpora.

    `readings` has the name of each corpus, and the variety that was read for each language.
    """
    corpora: dict[str, dict[str, str]] = {}
    for name, varieties in readings:
        for language, code in varieties.items():
            corpora.setdefault(language, {}).setdefault(code, name)
    for language, names in corpora.items():
        first, *codes = names
        for code in codes:
            if _contradicts(variety_of(first), variety_of(code)):
                yield f"`{language}` is {first} in {names[first]}, and {code} in {names[code]}"
                break
