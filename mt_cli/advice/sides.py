"""Languages and columns of the two sides of parallel text: from options, otherwise from language codes in names.

The codes are the suffixes of two files (`train.es`), columns of a table or keys of `translation`, the languages of a
translation memory, and the header of a catalogue, whose messages are in English. The text itself is not examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.corpus.columns import columns_by_role
from mt_cli.corpus.dataset import names_in_dataset
from mt_cli.corpus.folder import varieties_in_folder
from mt_cli.corpus.formats.table import FORMATS, format_of, names_in
from mt_cli.corpus.languages import LANGUAGE_CODE, NO_CODES, is_common, is_known, language_in, primary
from mt_cli.corpus.lines import CHUNK_BYTES, opened, suffix_inside
from mt_cli.corpus.rows import Columns, Languages, Names
from mt_cli.corpus.source_rows import files_of
from mt_cli.corpus.varieties import (
    is_same_variety,
    is_variety_of,
    listed,
    merged_spellings,
    nearest_variety,
    plain_code,
)
from mt_cli.data.encode import SIDES
from mt_cli.errors import CorpusError, InputError
from mt_cli.runtime.console import truncate

Given = tuple[str | None, str | None]
"""Language of each side, or None where it is not given."""
Tree = dict[str, Any]
NAME_COLUMNS = "name the two columns with --columns SOURCE TARGET"
_LANGUAGE_OF_MESSAGES = "en"
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""Bytes of files without text: a byte order mark and white space."""
_SHARE_OF_MISTAKES = 0.05
"""Share of headers of catalogues below which a language counts as a mistake, such as a copied header."""


@dataclass(frozen=True)
class Sides:
    """Languages of a source, and the options with which it is read in them."""

    languages: Languages
    origins: tuple[str, str]
    """Where the language of each side is from, for people."""
    options: Tree = field(default_factory=dict)
    """`columns` and `reverse` of the source in a config, where they are needed."""
    notes: Sequence[str] = ()


def title_of(source: Source) -> str:
    if isinstance(source, DatasetSource):
        return f"dataset {source.dataset}"
    if isinstance(source, FolderSource):
        return source.folder
    return " and ".join(source.files) if isinstance(source, FilesSource) else str(getattr(source, "file", ""))


def resolve_sides(source: Source, given: Given, preferred: Columns = None) -> Sides:
    """Resolve the languages and columns of a source; `preferred` are the columns of a table that has them.

    Raises CorpusError if the source cannot be read, and InputError, which names the options to give, if a language or
    a column is not clear.
    """
    if isinstance(source, FilesSource):
        return _sides_of_files(source, given)
    if isinstance(source, DatasetSource):
        return _sides_of_table(source, names_in_dataset(source), given, preferred)
    assert isinstance(source, FileSource | FolderSource)
    path = files_of(source)[0]
    kind = format_of(path, source.format)
    if isinstance(source, FileSource):
        with opened(path) as file:
            if not file.read(CHUNK_BYTES).strip(_BLANK):
                raise CorpusError(f"{path}: the file is empty")
    if kind.varieties is not None:
        in_folder = varieties_in_folder(source) if isinstance(source, FolderSource) else None
        return _sides_of_memory(source, in_folder or merged_spellings(kind.varieties(path)), given)
    if kind is FORMATS["po"]:
        return _sides_of_catalogues(source, given)
    may_be_text = kind not in (FORMATS["json"], FORMATS["parquet"])
    return _sides_of_table(source, next(_names_in_files(source)), given, preferred, may_be_text)


def _names_in_files(source: FileSource | FolderSource) -> Iterator[Names]:
    for path in files_of(source):
        with suppress(CorpusError) if getattr(source, "skip_damaged", False) else nullcontext():
            yield names_in(path, source.format)


