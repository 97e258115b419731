"""Languages that names of files, columns and configurations of datasets stand for.

Many short words are codes of languages: `dev` is Domung. So a code that is in the registry alone counts where another
name says that languages stand there: as a suffix (`train.es`, `train.aym`), or beside a common code (`{"en", "yor"}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mt_cli.config.sources import DatasetSource, FilesSource, FolderSource, Source
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

_CODE = re.compile(r"([a-z]{2,3}|[A-Z]{2,3})([_-]([A-Z][a-z]{3}|[A-Z]{2}))*")
_DIRECTION = re.compile(r"(?:^|.*[^A-Za-z])([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)-([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)")


def may_be_code(name: str) -> bool:
    """Whether a name has the form of a code, known or not, and is not a usual word for something else."""
    has_form = _CODE.fullmatch(name) or (LANGUAGE_CODE.fullmatch(name) and is_known(name))
    return bool(has_form) and name.lower() not in NO_CODES


def codes_in_file_names(files: Sequence[str]) -> tuple[str, str]:
    """Languages in the names of two files, which may be in no registry; an empty string where there is none.

    A code is the suffix if the other file has another one and one of them is known, or it has the place of a common
    code in the other name, as `hau` in `eng.dev` and `hau.dev`.
    """
    source, target = (Path(file).with_suffix("") if Path(file).suffix in COMPRESSIONS else Path(file) for file in files)
    codes = _code_in(source, target), _code_in(target, source)
    return codes if codes[0] != codes[1] else ("", "")


def _code_in(path: Path, partner: Path) -> str:
    suffix, other_suffix = path.suffix[1:], partner.suffix[1:]
    if suffix != other_suffix and may_be_code(suffix):
        is_language = is_common(suffix) or is_common(other_suffix)
        if is_language or (path.stem == partner.stem and (is_known(suffix) or is_known(other_suffix))):
            return suffix
    return ["", *_parts_beside_codes(path.name, partner.name)][-1]


def _parts_beside_codes(name: str, partner: str) -> Iterator[str]:
    """Parts of a name that may be codes, one of them or of the parts at the same places in the other name common."""
    for marks in (r"[._-]", r"[.-]"):  # In `eng_Latn.dev`, the code has two parts.
        parts, others = re.split(marks, name), re.split(marks, partner)
        for part, other in zip(parts, others, strict=False) if len(parts) == len(others) else ():
            if part != other and may_be_code(part) and (is_common(part) or is_common(other)):
                yield part


def codes_in_columns(names: Sequence[str], are_headings: bool) -> dict[str, str]:
    """Languages of the columns that are named by them: by common codes, English names, or other codes.

    One of the other codes in the registry counts beside a common one; two of them if `are_headings`: if the names
    cannot be text.
    """
    common = {name: code for name in names if (code := code_in_heading(name))}
    if len(common) < 2:
        common |= _codes_beside_a_word(names)
    if len(names) > 2:
        common.pop("id", None)  # Numbers, rather than Indonesian.
    others = {name: name for name in names if name not in common and name != "id" and is_known(name)}
    is_pair = len(common) + len(others) == 2 and (common or are_headings)
    codes = common | others if is_pair else common
    return {name: codes[name] for name in names if name in codes}


def _codes_beside_a_word(names: Sequence[str]) -> dict[str, str]:
    """Languages of two or more columns that have a word in common, as `title_en` and `title_hau`.

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


def direction_in_name(source: Source) -> Languages | None:
    """Two languages in the name of a configuration, file or folder, such as `en-yor`, at least one of them common."""
    if isinstance(source, DatasetSource):
        names = [source.subset or ""]
    elif isinstance(source, FolderSource):
        names = [Path(source.folder).name]
    else:
        path = Path(source.files[0] if isinstance(source, FilesSource) else str(getattr(source, "file", "")))
        names = [*path.name.split("."), path.absolute().parent.name]
    for name in names:
        if (match := _DIRECTION.fullmatch(name)) and all(map(is_known, match.groups())):
            first, second = match.groups()
            if primary(first) != primary(second) and (is_common(first) or is_common(second)):
                return first, second
    return None
