"""Languages of the two sides of parallel text by the text itself, and notes on names that it contradicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mt_cli.config.sources import Source
from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.varieties import is_same_variety
from mt_cli.errors import InputError
from mt_cli.features.orthography.recognition import are_near, language_of_texts, other_language_of_texts
from mt_cli.features.recipes.names import direction_in_name
from mt_cli.features.recipes.sides import IN_HEADERS, SIDES, Given, Sides, title_of


@dataclass(frozen=True)
class Detected:
    """Languages of both sides."""

    languages: Languages
    origins: Sequence[str]
    """Where each of them is from, for people."""
    is_exchanged: bool
    """Whether `reverse` has to exchange the sides so that they are in this order."""
    notes: Sequence[str]


def detect_languages(given: Given, sides: Sides, rows: Sequence[Row], source: Source) -> Detected:
    """Detect the languages: given ones, in names, in the name of a direction such as `en-yor`, or by the texts.

    Raises InputError if one is not found, a side has no letters, or each side is in the language of the other one.
    """
    title, named = title_of(source), sides.languages
    texts = [[row[1] for row in rows], [row[2] for row in rows]]
    _check_letters(texts, title)
    seen = [language_of_texts(side) for side in texts]
    notes = [*sides.notes]
    is_exchanged = sides.by_place is not None and is_reversed(given, sides.by_place, (seen[0], seen[1]))
    if is_exchanged and sides.by_place:
        before = " to ".join(name or code or "?" for name, code in zip(sides.by_place, seen, strict=True))
        value = str(not source.reverse).lower()
        notes.append(f"{title}: is {before}; `reverse: {value}` exchanges its sides")
        named = given[0] or sides.by_place[1], given[1] or sides.by_place[0]
        texts, seen = texts[::-1], seen[::-1]
    hints = _in_order(direction_in_name(source), [name or code for name, code in zip(named, seen, strict=True)])
    languages, origins = [], []
    for side, option, name, hint, by_text in zip(SIDES, given, named, hints, seen, strict=True):
        if (language := name or hint or by_text) is None:
            raise InputError(
                f"{title}: the language of the {side} is neither in names nor recognised by its words; give its code "
                f"with --{side}-language"
            )
        languages.append(language)
        by_name = f"from --{side}-language" if option else sides.origin
        origins.append(by_name if name or hint else "recognised by its words")
    first, second = languages
    _check_languages((first, second), seen, title)
    if sides.origin == IN_HEADERS and sides.names and primary(sides.names[0]) not in map(primary, languages):
        notes.append(
            f"{title}: the headers say {sides.names[0]}, and neither {first} nor {second}; check the language of the "
            "translations"
        )
    return Detected((first, second), origins, is_exchanged, [*notes, *_contradictions(texts, seen, languages, title)])


def is_reversed(given: Given, by_place: Given, seen: Given) -> bool:
    """Whether the given languages are the languages of the two texts, but exchanged.

    `by_place` and `seen` have the language of each text by its name and by its words; None where it is not known. Words
    count more than names.
    """
    if None not in (*given, *by_place) and primary(str(given[0])) == primary(str(given[1])):
        # Two varieties, which words do not tell apart.
        return all(is_same_variety(str(a), str(b)) for a, b in zip(given, by_place[::-1], strict=True))
    wanted = [code and primary(code) for code in given]
    texts = [
        primary(code) if code else None for code in (word or name for word, name in zip(seen, by_place, strict=True))
    ]
    return texts[0] != texts[1] and _fits(wanted, texts[::-1]) and not _fits(wanted, texts)


def _fits(wanted: Sequence[str | None], texts: Sequence[str | None]) -> bool:
    """Whether the languages of texts are the wanted ones as far as both are known, at least one of them."""
    known = [pair for pair in zip(wanted, texts, strict=True) if None not in pair]
    return bool(known) and all(language == text for language, text in known)


def _check_letters(texts: Sequence[Sequence[str]], title: str) -> None:
    for side, lines in zip(SIDES, texts, strict=True):
        if not any(map(str.isalpha, "".join(lines))):
            raise InputError(
                f"{title}: the {side} has no letters in the first {len(lines):,} pairs; if the file has other columns, "
                "name two of them, or number them from 1, with --columns SOURCE TARGET (in a config: `columns`)"
            )


def _check_languages(languages: Languages, seen: Sequence[str | None], title: str) -> None:
    source, target = languages
    if is_same_variety(source, target):
        sides = source if source == target else f"one language, {source} and {target}"
        raise InputError(f"{title}: both sides seem to be {sides}; give --source-language and --target-language")
    if seen == [primary(target), primary(source)] and seen[0] != seen[1]:
        raise InputError(
            f"{title}: the source seems to be {target} and the target {source}; exchange them: give --source-language "
            f"{target} --target-language {source}, or exchange the names of files or columns"
        )


def _in_order(direction: Languages | None, known: Sequence[str | None]) -> Given:
    """Two languages in the order in which they fit the known languages of the sides; (None, None) if they do not."""
    for pair in (direction, direction[::-1]) if direction else ():
        if all(code is None or are_near(primary(code), primary(name)) for code, name in zip(known, pair, strict=True)):
            return pair
    return None, None


def _contradictions(
    texts: Sequence[Sequence[str]], seen: Sequence[str | None], languages: Sequence[str], title: str
) -> Iterator[str]:
    """Notes on sides whose text is clearly in another language than their names say."""
    for index, (side, lines, language) in enumerate(zip(SIDES, texts, languages, strict=True)):
        other = other_language_of_texts(lines, language)
        if seen[index] == primary(languages[1 - index]) != seen[1 - index]:  # The other side is not recognised.
            other = languages[1 - index]
        if other:
            yield f"{title}: the {side} looks like {other}, not {language}; check the files, or give --{side}-language"