def _complete(
    title: str,
    given: Given,
    by_name: Sequence[str | None],
    origins: Sequence[str] = ("from a name",) * 2,
    options: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Sides:
    source, target = (option or name for option, name in zip(given, by_name, strict=True))
    if source is None or target is None:
        missing = [side for side, language in zip(SIDES, (source, target), strict=True) if language is None]
        raise InputError(
            f"{title}: no name tells the language of the {' and of the '.join(missing)}; give its code with "
            + " and ".join(f"--{side}-language" for side in missing)
        )
    if is_same_variety(source, target):
        sides = source if source == target else f"one language, {source} and {target}"
        raise InputError(f"{title}: both sides seem to be {sides}; give --source-language and --target-language")
    first, second = (
        f"from --{side}-language" if option else origin
        for side, option, origin in zip(SIDES, given, origins, strict=True)
    )
    return Sides((source, target), (first, second), dict(options or {}), notes)


def _sides_of_files(source: FilesSource, given: Given) -> Sides:
    title, paths = title_of(source), [Path(file) for file in source.files]
    suffixes = [suffix_inside(path)[1:] for path in paths]
    first, second = (suffix if is_known(suffix) else None for suffix in suffixes)
    if first and second and primary(first) != primary(second):
        wanted = [primary(code or "") for code in given]
        if wanted[0] == primary(second) or wanted[1] == primary(first):
            raise InputError(
                f"{title}: are in {first} and {second} by their names; give the file of the source first, or other "
                "languages"
            )
    return _complete(title, given, (first, second))


def _sides_of_memory(source: FileSource | FolderSource, varieties: Mapping[str, int], given: Given) -> Sides:
    """Sides of a translation memory. Varieties of a language are never mixed."""
    title = title_of(source)
    if not varieties:
        raise InputError(f"{title}: has no segment in a language that it names")
    codes = source.columns or _chosen_codes(title, given, list(varieties), listed(varieties))
    counts = Counter(map(primary, varieties))
    # The plain code, if the language has no other variety.
    languages = [plain_code(code) if counts[primary(code)] == 1 else code.replace("-", "_") for code in codes]
    return _complete(title, given, languages, ("from xml:lang",) * 2)


def _chosen_codes(title: str, given: Given, codes: Sequence[str], listed: str) -> tuple[str, str]:
    """Code for each side: the only one that fits the given language, otherwise the only one of another language.

    Raises InputError, with the codes as `listed`, if there is no such code, or several.
    """
    fitting = [language and nearest_variety(language, codes) for language in given]
    languages = {primary(language) for language in given if language}
    rest = [code for code in codes if code not in fitting]
    rest = [code for code in rest if primary(code) not in languages] or rest
    if len(rest) == given.count(None):
        fitting = [fit if language else rest.pop(0) for fit, language in zip(fitting, given, strict=True)]
    first, second = fitting
    if first is None or second is None:
        counts = Counter(map(primary, codes))
        varieties = [code.replace("-", "_") for code in codes if counts[primary(code)] > 1]
        example = f", such as {varieties[0]}" if varieties else ""
        unknown = [language for language, fit in zip(given, fitting, strict=True) if language and not fit]
        problem = f"has no {' and no '.join(unknown)}; " if unknown else ""
        raise InputError(
            f"{title}: {problem}there are the languages {listed}; choose with --source-language and "
            f"--target-language{example}"
        )
    return first, second


def _sides_of_catalogues(source: FileSource | FolderSource, given: Given) -> Sides:
    """Sides of gettext catalogues: messages in English, translations in the language given, or that of most headers."""
    title = title_of(source)
    counts = Counter(name for names in _names_in_files(source) for name in names.names if is_known(name))
    wanted = given[1] if given[1] and primary(given[1]) != _LANGUAGE_OF_MESSAGES else None
    chosen = nearest_variety(wanted, counts) if wanted else None
    header = chosen or (counts.most_common(1)[0][0] if counts else None)
    others = {code: number for code, number in counts.most_common() if code != header}
    for code, number in others.items():
        is_other = not (is_variety_of(code, str(header)) or is_variety_of(str(header), code))
        if is_other and not chosen and number > _SHARE_OF_MISTAKES * counts.total():
            listed = ", ".join([str(header), *others])
            raise InputError(
                f"{title}: has translations into {listed}; give a file or a folder of one of these languages, or "
                "a pattern such as 'po/**/de.po' (docs/localisation.md)"
            )
    source_language, target_language = (primary(code) if code else None for code in given)
    language = primary(header) if header else None
    is_reversed = language != _LANGUAGE_OF_MESSAGES and (
        target_language == _LANGUAGE_OF_MESSAGES or (source_language is not None and source_language == language)
    )
    by_name, origins = [_LANGUAGE_OF_MESSAGES, header], ["usual in catalogues", "from the header"]
    if is_reversed:
        by_name, origins = by_name[::-1], origins[::-1]
    notes = [f"{title}: the translations are the source, the messages the target (`reverse: true`)"] * is_reversed
    if others:
        listed = ", ".join(f"{number:,} {code}" for code, number in others.items())
        notes.append(
            f"{title}: {counts[header or '']:,} of {counts.total():,} headers say {header}, the others {listed}"
        )
    if language and language not in {source_language, target_language or language}:
        notes.append(f"{title}: the headers say {header}; check the language of the translations")
    return _complete(title, given, by_name, origins, {"reverse": True} if is_reversed else {}, notes)


def _sides_of_table(
    source: DatasetSource | FileSource | FolderSource,
    names: Names,
    given: Given,
    preferred: Columns,
    may_be_text: bool = False,
) -> Sides:
    """Sides of a table: `columns`, columns called `source` and `target`, or columns named like the languages.

    `may_be_text` says that the names may be text instead, because tables in TSV or CSV need no heading.
    """
    title, headings = title_of(source), names.names
    code_of = {name: code for name in headings if (code := _code_of_column(name, names.are_languages or name in given))}
    if len(headings) > 2 and "id" not in given:
        code_of.pop("id", None)  # Numbers, rather than Indonesian.
    if preferred and not set(preferred) <= set(headings) and not (may_be_text and all(map(str.isdecimal, preferred))):
        preferred = None
    columns = source.columns or preferred
    if columns is not None:
        by_number = {str(number): name for number, name in enumerate(headings, start=1) if str(number) not in headings}
        names_of_columns = [by_number.get(column, column) for column in columns]
        for column, name in zip(columns, names_of_columns, strict=True):
            if headings and name not in headings:
                shown = ", ".join(repr(truncate(heading, 40)) for heading in headings[:20])
                raise InputError(f"{title}: no column {column} among {shown}; {NAME_COLUMNS}, by name or number from 1")
        by_name = [code_of.get(name) for name in names_of_columns]
        return _complete(title, given, by_name, options={"columns": list(columns)})
    columns = columns_by_role(headings)
    is_heading = len(code_of) > 1 and (not may_be_text or any(map(is_common, code_of.values())))
    if columns is None and is_heading:
        codes = list(dict.fromkeys(code_of.values()))
        chosen = _chosen_codes(title, given, codes, ", ".join(codes))
        first, second = (next(name for name in headings if code_of.get(name) == code) for code in chosen)
        columns = first, second
    elif columns is None and not may_be_text:
        raise InputError(f"{title}: its columns are {', '.join(headings) or 'not known'}; {NAME_COLUMNS}")
    sides = _complete(title, given, [code_of.get(name) for name in columns or ("", "")])
    return sides if columns in (None, sides.languages) else replace(sides, options={"columns": list(columns or ())})


def _code_of_column(name: str, is_language: bool) -> str | None:
    """Language that a column or key stands for; with `is_language`, also if its code is in no registry."""
    if is_known(name) or (is_language and LANGUAGE_CODE.fullmatch(name) and name.lower() not in NO_CODES):
        return name
    return language_in(name)
