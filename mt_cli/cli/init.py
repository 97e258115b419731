"""The command `init`: a config from parallel text, or from an example."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import mt_cli
from mt_cli.cli.options import RUNS, argument, check_choice, check_languages, flag, option
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.features.recipes.given import chosen, evaluation_sources, is_memory, source_of
from mt_cli.machine.console import say
from mt_cli.machine.storage import refusal

_FOUND, _WRITTEN = "Found by itself", "What it writes"
_text, _found, _written = (partial(option, panel) for panel in ("Your text (give one)", _FOUND, _WRITTEN))


def init(
    paths: Annotated[
        list[str] | None, argument("FOLDER", "A folder of .po or .tmx files, or files as for --file, --files.")
    ] = None,
    files: Annotated[tuple[str, str] | None, _text("SOURCE TARGET", "Two files with a sentence per line.")] = None,
    file: Annotated[str | None, _text("FILE", "A file of pairs, such as pairs.tsv or .tmx.")] = None,
    dataset: Annotated[str | None, _text("ID", "Hugging Face hub id, or such a folder.")] = None,
    example: Annotated[str | None, _text("NAME", "A config of mt itself, such as quickstart.")] = None,
    source_language: Annotated[str | None, _found("CODE", "Source language.", "by names and texts")] = None,
    target_language: Annotated[str | None, _found("CODE", "Target language.", "by names and texts")] = None,
    valid: Annotated[
        list[str] | None,
        _found("FILE", "Pairs for validation: a file, folder or split; twice for two files.", "by its name"),
    ] = None,
    test: Annotated[
        list[str] | None, _found("FILE", "Pairs for the scores at the end, given in the same way.", "by its name")
    ] = None,
    columns: Annotated[
        tuple[str, str] | None,
        _found("SOURCE TARGET", "Columns of a table, by name or, from 1, by number.", "by their names"),
    ] = None,
    file_format: Annotated[
        str | None,
        _found("NAME", "Format of the file: tsv, plain_tsv, quoted_tsv, csv or json.", "by its suffix", "--format"),
    ] = None,
    skip_damaged: Annotated[
        bool, flag(_FOUND, "--skip-damaged", "Skip and count damaged files of a folder and units of a .tmx file.")
    ] = False,
    subset: Annotated[str | None, _found("NAME", "Configuration of the dataset.", "its only one")] = None,
    split: Annotated[str | None, _found("NAME", "Split of the dataset to train on.", "train")] = None,
    revision: Annotated[str | None, _found("NAME", "Branch, tag or commit of the dataset.", "main")] = None,
    data_files: Annotated[
        str | None, _found("PATTERN", "Files of the dataset: en-it/*.parquet.", "named by the dataset")
    ] = None,
    begin_with: Annotated[
        Path | None, _written("DIR", "Run whose weights training begins with.", "random weights")
    ] = None,
    accept_processed: Annotated[
        bool, flag(_WRITTEN, "--accept-processed", "Accept text that is tokenised or has subword marks or tags.")
    ] = False,
    name: Annotated[str | None, _written("NAME", "Name of the run.", "by the data")] = None,
    output: Annotated[Path | None, _written("FILE", "New file.", "NAME.yaml")] = None,
) -> None:
    """Write a config for your data.

    Each value has a comment with its reason. An existing file is never overwritten.

    Examples:
        mt init --files train.en train.it
        mt init po
        mt init --dataset opus_books --subset en-it

    More: docs/recipes.md
    """
    given: dict[str, Any] = {"files": files, "file": file, "dataset": dataset, "example": example}
    evaluation = {"valid": valid, "test": test}
    kind = chosen(given, paths or [], [f"--{role}" for role, names in evaluation.items() if len(names or ()) == 1])
    _check_name(name)
    _check_languages(source_language, target_language)
    of_dataset = {"subset": subset, "split": split, "revision": revision, "data_files": data_files}
    details = {key: value for key, value in of_dataset.items() if value is not None}
    if details and dataset is None:
        raise InputError(f"--{next(iter(details)).replace('_', '-')}: only a --dataset has it")
    details |= _table_options(kind, given[kind], columns, file_format, skip_damaged)
    if example is not None:
        if any((name, source_language, target_language, valid, test, begin_with, accept_processed)):
            raise InputError("--example: an example has a name, languages and text; give --output alone beside it")
        return _write(output or Path(f"{example}.yaml"), _example(example))
    if output == Path():
        raise InputError("--output: give the name of a new file")
    if output is not None or name is not None:
        _check_new(output or Path(f"{name}.yaml"))
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.problems import refuse_processed
    from mt_cli.features.recipes.new_config import new_config

    source = source_of(kind, {kind: given[kind], **details})
    sources = evaluation_sources(evaluation, source, skip_damaged)
    languages, cache = (source_language, target_language), Cache(RUNS / ".cache", say)
    config = new_config(source, languages, name, cache, sources, RUNS, begin_with, accept_processed)
    refuse_processed(config.problems, "add --accept-processed")
    path = output or Path(f"{config.config.name}.yaml")
    _check_new(path)
    for line in config.lines:
        say(_fitted_to_terminal(line))
    return _write(path, config.text)


def _table_options(
    kind: str, value: object, columns: tuple[str, str] | None, file_format: str | None, skip_damaged: bool
) -> dict[str, Any]:
    """Options of a source of this kind; raises InputError for one that it does not have."""
    if columns is not None and kind not in ("file", "dataset"):
        raise InputError("--columns: only a --file or a --dataset has columns")
    if columns is not None and columns[0] == columns[1]:
        raise InputError(f"--columns {columns[0]} {columns[1]}: give two columns, the source and the target")
    if file_format is not None:
        from mt_cli.corpus.formats import NAMED_FORMATS

        check_choice("--format", file_format, *NAMED_FORMATS)
        if kind != "file":
            raise InputError(
                "--format: only a --file has it; for a folder, write a config with `format` (docs/data.md)"
            )
    if skip_damaged and (file_format is not None or not (kind == "folder" or is_memory(value))):
        raise InputError("--skip-damaged: only a folder or a .tmx file has parts that can be skipped")
    options = {"columns": columns, "format": file_format, "skip_damaged": skip_damaged}
    return {key: value for key, value in options.items() if value}


def _check_languages(source: str | None, target: str | None) -> None:
    """Raise InputError unless the codes that are given are codes of two languages."""
    check_languages(source, target)
    from mt_cli.corpus.varieties import is_same_variety

    if source and target and is_same_variety(source, target):
        raise InputError(f"--source-language {source} --target-language {target}: are one language; give two")


def _check_name(name: str | None) -> None:
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE

    if name is not None and not RUN_NAME.fullmatch(name):
        raise InputError(f"--name {name!r:.120}: use {RUN_NAME_RULE}")


def _fitted_to_terminal(line: str) -> str:
    """The line, broken between words if standard error is a terminal that is narrower."""
    if not sys.stderr.isatty():
        return line
    return fill(line, shutil.get_terminal_size().columns, subsequent_indent=" " * 13, break_on_hyphens=False)


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


def _write(path: Path, text: str) -> None:
    """Write a new file and name it on standard output."""
    _check_new(path)
    try:
        with ExitStack() as removal, path.open("x", encoding="utf-8") as file:
            removal.callback(path.unlink)
            file.write(text)
            file.flush()
            removal.pop_all()
    except OSError as error:
        raise refusal(path, error, "; give another file with --output") from None
    say(f"Next:  mt train --config {path}")
    show(str(path))
