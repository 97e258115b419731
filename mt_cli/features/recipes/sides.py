"""Which columns of parallel text are its sides, and which languages they are in: by names, then by texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mt_cli.config.sources import FilesSource, Source
from mt_cli.corpus.delimited import ROLES
from mt_cli.corpus.languages import LANGUAGE_CODE, NO_CODES, code_in_heading, is_common, is_known, primary
from mt_cli.corpus.rows import Columns, Languages, Row
from mt_cli.corpus.varieties import is_same_variety, is_variety_of, varieties_for
from mt_cli.errors import InputError
from mt_cli.features.orthography.recognition import are_near, language_of_texts, other_language_of_texts
from mt_cli.features.recipes.codes import codes_in_columns, codes_in_names, direction_in_names, is_unknown_code
from mt_cli.features.recipes.naming import Found, has_format, is_gettext, title_of
from mt_cli.features.recipes.varieties import SIDES, sides_of_memory

_NAMED_COLUMNS = re.compile(r"\.(jsonl?(\.\w+)?|parquet)$")
OWN_COLUMNS = "name the two columns with --columns SOURCE TARGET"


def refuse_unknown_codes(
    source: Source, found: Found, columns: Columns, languages: tuple[str | None, str | None]
) -> None:
    """Raise InputError for names that may be codes that are not known: words would find another language."""
    if isinstance(source, FilesSource):
        names = [each.unknown for each in codes_in_names(source.files)]
    else:
        names = [name if is_unknown_code(name) else "" for name in columns or ()]
    for side, language, name in zip(SIDES, languages, names, strict=False):
        if language is None and name:
            raise InputError(
                f"{title_of(source)}: the language of the {side} is not known: {name} is in no registry of languages; "
                f"if it is a code, give --{side}-language {name}, otherwise the code of the language"
            )


def columns_and_languages(
    source: Source, found: Found, given: tuple[str | None, str | None]
) -> tuple[Columns, tuple[str | None, str | None]]:
    """Columns, None for the default ones, and the languages as far as they are given or in names."""
    if isinstance(source, FilesSource):
        own = found.names if found.names[0] != found.names[1] else ("", "")
        return None, (given[0] or own[0] or None, given[1] or own[1] or None)
    columns = getattr(source, "columns", None)
    if found.varieties is not None:
        return columns, sides_of_memory(title_of(source), found.varieties, columns or given, given)
    if columns is not None:
        names = _names_of_columns(source, columns, found.names)
        # `sentence_eng_Latn` has a code behind a word.
        own_codes = [_code_of_column(name, found) or _code_of_column(name.partition("_")[2], found) for name in names]
        own_codes = own_codes if own_codes[0] != own_codes[1] else [None, None]
        return columns, (given[0] or own_codes[0], given[1] or own_codes[1])
    if is_gettext(source):
        target = target_of_catalogues(source, found.names)
        return None, (given[0], given[1] or target)
    code_of_name = _codes_of(source, found)
    column_of = {code: name for name, code in reversed(code_of_name.items())}
    codes = list(reversed(column_of))
    rest = [code for code in codes if primary(code) not in {primary(each) for each in given if each}]
    num_missing = given.count(None)
    if num_missing and len(rest) > num_missing:
        raise InputError(
            f"{title_of(source)}: there are the languages {', '.join(codes)}; choose with --source-language and "
            "--target-language"
        )
    is_named = len(rest) == num_missing
    source_language, target_language = (each or (rest.pop(0) if is_named else None) for each in given)
    languages = source_language, target_language
    if found.are_languages and _has_default_columns(source):
        return None, languages  # A translation memory has no columns.
    has_heading = found.are_languages or not _has_default_columns(source) or _are_codes(found.names)
    columns = _columns_named(source, languages, column_of, found.names, has_heading)
    _refuse_other_languages(source, columns, languages, code_of_name)
    columns = columns or _columns_by_heading(source, found.names, has_heading)
    if columns:  # Perhaps only one of them is named like a language.
        languages = languages[0] or code_of_name.get(columns[0]), languages[1] or code_of_name.get(columns[1])
    return (None if columns == languages else columns), languages


def has_columns(source: Source, columns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a source with such names has columns, which are given by name or, in a table, by number."""
    are_numbers = _has_default_columns(source) and all(map(str.isdecimal, columns))
    return set(columns) <= set(names) or (are_numbers and all(0 < int(each[:9]) <= len(names) for each in columns))


