"""What names say about parallel text: languages, columns, and files for validation and test beside training files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.corpus.folder import varieties_in_folder
from mt_cli.corpus.formats import format_of, names_in, suffix_of
from mt_cli.corpus.hub import names_in_dataset, splits_of
from mt_cli.corpus.rows import Names
from mt_cli.corpus.sources import files_of
from mt_cli.corpus.varieties import Varieties
from mt_cli.errors import CorpusError, InputError
from mt_cli.features.recipes.codes import codes_in_names
from mt_cli.features.recipes.varieties import languages_of_headers, languages_of_memory

Tree = dict[str, Any]
VALID, TEST = ("valid", "validation", "val", "dev"), ("test",)
"""What splits and files for validation and test are called."""
_TRAIN = re.compile(r"(?<![^\W\d_])train(?:ing)?(?![^\W\d_])")
_FORMATS_OF_FOLDERS = (".po", ".tmx")
_SETTINGS = (".json.", ".json")
"""Suffixes of files that rather hold settings of a project than parallel text; they are read if they are given."""
_FILES_EXAMINED = 20


@dataclass(frozen=True)
class Found:
    """What the names of files, columns and splits say."""

    names: Sequence[str]
    """Languages or columns; of two files, the language of each, or an empty string."""
    are_languages: bool
    """Whether the names can be nothing but languages, as in a translation memory."""
    evaluation: Mapping[str, Tree]
    """Sources of `valid`, `test` and further test sets by name."""
    varieties: Varieties | None = None
    """Varieties of languages in a translation memory, which has a code for each text."""
    notes: Sequence[str] = ()
    """Headers that contradict the others, for people."""


def look(source: Source) -> Found:
    """What can be seen without reading the whole text; raises CorpusError if the source cannot be read."""
    if isinstance(source, DatasetSource):
        splits = splits_of(source)
        if source.split not in splits and not re.search(r"[\[+]", source.split):
            raise CorpusError(
                f"{title_of(source)}: no split {source.split!r} among {', '.join(splits)}; choose one of them "
                "(--split, --valid, --test)"
            )
        tree = source.model_dump(mode="json", exclude_unset=True)
        others = [each for each in splits if each not in source.split]
        roles = {"valid": next((each for each in VALID if each in others), None)}
        roles["test"] = next((each for each in ("test", "devtest") if each in others), None)
        evaluation = {role: {**tree, "split": each} for role, each in roles.items() if each}
        return Found(*names_in_dataset(source), evaluation)
    if isinstance(source, FilesSource):
        return Found([each.language for each in codes_in_names(source.files)], True, neighbours(source.files))
    if isinstance(source, FolderSource):
        if (varieties := varieties_in_folder(source)) is not None:
            return Found(languages_of_memory(varieties), True, {}, varieties)
        paths = files_of(source)
        named = list(_names_in(source, paths if is_gettext(source) else paths[:_FILES_EXAMINED]))
        counts = Counter(name for each in named for name in each.names)
        are_languages = any(each.are_languages for each in named)
        if is_gettext(source):
            names, notes = languages_of_headers(counts)
            return Found(names, are_languages, {}, notes=[f"{title_of(source)}: {note}" for note in notes])
        return Found(list(counts), are_languages, {})
    assert isinstance(source, FileSource)
    path, beside = Path(source.file), neighbours([source.file])
    count = format_of(path, source.format).varieties
    if count is not None:
        varieties = count(path, source.skip_damaged)
        return Found(languages_of_memory(varieties), True, beside, varieties)
    return Found(*names_in(path, source.format), beside)


def _names_in(source: FolderSource, paths: Sequence[Path]) -> Iterator[Names]:
    for path in paths:
        with suppress(CorpusError) if source.skip_damaged else nullcontext():
            yield names_in(path, source.format)


def has_format(source: Source, suffix: str) -> bool:
    """Whether a source is a file, or a folder of files, with this suffix, perhaps compressed."""
    found = suffix_of(Path(str(getattr(source, "file", getattr(source, "pattern", "")))))
    return found is not None and found.startswith(suffix)


def is_gettext(source: Source) -> bool:
    """Whether a source is of catalogues, which name their target language at most."""
    return has_format(source, ".po")


def title_of(source: Source) -> str:
    """The name of a source for people."""
    if isinstance(source, DatasetSource):
        return f"dataset {source.dataset}"
    if isinstance(source, FolderSource):
        return f"{source.folder} ({source.pattern})"
    return " and ".join(source.files) if isinstance(source, FilesSource) else str(getattr(source, "file", ""))


def source_of_folder(folder: str, **options: Any) -> FolderSource:
    """The files of a folder that are of a known format; raises InputError unless there is one such format."""
    suffixes = Counter(
        suffix
        for path in Path(folder).rglob("*")
        if path.is_file() and (suffix := suffix_of(path)) is not None and not suffix.startswith(_SETTINGS)
    )
    if not suffixes:
        raise InputError(
            f"{folder}: has no files with both sides, such as .po, .tmx or .tsv; give two files with a sentence per "
            "line with --files, or a folder with the layout of the Hugging Face hub with --dataset"
        )
    if len(suffixes) > 1:
        found = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes.most_common())
        raise InputError(
            f"{folder}: has files of several formats ({found}); put those to train on into a folder of their own, or "
            "give one file with --file"
        )
    (suffix,) = suffixes
    if suffix not in _FORMATS_OF_FOLDERS and any(_TRAIN.search(path.name) for path in Path(folder).rglob("*" + suffix)):
        raise InputError(f"{folder}: has files named after splits, as a dataset of the hub; give it with --dataset")
    return FolderSource(folder=folder, pattern=f"**/*{suffix}", **options)


def neighbours(paths: Sequence[str]) -> dict[str, Tree]:
    """Sources of validation and test files beside training files, one for each of them, with names like theirs.

    A name is like theirs if it has a word such as `test` in place of `train`, or beside their stem: `test.en` beside
    `train.en`, `news.test.en` or `test-news.en` beside `news.en`. A file called `test` alone may have any content.
    """
    found: dict[str, Tree] = {}
    for frames in zip(*map(_frames_of, map(Path, paths)), strict=False):
        for role, words in (("valid", VALID), ("test", TEST)):
            if role not in found:
                found |= _neighbours_in(frames, role, words, paths)
    return found


def _frames_of(path: Path) -> Iterator[tuple[str, str]]:
    """What may stand before and after a word such as `test` in the names of files that belong to a training file."""
    if words := list(_TRAIN.finditer(path.name)):
        yield path.name[: words[-1].start()], path.name[words[-1].end() :]
    elif not path.name.startswith(".") and ".po" not in path.suffixes:
        # A catalogue has the name of what it translates: `asyncio-dev.po` is a page of its own.
        stem, dot, suffixes = path.name.partition(".")
        yield from ((f"{stem}{mark}", dot + suffixes) for mark in ".-_")
        yield from (("", f"{mark}{stem}{dot}{suffixes}") for mark in "-_")


def _neighbours_in(
    frames: Sequence[tuple[str, str]], role: str, words: Sequence[str], paths: Sequence[str]
) -> dict[str, Tree]:
    """The sources for a role whose names have these frames; there may be several test sets."""
    (before, after), folder = frames[0], Path(paths[0]).parent
    found: dict[str, Tree] = {}
    pattern = re.compile(rf"{re.escape(before)}((?:{'|'.join(words)})(?![a-z])[\w.-]*){re.escape(after)}")
    matches = (pattern.fullmatch(path.name) for path in folder.glob("*") if path.is_file())
    for middle in sorted((match[1] for match in matches if match), key=lambda text: (len(text), text)):
        own = [Path(path).with_name(f"{b}{middle}{a}") for path, (b, a) in zip(paths, frames, strict=True)]
        is_new = len({*own, *map(Path, paths)}) == 2 * len(paths)
        label = role if role not in found else middle
        if is_new and all(path.is_file() for path in own) and (label == role or role == "test"):
            files = [str(path) for path in own]
            found[label] = {"files": files} if len(files) == 2 else {"file": files[0]}
    return found
