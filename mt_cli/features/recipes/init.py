"""`mt init`: options of the command, checked, to a file with a config."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mt_cli
from mt_cli.errors import InputError
from mt_cli.features.recipes.given import chosen, evaluation_sources, is_memory, source_of
from mt_cli.machine.console import say
from mt_cli.machine.storage import refusal

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
    kind = chosen(given, list(options.paths or ()), single)
    _check_options(options, kind, given[kind])
    if options.example is not None:
        return _write(options.output or Path(f"{options.example}.yaml"), _example(options.example))
    if options.output is not None or options.name is not None:
        _check_new(options.output or Path(f"{options.name}.yaml"))
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.problems import refuse_processed
    from mt_cli.features.recipes.new_config import new_config

    keys = ("columns", "format", "skip_damaged", "subset", "split", "revision", "data_files")
    source = source_of(
        kind,
        {kind: given[kind], **{key: value for key in keys if (value := getattr(options, key)) not in (None, False)}},
    )
    new = new_config(
        source,
        (options.source_language, options.target_language),
        options.name,
        Cache(runs / ".cache", say),
        evaluation=evaluation_sources(evaluation, source, options.skip_damaged),
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


def _check_options(options: InitOptions, kind: str, value: Any) -> None:
    """Raise InputError for options that this kind of source does not have, and for values that nothing can have."""
    for key, kinds in _KINDS_OF_OPTIONS.items():
        if getattr(options, key) is not None and kind not in kinds:
            names = " or a ".join(f"--{name}" for name in kinds)
            raise InputError(f"--{key.replace('_', '-')}: only a {names} has it; see docs/data.md")
    if options.skip_damaged and (options.format is not None or not (kind == "folder" or is_memory(value))):
        raise InputError("--skip-damaged: only a folder or a .tmx file has parts that can be skipped")
    if kind == "example" and any(getattr(options, key) for key in _NOT_FOR_EXAMPLES):
        raise InputError("--example: an example has a name, languages and text; give --output alone beside it")
    if options.output == Path():
        raise InputError("--output: give the name of a new file")
    if options.columns is not None and options.columns[0] == options.columns[1]:
        raise InputError(f"--columns {' '.join(options.columns)}: give two columns, the source and the target")
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE
    from mt_cli.corpus.formats import NAMED_FORMATS
    from mt_cli.corpus.varieties import is_same_variety

    if options.format is not None and options.format not in NAMED_FORMATS:
        *formats, last = NAMED_FORMATS
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
