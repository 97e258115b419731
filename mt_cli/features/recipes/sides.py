"""Columns and languages of the two sides of parallel text by names: a resolver for each kind of source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.corpus.dataset import names_in_dataset
from mt_cli.corpus.delimited import ROLES
from mt_cli.corpus.folder import varieties_in_folder
from mt_cli.corpus.formats import format_of, names_in, suffix_of
from mt_cli.corpus.languages import LANGUAGE_CODE, code_in_heading, is_common, is_known, primary
from mt_cli.corpus.rows import Columns, Names
from mt_cli.corpus.sources import files_of
from mt_cli.corpus.varieties import Varieties, is_variety_of, plain_code, varieties_for, variety_of
from mt_cli.errors import CorpusError, InputError
from mt_cli.features.recipes.names import codes_in_columns, codes_in_file_names, may_be_code

SIDES = ("source", "target")
IN_NAMES, IN_HEADERS = "from a name", "from the header"
Given = tuple[str | None, str | None]
"""Language of each side, or None where it is not known."""
NOTE_ON_UNKNOWN = "{} is in no registry of languages; taken from a name"
NAME_COLUMNS = "name the two columns with --columns SOURCE TARGET"
_SHARE_OF_MISTAKES = 0.05
"""Languages in fewer of the headers of catalogues are mistakes of people who copied a header."""
_HAS_KEYS = re.compile(r"\.(jsonl?(\.\w+)?|parquet)$")


@dataclass(frozen=True)
class Sides:
    """Columns and languages of a source as far as options and names tell them."""

    languages: Given
    columns: Columns = None
    """None: the default ones."""
    names: Sequence[str] = ()
    """Languages or columns that there are, for messages."""
    by_place: Given | None = (None, None)
    """Language of the first and of the second text by names, whatever is asked for; None if a reader chooses the text
    by its language, so that `reverse` has no effect."""
    origin: str = IN_NAMES
    """Place of the names, for people."""
    notes: Sequence[str] = ()


def title_of(source: Source) -> str:
    """Name of a source for people."""
    if isinstance(source, DatasetSource):
        return f"dataset {source.dataset}"
    if isinstance(source, FolderSource):
        return f"{source.folder} ({source.pattern})"
    return " and ".join(source.files) if isinstance(source, FilesSource) else str(getattr(source, "file", ""))


def resolve_sides(source: Source, given: Given) -> Sides:
    """Resolve the columns and languages of a source by the given languages and by names.

    Raises CorpusError if the source cannot be read, and InputError if the names do not tell which text is meant.
    """
    if isinstance(source, FilesSource):
        return _sides_of_files(source, given)
    if isinstance(source, DatasetSource):
        return _sides_of_table(source, names_in_dataset(source), given)
    if isinstance(source, FolderSource):
        varieties = varieties_in_folder(source)
    else:
        assert isinstance(source, FileSource)
        count = format_of(Path(source.file), source.format).varieties
        varieties = None if count is None else count(Path(source.file), source.skip_damaged)
    if varieties is not None:
        return _sides_of_memory(source, varieties, given)
    if (suffix_of(Path(getattr(source, "file", getattr(source, "pattern", "")))) or "").startswith(".po"):
        return _sides_of_catalogues(source, given)
    return _sides_of_table(source, next(_names_in_files(source), Names([], False)), given)


def _names_in_files(source: Source) -> Iterator[Names]:
    """Names in each file that can be read."""
    assert isinstance(source, FileSource | FolderSource)
    for path in files_of(source):
        with suppress(CorpusError) if source.skip_damaged and isinstance(source, FolderSource) else nullcontext():
            yield names_in(path, source.format)


def _sides_of_files(source: FilesSource, given: Given) -> Sides:
    """Sides of two files, whose names may have the code of a language."""
    codes = codes_in_file_names(source.files)
    notes = [
        NOTE_ON_UNKNOWN.format(code)
        for code, language in zip(codes, given, strict=True)
        if code and not language and not is_known(code)
    ]
    by_name = codes[0] or None, codes[1] or None
    return Sides((given[0] or by_name[0], given[1] or by_name[1]), None, codes, by_name, notes=notes)


def _sides_of_memory(source: Source, varieties: Varieties, given: Given) -> Sides:
    """Sides of a translation memory: given languages, otherwise its only other language; varieties are never mixed."""
    title, columns = title_of(source), getattr(source, "columns", None)
    if not varieties.counts:
        raise InputError(varieties.problem or f"{title}: has no segments")
    wanted = columns or given  # Reading will refuse a code that no variety, or several ones, fit.
    chosen = {code for name in wanted if name for code in varieties_for(name, varieties.counts)}
    languages = {variety_of(code).language for code in chosen}
    rest = [code for code in varieties.counts if code not in chosen]
    rest = [code for code in rest if variety_of(code).language not in languages] or rest
    missing = [side for side, name in zip(SIDES, wanted, strict=True) if not name]
    if len(rest) < len(missing):
        raise InputError(f"{title}: there is text in {varieties.listed()} alone; a memory needs two languages")
    if missing and len(rest) > len(missing):
        raise InputError(f"{title}: there are the languages {varieties.listed()}; {_choice(missing, rest)}")
    # The plain code, if the language has no other variety.
    counts = Counter(variety_of(code).language for code in varieties.counts)
    codes = {
        code: plain_code(code) if counts[variety_of(code).language] == 1 else code.replace("-", "_")
        for code in varieties.counts
    }
    first, second = (
        language or (code.replace("-", "_") if code else codes[rest.pop(0)])
        for language, code in zip(given, wanted, strict=True)
    )
    return Sides((first, second), columns, [*codes.values()], by_place=None, origin="from xml:lang")


def _choice(missing: Sequence[str], codes: Sequence[str]) -> str:
    """Advice to choose the missing sides; if each has a language, only the sides whose language has varieties."""
    groups: dict[str, list[str]] = {}
    for code in codes:
        groups.setdefault(variety_of(code).language, []).append(code)
    several = [group[0] for group in groups.values() if len(group) > 1]
    if len(groups) == len(missing):
        missing = [side for side, group in zip(missing, groups.values(), strict=True) if len(group) > 1]
    options = " and ".join(f"--{side}-language" for side in missing)
    return f"choose with {options}" + (f", such as {several[0].replace('-', '_')}" if several else "")


def _sides_of_catalogues(source: Source, given: Given) -> Sides:
    """Sides of gettext catalogues, whose headers name the target language."""
    title = title_of(source)
    counts = Counter(name for names in _names_in_files(source) for name in names.names if is_known(name))
    languages = languages_of_headers(counts)
    if len(languages) > 1:
        raise InputError(
            f"{title}: has translations into {', '.join(languages)}; give a file or a folder of one of these "
            "languages, or write a config with a `pattern` such as '**/de.po' (docs/localisation.md)"
        )
    target = next(iter(languages), None)
    others = ", ".join(f"{number:,} {code}" for code, number in counts.most_common() if code != target)
    note = (
        f"{title}: {counts[target]:,} of {counts.total():,} headers say {target}, the others {others}" if target else ""
    )
    sides = given[0], given[1] or target
    return Sides(sides, None, languages, (None, target), IN_HEADERS, [note] if others else [])


def languages_of_headers(counts: Mapping[str, int]) -> list[str]:
    """Languages in the headers of catalogues, the most common one first; `counts` has the number of each code.

    A language that a few headers name is a mistake, and a code that is a variety of the most common one is no other
    language.
    """
    codes = sorted(counts, key=lambda code: (-counts[code], len(code)))
    languages = codes[:1]
    for code in codes[1:]:
        share = sum(counts[other] for other in codes if _is_one_language(code, other)) / sum(counts.values())
        if share > _SHARE_OF_MISTAKES and not _is_one_language(code, codes[0]):
            languages.append(code)
    return languages


def _is_one_language(code: str, other: str) -> bool:
    return is_variety_of(code, other) or is_variety_of(other, code)


def _sides_of_table(source: Source, names: Names, given: Given) -> Sides:
    """Sides of a table, whose columns may be named like languages."""
    title, headings = title_of(source), names.names
    name, kind = getattr(source, "file", getattr(source, "pattern", None)), getattr(source, "format", None)
    may_be_text = name is not None and kind != "json" and not (kind is None and _HAS_KEYS.search(name))
    if columns := getattr(source, "columns", None):
        by_number = {str(number): name for number, name in enumerate(headings, start=1)}
        chosen = columns if set(columns) <= set(headings) else [by_number.get(name, name) for name in columns]
        codes = [_code_of_heading(name, names.are_languages) for name in chosen]
        codes = codes if codes[0] != codes[1] else [None, None]
        return Sides((given[0] or codes[0], given[1] or codes[1]), columns, headings)
    if names.are_languages:
        code_of = {name: code for name in headings if (code := _code_of_heading(name, True))}
    else:
        code_of = codes_in_columns(headings, not may_be_text)
    languages = _with_only_others(title, given, [*dict.fromkeys(code_of.values())])
    are_codes = all(map(LANGUAGE_CODE.fullmatch, headings)) and any(map(is_common, headings))
    has_heading = names.are_languages or not may_be_text or are_codes or all(map(code_in_heading, headings))
    columns = _columns_named(title, languages, code_of, headings, has_heading)
    if columns is None:
        return Sides(languages, None, headings)
    for side, column, language in zip(SIDES, columns, languages, strict=True):
        code = code_of.get(column, "")
        if language and is_common(code) and not is_variety_of(code, language):
            raise InputError(
                f"{title}: has no language {language}; there are the languages {', '.join(code_of.values())}; give one "
                f"of them with --{side}-language or, if the name is wrong, the columns with --columns"
            )
    unknown = [
        name
        for name, language in zip(columns, languages, strict=True)
        if not language and may_be_code(name) and not is_known(name)
    ]
    first, second = (
        language or code_of.get(name) or (name if name in unknown else None)
        for name, language in zip(columns, languages, strict=True)
    )
    is_default = columns == (first, second)
    by_place = None if is_default else (None, None)
    notes = [NOTE_ON_UNKNOWN.format(name) for name in unknown]
    return Sides((first, second), None if is_default else columns, headings, by_place, notes=notes)


def _code_of_heading(name: str, is_language: bool) -> str | None:
    return name if is_known(name) or (is_language and may_be_code(name)) else code_in_heading(name)


def _with_only_others(title: str, given: Given, codes: Sequence[str]) -> Given:
    """Given languages and, for the sides without one, the only other languages that there are."""
    rest = [code for code in codes if primary(code) not in {primary(language) for language in given if language}]
    num_missing = given.count(None)
    if num_missing and len(rest) > num_missing:
        raise InputError(
            f"{title}: there are the languages {', '.join(codes)}; choose with --source-language and --target-language"
        )
    if len(rest) < num_missing:
        return given
    first, second = (language or rest.pop(0) for language in given)
    return first, second


def _columns_named(
    title: str, languages: Given, code_of: Mapping[str, str], headings: Sequence[str], has_heading: bool
) -> Columns:
    """Columns named like the languages, `source` and `target`, or the only two; None for the first two.

    Raises InputError if several varieties fit a language equally well, or there are other columns.
    """
    named: list[str | None] = []
    for side, language in zip(SIDES, languages, strict=True):
        codes = varieties_for(language, code_of.values()) if language and language not in headings else []
        if len({*codes}) > 1:
            raise InputError(
                f"{title}: there are several varieties of {language}: {', '.join(codes)}; choose one with "
                f"--{side}-language, such as {codes[0].replace('-', '_')}"
            )
        by_code = next((name for name, code in code_of.items() if code in codes), None)
        named.append(language if language in headings else by_code)
    if has_heading and len(headings) == 2 and named.count(None) == 1:
        named[named.index(None)] = next(name for name in headings if name not in named)
    if None not in named:
        return str(named[0]), str(named[1])
    columns = next((pair for pair in ROLES if set(pair) <= set(headings)), None)
    if columns or not has_heading or not headings:
        return columns
    if len(headings) != 2:
        problem = f"which of its columns {', '.join(headings)} are source and target is not clear"
        raise InputError(f"{title}: {problem}; {NAME_COLUMNS}")
    return headings[0], headings[1]
