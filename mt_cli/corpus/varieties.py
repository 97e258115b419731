"""Varieties of languages: which codes are equal, and which variety in a file matches a code of the config.

`por_BR`, `pt-br` and `pt-Latn-BR` are one variety. A code without a script has the likely script of BCP 47: `zh` and
`zh-CN` are Simplified, `zh-TW` and `zh-HK` Traditional Chinese. Text in one script is never read for a code in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mt_cli.corpus.languages import parsed, primary, script_of
from mt_cli.corpus.rows import Languages
from mt_cli.errors import CorpusError

_LISTED = 20


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


@dataclass
class Varieties:
    """Languages of the segments in a file or folder."""

    counts: dict[str, int] = field(default_factory=dict)
    """Number of segments of each variety, by its first spelling."""
    _spellings: dict[str, str] = field(default_factory=dict)

    def add(self, code: str, number: int = 1) -> None:
        """Count segments of a language."""
        spelling = self._spellings.setdefault(variety_of(code), code)
        self.counts[spelling] = self.counts.get(spelling, 0) + number

    def update(self, other: Varieties) -> None:
        """Add the segments of another file."""
        for code, number in other.counts.items():
            self.add(code, number)

    def listed(self, codes: Iterable[str] | None = None) -> str:
        """Varieties with their number of segments, for people; by default all of them."""
        texts = [f"{code} ({self.counts[code]:,})" for code in (self.counts if codes is None else codes)]
        if texts:
            texts[0] = texts[0].replace(")", " segments)")
        return ", ".join(texts[:_LISTED] + [f"{len(texts) - _LISTED:,} more"] * (len(texts) > _LISTED))


@dataclass(frozen=True)
class ChosenVarieties:
    """Varieties in a source, chosen for the languages of a config."""

    codes: Mapping[str, str]
    """Code in the source, by language of the config."""
    notes: Sequence[str]
    """Lines for users."""

    @property
    def sides(self) -> tuple[str, str]:
        """Varieties of the source and the target."""
        source, target = map(variety_of, self.codes.values())
        return source, target


def is_same_variety(code: str, second_code: str) -> bool:
    """True if two codes are spellings of one variety: `en`, `eng` and `en_Latn`, but not `en` and `en_GB`."""
    return variety_of(code) == variety_of(second_code)


def is_variety_of(name: str, language: str) -> bool:
    """True if text called `name` is in a language: `en-US` is in `en` but not in `en-GB`, `zh-TW` not in `zh_Hans`."""
    return _are_compatible(name, language) and not _contradicts(name, language)


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


def _contradicts(code: str, second_code: str) -> bool:
    territories = {tag.territory for tag in (parsed(code), parsed(second_code)) if tag and tag.territory}
    return len(territories) > 1


def chosen_varieties(varieties: Varieties, languages: Languages, where: str) -> ChosenVarieties:
    """Choose a variety in a source for each language of a config; varieties are never mixed.

    Raises CorpusError if a language has no segment.
    """
    if not varieties.counts:
        raise CorpusError(f"{where}: has no segment in a language that it names")
    codes = {language: _chosen(varieties, language, where) for language in languages}
    source, target = (codes[language] for language in languages)
    if source == target:
        both = " and ".join(f"`{language}`" for language in languages)
        raise CorpusError(f"{where}: {both} are both read from {source}; there is text in {varieties.listed()}")
    notes = (_note_on_choice(varieties, language, code, where) for language, code in codes.items())
    return ChosenVarieties(codes, [*filter(None, notes)])


def _chosen(varieties: Varieties, language: str, where: str) -> str:
    code = nearest_variety(language, varieties.counts)
    if code is None:
        raise CorpusError(f"{where}: no segment is in `{language}`; there is text in {varieties.listed()}")
    return code


def _note_on_choice(varieties: Varieties, language: str, code: str, where: str) -> str:
    """Note if other varieties are not read, or if the variety contradicts the language; otherwise empty."""
    others = [other for other in varieties.counts if other != code and primary(other) == primary(language)]
    if others:
        return f"{where}: `{language}` is read from {varieties.listed([code])}; not read: {varieties.listed(others)}"
    if _contradicts(language, code):
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
            if _contradicts(first, code):
                yield f"`{language}` is {first} in {names[first]}, and {code} in {names[code]}"
                break
