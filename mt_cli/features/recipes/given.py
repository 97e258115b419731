"""Sources of text that the options of `mt init` name. Imports pydantic only when a source is built."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt_cli.errors import InputError

if TYPE_CHECKING:
    from mt_cli.config.sources import FolderSource, Source

_WAYS = "give a FOLDER, or one of --files SOURCE TARGET, --file FILE, --dataset ID and --example NAME"
_FORMATS_OF_FOLDERS = (".po", ".tmx")
_SETTINGS = ".json"
"""Suffix of files that rather hold settings of a project than parallel text."""
TRAIN = re.compile(r"(?<![^\W\d_])train(?:ing)?(?![^\W\d_])")


def chosen(given: dict[str, Any], paths: list[str], given_once: Sequence[str] = ()) -> str:
    """Key of the only way that is given; `paths` without an option are added to `given`.

    `given_once` names the options, given once, that may be given twice; their second file may be among `paths`.
    """
    if paths and (len(paths) > 2 or any(value is not None for value in given.values())):
        twice = "".join(f"; for a second file, repeat the option: {name} {paths[0]}" for name in given_once[:1])
        raise InputError(f"{paths[-1] if len(paths) > 2 else paths[0]}: {_WAYS}{twice}")
    if len(paths) == 2:
        given["files"] = (paths[0], paths[1])
    elif paths:
        if not os.path.exists(paths[0]):
            raise InputError(f"{paths[0]}: no such file or folder")
        given["folder" if os.path.isdir(paths[0]) else "file"] = paths[0]
    kinds = [kind for kind, value in given.items() if value is not None]
    files = given["files"] or ()
    if len(kinds) != 1:
        raise InputError(_WAYS)
    if given[kinds[0]] == "" or "" in files:
        raise InputError(f"--{kinds[0]}: a name is empty")
    for name in files:
        if match := re.search(r"(\.tmx|\.po)(\.gz|\.zst)?$", name):
            raise InputError(
                f"{name}: a {match[1]} file holds both languages; type mt init --file {shlex.quote(name)} for this "
                "file, or mt init FOLDER for all files of a folder"
            )
    return kinds[0]


def source_of(kind: str, options: dict[str, Any]) -> Source:
    """Source that options describe; `kind` is its key in a config."""
    from mt_cli.config.sources import DatasetSource, FileSource, FilesSource

    if kind == "folder":
        return source_of_folder(**options)
    kinds: dict[str, type[DatasetSource | FileSource | FilesSource]]
    kinds = {"files": FilesSource, "file": FileSource, "dataset": DatasetSource}
    return kinds[kind].model_validate(options)


def source_of_folder(folder: str, **options: Any) -> FolderSource:
    """Files of a folder that are of a known format; raises InputError unless there is one such format."""
    from mt_cli.config.sources import FolderSource
    from mt_cli.corpus.formats import suffix_of

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
        listed = ", ".join(f"{count:,} {suffix}" for suffix, count in suffixes.most_common())
        raise InputError(
            f"{folder}: has files of several formats ({listed}); put those to train on into a folder of their own, or "
            "give one file with --file"
        )
    (suffix,) = suffixes
    if suffix not in _FORMATS_OF_FOLDERS and any(TRAIN.search(path.name) for path in Path(folder).rglob("*" + suffix)):
        raise InputError(f"{folder}: has files named after splits, as a dataset of the hub; give it with --dataset")
    return FolderSource(folder=folder, pattern=f"**/*{suffix}", **options)


def is_memory(name: object) -> bool:
    """Whether an option names a `.tmx` file, perhaps compressed."""
    return isinstance(name, str) and re.search(r"\.tmx(\.gz|\.zst)?$", name) is not None


def evaluation_sources(
    given: Mapping[str, list[str] | None], train: Source, skip_damaged: bool = False
) -> dict[str, Source]:
    """Sources that `--valid` and `--test` name, by role; raises InputError for one that is not clear.

    With `skip_damaged`, folders and translation memories are read without their damaged parts.
    """
    options = {"skip_damaged": True} if skip_damaged else {}
    return {role: _evaluation_source(f"--{role}", names, train, options) for role, names in given.items() if names}


def _evaluation_source(option: str, names: list[str], train: Source, options: dict[str, Any]) -> Source:
    """One file with both sides, a folder, a split of the dataset that is trained on, or two files."""
    from mt_cli.config.sources import DatasetSource, FileSource
    from mt_cli.corpus.formats import suffix_of

    if "" in names:
        raise InputError(f"{option}: a name is empty")
    if len(names) > 2:
        raise InputError(f"{option} {names[2]}: give one file with both sides, or two files, the source and the target")
    is_file = suffix_of(Path(names[0])) is not None
    if len(names) == 2:
        if is_file:
            raise InputError(f"{option} {names[0]}: has both sides; give it alone")
        return source_of("files", {"files": tuple(names)})
    if os.path.isdir(names[0]):
        return source_of("folder", {"folder": names[0], **options})
    if isinstance(train, DatasetSource) and not is_file:
        return train.model_copy(update={"split": names[0]})
    file_format = train.format if isinstance(train, FileSource) and not is_file else None
    if not is_file and file_format is None and os.path.exists(names[0]):
        raise InputError(
            f"{option} {names[0]}: is one side, or of an unknown format; of two files with a sentence per line, give "
            f"{option} SOURCE {option} TARGET"
        )
    options = options if is_memory(names[0]) else {}
    return source_of("file", {"file": names[0], **({"format": file_format} if file_format else {}), **options})
