"""The sources of text that the options of `mt init` name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt_cli.errors import InputError

if TYPE_CHECKING:
    from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, Source

_WAYS = "give a FOLDER, or one of --files SOURCE TARGET, --file FILE, --dataset ID and --example NAME"


def chosen(given: dict[str, Any], paths: list[str], given_once: Sequence[str] = ()) -> str:
    """The key of the only way that is given; `paths` without an option are added to `given`.

    `given_once` are the options, given once, that may be given twice; a second file after one of them is in `paths`.
    """
    first, second = given["files"] or ("", "")
    if second.startswith("-"):
        raise InputError(f"--files {first} {second}: give two files, the source and the target")
    if paths and any(value is not None for value in given.values()):
        twice = "".join(f"; for a second file, repeat the option: {name} {paths[0]}" for name in given_once[:1])
        raise InputError(f"{paths[0]}: {_WAYS}{twice}")
    given |= _source_of_paths(paths)
    chosen = [key for key, value in given.items() if value is not None]
    files = given["files"] or ()
    if len(chosen) != 1:
        raise InputError(_WAYS)
    if given[chosen[0]] == "" or "" in files:
        raise InputError(f"--{chosen[0]}: a name is empty")
    _check_sides(files)
    return chosen[0]


def _check_sides(files: Sequence[str]) -> None:
    """Raise InputError if one of two files is of a format that always holds both languages."""
    for name in files:
        suffix = Path(re.sub(r"\.(gz|zst)$", "", name)).suffix
        if suffix in (".tmx", ".po"):
            raise InputError(
                f"{name}: a {suffix} file holds both languages; type mt init --file {shlex.quote(name)} for this file, "
                "or mt init FOLDER for all files of a folder"
            )


def _source_of_paths(paths: list[str]) -> dict[str, Any]:
    """The source that paths without an option are: a folder, a file with both sides, or two files."""
    if not paths:
        return {}
    if len(paths) > 2:
        raise InputError(f"{paths[2]}: {_WAYS}")
    if len(paths) == 2:
        return {"files": (paths[0], paths[1])}
    if not os.path.exists(paths[0]):
        raise InputError(f"{paths[0]}: no such file or folder")
    return {"folder" if os.path.isdir(paths[0]) else "file": paths[0]}


def source_of(kind: str, tree: dict[str, Any]) -> Source:
    """The source that options describe; `kind` is its key in a config."""
    from mt_cli.config.sources import DatasetSource, FileSource, FilesSource  # pydantic takes a while.
    from mt_cli.features.recipes.naming import source_of_folder

    if kind == "folder":
        return source_of_folder(**tree)
    kinds: dict[str, type[DatasetSource | FileSource | FilesSource]]
    kinds = {"files": FilesSource, "file": FileSource, "dataset": DatasetSource}
    return kinds[kind].model_validate(tree)


def is_memory(name: object) -> bool:
    """Whether an option names a `.tmx` file, perhaps compressed."""
    return isinstance(name, str) and re.search(r"\.tmx(\.gz|\.zst)?$", name) is not None


def evaluation_sources(
    given: Mapping[str, list[str] | None], train: Source, skip_damaged: bool = False
) -> dict[str, Source]:
    """The sources that `--valid` and `--test` name, by role; raises InputError for one that is not clear.

    With `skip_damaged`, folders and translation memories are read without what is damaged.
    """
    options = {"skip_damaged": True} if skip_damaged else {}
    return {role: _evaluation_source(f"--{role}", names, train, options) for role, names in given.items() if names}


def _evaluation_source(option: str, names: list[str], train: Source, options: dict[str, bool]) -> Source:
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
    file_format = train.format if isinstance(train, FileSource) else None
    if not is_file and file_format is None and os.path.exists(names[0]):
        raise InputError(
            f"{option} {names[0]}: is one side, or of an unknown format; of two files with a sentence per line, give "
            f"{option} SOURCE {option} TARGET"
        )
    options = options if is_memory(names[0]) else {}
    of_format = {"format": file_format} if file_format and not is_file else {}
    return source_of("file", {"file": names[0], **of_format, **options})
