"""Languages that names of files, columns and datasets stand for, and text for evaluation with names like the source.

Many short words are codes of languages: `dev` is Domung. So a code that is in the registry alone counts where another
name says that languages stand there: as a suffix (`train.es`, `train.aym`), or beside a common code (`{"en", "yor"}`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.corpus.dataset import splits_of
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
from mt_cli.errors import CorpusError

_CODE = re.compile(r"([a-z]{2,3}|[A-Z]{2,3})([_-]([A-Z][a-z]{3}|[A-Z]{2}))*")
_DIRECTION = re.compile(r"(?:^|.*[^A-Za-z])([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)-([A-Za-z]{2,3}(?:_[A-Z][a-z]{3})?)")
Tree = dict[str, Any]
TRAIN = re.compile(r"(?<![^\W\d_])train(?:ing)?(?![^\W\d_])")
_WORDS = {"valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
"""Words for validation and test in names of files and splits."""


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
    code = ""
    for marks in (r"[._-]", r"[.-]"):  # In `eng_Latn.dev`, the code has two parts.
        parts, others = re.split(marks, path.name), re.split(marks, partner.name)
        for part, other in zip(parts, others, strict=False) if len(parts) == len(others) else ():
            if part != other and may_be_code(part) and (is_common(part) or is_common(other)):
                code = part
    return code


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


def text_for_evaluation(source: Source) -> dict[str, Tree]:
    """Sources of `valid`, `test` and further test sets beside a source; raises CorpusError for an unknown split."""
    if isinstance(source, FilesSource):
        return neighbours(source.files)
    if not isinstance(source, DatasetSource):
        return neighbours([source.file]) if isinstance(source, FileSource) else {}
    splits = splits_of(source)
    if source.split not in splits:
        raise CorpusError(
            f"dataset {source.dataset}: no split {source.split!r} among {', '.join(splits)}; choose one of them "
            "(--split, --valid, --test)"
        )
    tree = source.model_dump(mode="json", exclude_unset=True)
    roles = _WORDS | {"test": ("test", "devtest")}
    named = {
        role: [word for word in words if word in splits and word not in source.split] for role, words in roles.items()
    }
    return {role: {**tree, "split": words[0]} for role, words in named.items() if words}


def neighbours(paths: Sequence[str]) -> dict[str, Tree]:
    """Sources of files for validation and test beside training files, one file for each of them.

    A name belongs to a training file if it has a word such as `test` in place of `train`, or beside the stem: `test.en`
    beside `train.en`, `news.test.en` or `test-news.en` beside `news.en`. A file called `test` alone may have any
    content.
    """
    trees: dict[str, Tree] = {}
    for frames in zip(*map(_frames_of, map(Path, paths)), strict=False):
        for role in _WORDS:
            if role not in trees:
                trees |= _neighbours_in(frames, role, paths)
    return trees


def _frames_of(path: Path) -> Iterator[tuple[str, str]]:
    """Texts before and after the word in the names of files that belong to a training file."""
    if words := list(TRAIN.finditer(path.name)):
        yield path.name[: words[-1].start()], path.name[words[-1].end() :]
    elif not path.name.startswith(".") and ".po" not in path.suffixes:
        # A catalogue has the name of what it translates: `asyncio-dev.po` is a page of its own.
        stem, dot, suffixes = path.name.partition(".")
        yield from ((f"{stem}{mark}", dot + suffixes) for mark in ".-_")
        yield from (("", f"{mark}{stem}{dot}{suffixes}") for mark in "-_")


def _neighbours_in(frames: Sequence[tuple[str, str]], role: str, paths: Sequence[str]) -> dict[str, Tree]:
    """Sources for a role whose names have these frames; there may be several test sets."""
    (before, after), folder = frames[0], Path(paths[0]).parent
    word = rf"((?:{'|'.join(_WORDS[role])})(?![a-z])[\w.-]*)"
    matches = (re.fullmatch(re.escape(before) + word + re.escape(after), path.name) for path in folder.glob("*"))
    trees: dict[str, Tree] = {}
    for middle in sorted((match[1] for match in matches if match), key=lambda text: (len(text), text)):
        files = [str(Path(path).with_name(f"{b}{middle}{a}")) for path, (b, a) in zip(paths, frames, strict=True)]
        is_new = len({*files, *map(str, map(Path, paths))}) == 2 * len(paths)
        label = role if role not in trees else middle
        if is_new and all(Path(file).is_file() for file in files) and (label == role or role == "test"):
            trees[label] = {"files": files} if len(files) == 2 else {"file": files[0]}
    return trees
