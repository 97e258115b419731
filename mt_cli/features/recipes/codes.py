"""The languages that names of files, columns and configurations of datasets stand for.

Many short words are codes of languages: `dev` is Domung. So a code that is in the registry alone counts where another
name says that languages stand there: as a suffix (`train.es`, `train.aym`), or beside a common code (`{"en", "yor"}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.corpus.languages import (
    LANGUAGE_CODE,
    NO_CODES,
    code_beside_word,
    code_in_heading,
    is_common,
    is_known,
    primary,
)
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.rows import Languages

_LIKE_A_CODE = re.compile(r"([a-z]{2,3}|[A-Z]{2,3})([_-]([A-Z][a-z]{3}|[A-Z]{2}))*")
_DIRECTION = re.compile(r"(?:^|.*[^A-Za-z])([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)-([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)")


class InName(NamedTuple):
    """What the name of one of two files says; at least one of them is an empty string."""

    language: str
    """The code of its language; it may be in no registry."""
    unknown: str
    """What may be a code, but is in no registry."""


def codes_in_names(files: tuple[str, str]) -> tuple[InName, InName]:
    """What the names of two files say of their languages.

    A code is the suffix, if that of the other file differs; or it has the place of a common code in the other name, as
    `hau` in `eng.dev` and `hau.dev`; or it is the last part that is a common code.
    """
    source, target = (Path(file).with_suffix("") if Path(file).suffix in COMPRESSIONS else Path(file) for file in files)
    return _code_in_name(source, target), _code_in_name(target, source)


def _code_in_name(own: Path, other: Path) -> InName:
    suffix, other_suffix = own.suffix[1:], other.suffix[1:]
    candidates = list(_at_places_of_codes(own, other))
    if suffix != other_suffix and _may_be_code(suffix):
        if is_common(suffix):
            return InName(suffix, "")
        if own.stem == other.stem and (is_known(suffix) or is_known(other_suffix)):
            return InName(suffix, "")
        # Of files with other stems, both suffixes may mean something else.
        candidates += [suffix] if is_common(other_suffix) or not is_known(suffix) else []
    if candidates:
        return InName(candidates[-1], "") if is_known(candidates[-1]) else InName("", candidates[-1])
    parts = [*re.split(r"[._-]", own.name), *filter(_LIKE_A_CODE.fullmatch, re.split(r"[.-]", own.name))]
    return InName(next((part for part in reversed(parts) if is_common(part)), ""), "")


def _at_places_of_codes(own: Path, other: Path) -> Iterator[str]:
    """Parts of a name that may be codes, and have the place of another, common code in the other name."""
    for marks in (r"[._-]", r"[.-]"):  # In `eng_Latn.dev`, the code has two parts.
        parts, others = re.split(marks, own.name), re.split(marks, other.name)
        for part, at_same_place in zip(parts, others, strict=False) if len(parts) == len(others) else ():
            if part != at_same_place and _may_be_code(part) and is_common(at_same_place):
                yield part


def _may_be_code(name: str) -> bool:
    has_form = _LIKE_A_CODE.fullmatch(name) or (LANGUAGE_CODE.fullmatch(name) and is_known(name))
    return bool(has_form) and name.lower() not in NO_CODES


def is_unknown_code(name: str) -> bool:
    """Whether a name may be the code of a language that is not known."""
    return _may_be_code(name) and not is_known(name)


def codes_in_columns(names: Sequence[str], are_named: bool) -> dict[str, str]:
    """The languages of columns that are named by them, in order: by common codes, English names, or other codes.

    One of the other codes in the registry counts beside a common one; two of them if `are_named`: if the names can be
    no text.
    """
    common = {name: code for name in names if (code := code_in_heading(name))}
    if len(common) < 2:
        common |= _codes_beside_a_word(names)
    if len(names) > 2:
        common.pop("id", None)  # Numbers, rather than Indonesian.
    others = {name: name for name in names if name not in common and name != "id" and is_known(name)}
    is_pair = len(common) + len(others) == 2 and (common or are_named)
    found = common | others if is_pair else common
    return {name: found[name] for name in names if name in found}


def _codes_beside_a_word(names: Sequence[str]) -> dict[str, str]:
    """The languages of two or more columns that have a word in common, as `title_en` and `title_hau`.

    A code that is in the registry alone counts beside one common code.
    """
    codes_by_word: dict[str, dict[str, str]] = {}
    for name in names:
        word, code = code_beside_word(name)
        if is_known(code):
            codes_by_word.setdefault(word, {})[name] = code
    for codes in codes_by_word.values():
        num_common = sum(map(is_common, codes.values()))
        if len(set(codes.values())) > 1 and (num_common == len(codes) or (num_common, len(codes)) == (1, 2)):
            return codes
    return {}


def direction_in_names(source: Source) -> Languages | None:
    """Two languages in the name of a configuration, file or folder, such as `en-yor`, at least one of them common."""
    if isinstance(source, DatasetSource):
        names = [source.subset or ""]
    elif isinstance(source, FolderSource):
        names = [Path(source.folder).name]
    else:
        assert isinstance(source, FileSource | FilesSource)
        path = Path(source.files[0] if isinstance(source, FilesSource) else source.file)
        names = [*path.name.split("."), path.absolute().parent.name]
    for name in names:
        if (found := _DIRECTION.fullmatch(name)) and all(map(is_known, found.groups())):
            source_language, target_language = found.groups()
            is_pair = primary(source_language) != primary(target_language)
            if is_pair and (is_common(source_language) or is_common(target_language)):
                return source_language, target_language
    return None