def _names_of_columns(source: Source, columns: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """The names of columns that are given by name or, in a table, by number; raises InputError if one is missing."""
    if set(columns) <= set(names):
        return columns
    if not (_has_default_columns(source) and all(map(str.isdecimal, columns))):
        missing = next(column for column in columns if column not in names)
        raise InputError(f"{title_of(source)}: no column {missing!r} among {', '.join(names)}")
    numbers = [int(column[:9]) for column in columns]
    for number in numbers:
        if not 1 <= number <= len(names):
            raise InputError(f"{title_of(source)}: no column {number}; there are {len(names):,}, counted from 1")
    return [names[number - 1] for number in numbers]


def target_of_catalogues(source: Source, names: Sequence[str]) -> str | None:
    """The language in the headers of gettext catalogues, if any; raises InputError if there are several."""
    names = [name for name in names if is_known(name)]
    if len(names) > 1:
        raise InputError(
            f"{title_of(source)}: has translations into {', '.join(names)}; give a file or a folder of "
            "one of these languages, or write a config with a `pattern` such as '**/de.po' (docs/localisation.md)"
        )
    return next(iter(names), None)


def _codes_of(source: Source, found: Found) -> dict[str, str]:
    """The languages that names stand for, as codes or by their English names."""
    if not found.are_languages:
        return codes_in_columns(found.names, are_named=not _has_default_columns(source))
    return {name: code for name in found.names if (code := _code_of_column(name, found))}


def _code_of_column(name: str, found: Found) -> str | None:
    """The language that the name of one column stands for."""
    is_code = found.are_languages and LANGUAGE_CODE.fullmatch(name) and name not in NO_CODES
    return name if is_code or is_known(name) else code_in_heading(name)


def _columns_named(
    source: Source,
    languages: tuple[str | None, str | None],
    column_of: Mapping[str, str],
    names: Sequence[str],
    has_heading: bool,
) -> Columns:
    """The columns whose names are, or stand for, the two languages; None if there is not one for each.

    Raises InputError if several varieties fit a language equally well.
    """
    named: list[str | None] = []
    for side, language in zip(SIDES, languages, strict=True):
        codes = varieties_for(language, [*column_of][::-1]) if language and language not in names else []
        if len(codes) > 1:
            raise InputError(
                f"{title_of(source)}: there are several varieties of {language}: {', '.join(codes)}; choose one with "
                f"--{side}-language, such as {codes[0].replace('-', '_')}"
            )
        named.append(language if language in names else column_of[codes[0]] if codes else None)
    if has_heading and len(names) == 2 and named.count(None) == 1:
        # The other name is that of the other language, perhaps as a code that is not known.
        named[named.index(None)] = next(name for name in names if name not in named)
    first, second = named
    return None if first is None or second is None else (first, second)


def _refuse_other_languages(
    source: Source, columns: Columns, languages: tuple[str | None, str | None], code_of_name: Mapping[str, str]
) -> None:
    """Raise InputError for a column that is named like another language than the given one."""
    for side, column, language in zip(SIDES, columns or (), languages, strict=False):
        code = code_of_name.get(column, "")
        if language and is_common(code) and not is_variety_of(code, language):
            codes = ", ".join(code_of_name.values())
            raise InputError(
                f"{title_of(source)}: has no language {language}; there are the languages {codes}; give one of them "
                f"with --{side}-language or, if the name is wrong, the columns with --columns"
            )


def _columns_by_heading(source: Source, names: Sequence[str], has_heading: bool) -> Columns:
    """The columns `source` and `target`, or the only two; None for the default ones.

    Raises InputError if there are others.
    """
    headings = next((pair for pair in ROLES if set(pair) <= set(names)), None)
    if headings or not has_heading or not names:
        return headings
    if len(names) != 2:
        found = ", ".join(names)
        problem = f"which of its columns {found} are source and target is not clear"
        raise InputError(f"{title_of(source)}: {problem}; {OWN_COLUMNS}")
    return names[0], names[1]


def _are_codes(names: Sequence[str]) -> bool:
    """Whether the first cells of a table are codes, at least one of them common, rather than text."""
    are_codes = all(map(LANGUAGE_CODE.fullmatch, names)) and any(map(is_common, names))
    return are_codes or all(map(code_in_heading, names))


def _has_default_columns(source: Source) -> bool:
    """Whether a file without headings has columns: a table of text, or a format without columns."""
    name = getattr(source, "file", getattr(source, "pattern", None))
    kind = getattr(source, "format", None)
    return name is not None and kind != "json" and not (kind is None and _NAMED_COLUMNS.search(name))


@dataclass(frozen=True)
class Detected:
    """The languages of both sides, and what is known of them."""

    languages: Languages
    origins: Sequence[str]
    """Where each of them is from, for people."""
    notes: Sequence[str]
    """What is odd about them, for people."""


def detected(
    given: tuple[str | None, str | None], named: tuple[str | None, str | None], rows: Sequence[Row], origin: Source
) -> Detected:
    """The languages: those given, in names, in the name of a direction such as `en-yor`, or by the texts.

    `named` has those given too. Raises InputError if one is not found, a side has no letters, or each side is in the
    language of the other.
    """
    title = title_of(origin)
    sides = [[row[1] for row in rows], [row[2] for row in rows]]
    _check_letters(sides, title)
    seen = [language_of_texts(texts) for texts in sides]
    direction = _in_order(direction_in_names(origin), [name or each for name, each in zip(named, seen, strict=True)])
    found, origins = [], []
    for side, option, name, hint, recognised in zip(SIDES, given, named, direction, seen, strict=True):
        language = name or hint or recognised
        if language is None:
            raise InputError(
                f"{title}: the language of the {side} is neither in names nor recognised by its words; give its code "
                f"with --{side}-language"
            )
        found.append(language)
        by_name = f"from --{side}-language" if option else _place_of_names(origin)
        origins.append(by_name if name or hint else "recognised by its words")
    source, target = found
    if is_same_variety(source, target):
        both = source if source == target else f"one language, {source} and {target}"
        raise InputError(f"{title}: both sides seem to be {both}; give --source-language and --target-language")
    if seen == [primary(target), primary(source)] and seen[0] != seen[1]:
        raise InputError(
            f"{title}: the source seems to be {target} and the target {source}; exchange them: give --source-language "
            f"{target} --target-language {source}, or exchange the names of files or columns"
        )
    notes = [*_notes_on_names(origin, named), *_notes_on_texts(sides, seen, (source, target), title)]
    return Detected((source, target), origins, notes)


def _place_of_names(origin: Source) -> str:
    """Where a source has the names of its languages, for people."""
    if is_gettext(origin):
        return "from the header"
    return "from xml:lang" if has_format(origin, ".tmx") else "from a name"


def _check_letters(sides: Sequence[Sequence[str]], title: str) -> None:
    for side, texts in zip(SIDES, sides, strict=True):
        if not any(map(str.isalpha, "".join(texts))):
            raise InputError(
                f"{title}: the {side} has no letters in the first {len(texts):,} pairs; if the file has other columns, "
                "name two of them, or number them from 1, with --columns SOURCE TARGET (in a config: `columns`)"
            )


def _in_order(direction: Languages | None, known: Sequence[str | None]) -> Sequence[str | None]:
    """The two languages in the order in which they fit what is known of the sides; (None, None) if they do not."""
    for pair in (direction, direction[::-1]) if direction else ():
        if all(each is None or are_near(primary(each), primary(own)) for each, own in zip(known, pair, strict=True)):
            return pair
    return None, None


def _notes_on_names(origin: Source, named: tuple[str | None, str | None]) -> Iterator[str]:
    """Notes on suffixes that are taken for codes although they are in no registry."""
    if isinstance(origin, FilesSource):
        for found, language in zip(codes_in_names(origin.files), named, strict=True):
            if found.language == language and not is_known(language):
                yield f"{language} is in no registry of languages; taken from the suffix"


def _notes_on_texts(
    sides: Sequence[Sequence[str]], seen: Sequence[str | None], languages: Languages, title: str
) -> Iterator[str]:
    """Notes on sides whose text is clearly in another language than their names say; `seen` is what texts say."""
    for index, (side, texts, language) in enumerate(zip(SIDES, sides, languages, strict=True)):
        other = other_language_of_texts(texts, language)
        partner = primary(languages[1 - index])
        if seen[index] == partner != seen[1 - index]:  # What the partner is in is not known.
            other = languages[1 - index]
        if other:
            yield f"{title}: the {side} looks like {other}, not {language}; check the files, or give --{side}-language"
