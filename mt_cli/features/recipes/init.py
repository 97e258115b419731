"""`mt init`: options of the command, checked, to a file with a config. Imports pydantic only when they are used."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import mt_cli
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.storage import refusal

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.config.sources import FolderSource, Source
    from mt_cli.corpus.cache import Cache

_WAYS = "give a FOLDER, or one of --files SOURCE TARGET, --file FILE, --dataset ID and --example NAME"
_FORMATS_OF_FOLDERS = (".po", ".tmx")
_SETTINGS = ".json"
"""Suffix of files that rather hold settings of a project than parallel text."""
_KINDS_OF_OPTIONS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("subset", "split", "revision", "data_files"), ("dataset",)),
    "columns": ("file", "dataset"),
    "format": ("file",),
}
"""Kinds of sources that have an option."""
_NOT_FOR_EXAMPLES = ("name", "source_language", "target_language", "valid", "test", "begin_with", "accept_processed")


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """Options of `mt init` by the names of the parameters of the command; None where they are not given."""

    paths: Sequence[str] | None = None
    """Arguments without an option: a folder, a file with both sides, or two files."""
    files: tuple[str, str] | None = None
    file: str | None = None
    dataset: str | None = None
    example: str | None = None
    source_language: str | None = None
    target_language: str | None = None
    valid: list[str] | None = None
    test: list[str] | None = None
    columns: tuple[str, str] | None = None
    format: str | None = None
    skip_damaged: bool = False
    subset: str | None = None
    split: str | None = None
    revision: str | None = None
    data_files: str | None = None
    begin_with: Path | None = None
    accept_processed: bool = False
    name: str | None = None
    output: Path | None = None


def write_config(options: InitOptions, runs: Path, show_line: Callable[[str], None] = say) -> Path:
    """Write the config for some text, or an example, into a new file, and return the file.

    `runs` is the folder of the runs and of the cache; `show_line` is called with each line about the choices. Raises
    InputError for options that do not fit together or files that exist already, and the errors of `new_config`.
    """
    given: dict[str, Any] = {key: getattr(options, key) for key in ("files", "file", "dataset", "example")}
    evaluation = {"valid": options.valid, "test": options.test}
    single = [f"--{role}" for role, names in evaluation.items() if len(names or ()) == 1]
    kind = _chosen(given, list(options.paths or ()), single)
    _check_options(options, kind, given[kind])
    if options.example is not None:
        return _write(options.output or Path(f"{options.example}.yaml"), _example(options.example))
    if options.output is not None or options.name is not None:
        _check_new(options.output or Path(f"{options.name}.yaml"))
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.problems import refuse_processed
    from mt_cli.features.recipes.new_config import new_config

    keys = ("columns", "format", "skip_damaged", "subset", "split", "revision", "data_files")
    source = _source_of(
        kind,
        {kind: given[kind], **{key: value for key in keys if (value := getattr(options, key)) not in (None, False)}},
    )
    new = new_config(
        source,
        (options.source_language, options.target_language),
        options.name,
        Cache(runs / ".cache", say),
        evaluation={
            role: _evaluation_source(f"--{role}", names, source, options.skip_damaged)
            for role, names in evaluation.items()
            if names
        },
        runs=runs,
        parent=options.begin_with,
        accept_processed=options.accept_processed,
    )
    refuse_processed(new.problems, "add --accept-processed")
    path = options.output or Path(f"{new.config.name}.yaml")
    _check_new(path)
    for line in new.lines:
        show_line(line)
    return _write(path, new.text)


def config_of_folder(folder: str, cache: Cache) -> Config:
    """Config that `mt init FOLDER` writes; raises the errors of `new_config`."""
    from mt_cli.features.recipes.new_config import new_config

    return new_config(_source_of_folder(folder), (None, None), None, cache).config


def _chosen(given: dict[str, Any], paths: list[str], given_once: Sequence[str] = ()) -> str:
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


def _source_of(kind: str, options: dict[str, Any]) -> Source:
    """Source that options describe; `kind` is its key in a config."""
    from mt_cli.config.sources import DatasetSource, FileSource, FilesSource

    if kind == "folder":
        return _source_of_folder(**options)
    kinds: dict[str, type[DatasetSource | FileSource | FilesSource]]
    kinds = {"files": FilesSource, "file": FileSource, "dataset": DatasetSource}
    return kinds[kind].model_validate(options)


def _source_of_folder(folder: str, **options: Any) -> FolderSource:
    """Files of a folder that are of a known format; raises InputError unless there is one such format."""
    from mt_cli.config.sources import FolderSource
    from mt_cli.corpus.formats import suffix_of
    from mt_cli.features.recipes.names import TRAIN

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


def _is_memory(name: object) -> bool:
    """Whether an option names a `.tmx` file, perhaps compressed."""
    return isinstance(name, str) and re.search(r"\.tmx(\.gz|\.zst)?$", name) is not None


def _evaluation_source(option: str, names: list[str], train: Source, skip_damaged: bool) -> Source:
    """One file with both sides, a folder, a split of the dataset that is trained on, or two files.

    With `skip_damaged`, folders and translation memories are read without their damaged parts. Raises InputError for a
    source that is not clear.
    """
    from mt_cli.config.sources import DatasetSource, FileSource
    from mt_cli.corpus.formats import suffix_of

    options = {"skip_damaged": True} if skip_damaged else {}
    if "" in names:
        raise InputError(f"{option}: a name is empty")
    if len(names) > 2:
        raise InputError(f"{option} {names[2]}: give one file with both sides, or two files, the source and the target")
    is_file = suffix_of(Path(names[0])) is not None
    if len(names) == 2:
        if is_file:
            raise InputError(f"{option} {names[0]}: has both sides; give it alone")
        return _source_of("files", {"files": tuple(names)})
    if os.path.isdir(names[0]):
        return _source_of("folder", {"folder": names[0], **options})
    if isinstance(train, DatasetSource) and not is_file:
        return train.model_copy(update={"split": names[0]})
    file_format = train.format if isinstance(train, FileSource) and not is_file else None
    if not is_file and file_format is None and os.path.exists(names[0]):
        raise InputError(
            f"{option} {names[0]}: is one side, or of an unknown format; of two files with a sentence per line, give "
            f"{option} SOURCE {option} TARGET"
        )
    options = options if _is_memory(names[0]) else {}
    return _source_of("file", {"file": names[0], **({"format": file_format} if file_format else {}), **options})


def _check_options(options: InitOptions, kind: str, value: Any) -> None:
    """Raise InputError for options that this kind of source does not have, and for values that nothing can have."""
    for key, kinds in _KINDS_OF_OPTIONS.items():
        if getattr(options, key) is not None and kind not in kinds:
            names = " or a ".join(f"--{name}" for name in kinds)
            raise InputError(f"--{key.replace('_', '-')}: only a {names} has it; see docs/data.md")
    if options.skip_damaged and (options.format is not None or not (kind == "folder" or _is_memory(value))):
        raise InputError("--skip-damaged: only a folder or a .tmx file has parts that can be skipped")
    if kind == "example" and any(getattr(options, key) for key in _NOT_FOR_EXAMPLES):
        raise InputError("--example: an example has a name, languages and text; give --output alone beside it")
    if options.output == Path():
        raise InputError("--output: give the name of a new file")
    if options.columns is not None and options.columns[0] == options.columns[1]:
        raise InputError(f"--columns {' '.join(options.columns)}: give two columns, the source and the target")
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE
    from mt_cli.config.sources import FormatName
    from mt_cli.corpus.varieties import is_same_variety

    if options.format is not None and options.format not in get_args(FormatName):
        *formats, last = get_args(FormatName)
        raise InputError(f"--format {options.format}: use {', '.join(formats)} or {last}")
    if options.name is not None and not RUN_NAME.fullmatch(options.name):
        raise InputError(f"--name {options.name!r:.120}: use {RUN_NAME_RULE}")
    source, target = options.source_language, options.target_language
    if source and target and is_same_variety(source, target):
        raise InputError(f"--source-language {source} --target-language {target}: are one language; give two")


def _example(name: str) -> str:
    """Text of a config that is part of the package, without the line for editors that names a schema beside it."""
    package = Path(mt_cli.__file__).parent
    folder = package / "configs"
    if not folder.is_dir():
        folder = package.parent / "configs"  # In a checkout.
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise InputError(f"--example {name}: unknown; there are {', '.join(names)}")
    lines = (folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# yaml-language-server"))


def _check_new(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path}: exists already and is not overwritten; give a new name with --output")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")


def _write(path: Path, text: str) -> Path:
    """Write a new file, or none if an error occurs."""
    _check_new(path)
    try:
        with ExitStack() as removal, path.open("x", encoding="utf-8") as file:
            removal.callback(path.unlink)
            file.write(text)
            file.flush()
            removal.pop_all()
    except OSError as error:
        raise refusal(path, error, "; give another file with --output") from None
    return path
