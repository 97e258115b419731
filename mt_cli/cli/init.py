"""The command `init`: a config from parallel text, or from an example."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, get_args

import typer
from typer import Argument, Option

import mt_cli
from mt_cli.cli.help import add_command
from mt_cli.cli.options import RUNS, check_choice, check_languages, utf8
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.features.recipes.given import chosen, evaluation_sources, is_memory, source_of
from mt_cli.machine.console import say
from mt_cli.machine.storage import refusal

_TEXT, _FOUND, _WRITTEN = "Your text (give one)", "Found by itself", "What it writes"


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    examples = (
        "mt init --files train.en train.it",
        "mt init po",
        "mt init --dataset opus_books --subset en-it",
    )
    add_command(app, init, "Start", *examples, page="docs/recipes.md")


def init(
    paths: Annotated[
        list[str] | None,
        Argument(
            metavar="[FOLDER]", callback=utf8, help="A folder of .po or .tmx files, or files as for --file, --files."
        ),
    ] = None,
    files: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="SOURCE TARGET", callback=utf8, help="Two files with a sentence per line.", rich_help_panel=_TEXT
        ),
    ] = None,
    file: Annotated[
        str | None,
        Option(
            metavar="FILE", callback=utf8, help="A file of pairs, such as pairs.tsv or .tmx.", rich_help_panel=_TEXT
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        Option(metavar="ID", callback=utf8, help="Hugging Face hub id, or such a folder.", rich_help_panel=_TEXT),
    ] = None,
    example: Annotated[
        str | None,
        Option(metavar="NAME", callback=utf8, help="A config of mt itself, such as quickstart.", rich_help_panel=_TEXT),
    ] = None,
    source_language: Annotated[
        str | None,
        Option(
            metavar="CODE",
            callback=utf8,
            help="Source language.",
            show_default="by names and texts",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        Option(
            metavar="CODE",
            callback=utf8,
            help="Target language.",
            show_default="by names and texts",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    valid: Annotated[
        list[str] | None,
        Option(
            metavar="FILE",
            callback=utf8,
            help="Pairs for validation: a file, folder or split; twice for two files.",
            show_default="by its name",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    test: Annotated[
        list[str] | None,
        Option(
            metavar="FILE",
            callback=utf8,
            help="Pairs for the scores at the end, given in the same way.",
            show_default="by its name",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    columns: Annotated[
        tuple[str, str] | None,
        Option(
            metavar="SOURCE TARGET",
            callback=utf8,
            help="Columns of a table, by name or, from 1, by number.",
            show_default="by their names",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        Option(
            "--format",
            metavar="NAME",
            callback=utf8,
            help="Format of the file: tsv, plain_tsv, quoted_tsv, csv or json.",
            show_default="by its suffix",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    skip_damaged: Annotated[
        bool,
        Option(
            "--skip-damaged",
            help="Skip and count damaged files of a folder and units of a .tmx file.",
            rich_help_panel=_FOUND,
        ),
    ] = False,
    subset: Annotated[
        str | None,
        Option(
            metavar="NAME",
            callback=utf8,
            help="Configuration of the dataset.",
            show_default="its only one",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    split: Annotated[
        str | None,
        Option(
            metavar="NAME",
            callback=utf8,
            help="Split of the dataset to train on.",
            show_default="train",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        Option(
            metavar="NAME",
            callback=utf8,
            help="Branch, tag or commit of the dataset.",
            show_default="main",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    data_files: Annotated[
        str | None,
        Option(
            metavar="PATTERN",
            callback=utf8,
            help="Files of the dataset: en-it/*.parquet.",
            show_default="those it names",
            rich_help_panel=_FOUND,
        ),
    ] = None,
    begin_with: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            callback=utf8,
            help="Run whose weights training begins with.",
            show_default="random weights",
            rich_help_panel=_WRITTEN,
        ),
    ] = None,
    accept_processed: Annotated[
        bool,
        Option(
            "--accept-processed",
            help="Accept text that is tokenised or has subword marks or tags.",
            rich_help_panel=_WRITTEN,
        ),
    ] = False,
    name: Annotated[
        str | None,
        Option(
            metavar="NAME",
            callback=utf8,
            help="Name of the run.",
            show_default="by the data",
            rich_help_panel=_WRITTEN,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option(metavar="FILE", callback=utf8, help="New file.", show_default="NAME.yaml", rich_help_panel=_WRITTEN),
    ] = None,
) -> None:
    """Write a config for your data, with a reason for each value.

    An existing file is never overwritten.
    """
    given: dict[str, Any] = {"files": files, "file": file, "dataset": dataset, "example": example}
    evaluation = {"valid": valid, "test": test}
    kind = chosen(given, paths or [], [f"--{role}" for role, names in evaluation.items() if len(names or ()) == 1])
    of_dataset = {"subset": subset, "split": split, "revision": revision, "data_files": data_files}
    options: dict[str, Any] = {key: value for key, value in of_dataset.items() if value is not None}
    if options and dataset is None:
        raise InputError(f"--{next(iter(options)).replace('_', '-')}: only a --dataset has it")
    _check_table_options(kind, columns, file_format)
    if skip_damaged and (file_format is not None or not (kind == "folder" or is_memory(given[kind]))):
        raise InputError("--skip-damaged: only a folder or a .tmx file has parts that can be skipped")
    _check_languages(source_language, target_language)
    _check_name(name)
    if example is not None:
        if name or source_language or target_language or valid or test or begin_with or accept_processed:
            raise InputError("--example: an example has a name, languages and text; give --output alone beside it")
        return _write(output or Path(f"{example}.yaml"), _example(example))
    if output == Path():
        raise InputError("--output: give the name of a new file")
    if output is not None or name is not None:
        _check_new(output or Path(f"{name}.yaml"))
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.known import refuse_processed
    from mt_cli.features.recipes.new_config import new_config

    options |= {"columns": columns} if columns else {}
    options |= {"format": file_format} if file_format else {}
    options |= {"skip_damaged": True} if skip_damaged else {}
    source = source_of(kind, {kind: given[kind], **options})
    sources = evaluation_sources(evaluation, source, skip_damaged)
    languages, cache = (source_language, target_language), Cache(RUNS / ".cache", say)
    found = new_config(source, languages, name, cache, sources, RUNS, begin_with, accept_processed)
    refuse_processed(found.problems, "add --accept-processed")
    path = output or Path(f"{found.config.name}.yaml")
    _check_new(path)
    for line in found.lines:
        say(_fitted_to_terminal(line))
    return _write(path, found.text)


def _check_table_options(kind: str, columns: tuple[str, str] | None, file_format: str | None) -> None:
    """Raise InputError for columns or a format that this kind of source does not have."""
    if columns is not None and kind not in ("file", "dataset"):
        raise InputError("--columns: only a --file or a --dataset has columns")
    if columns is not None and columns[0] == columns[1]:
        raise InputError(f"--columns {columns[0]} {columns[1]}: give two columns, the source and the target")
    if file_format is not None:
        from mt_cli.config.sources import FormatName

        check_choice("--format", file_format, *get_args(FormatName))
        if kind != "file":
            raise InputError(
                "--format: only a --file has it; for a folder, write a config with `format` (docs/data.md)"
            )


def _check_languages(source: str | None, target: str | None) -> None:
    """Raise InputError unless the codes that are given are codes of two languages."""
    check_languages(source, target)
    from mt_cli.corpus.varieties import is_same_variety

    if source and target and is_same_variety(source, target):
        raise InputError(f"--source-language {source} --target-language {target}: are one language; give two")


def _fitted_to_terminal(line: str) -> str:
    """The line, broken between words if it is printed on a terminal that is narrower."""
    if not sys.stderr.isatty():
        return line
    return fill(line, shutil.get_terminal_size().columns, subsequent_indent=" " * 13, break_on_hyphens=False)


def _check_name(name: str | None) -> None:
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE

    if name is not None and not RUN_NAME.fullmatch(name):
        raise InputError(f"--name {name!r:.120}: use {RUN_NAME_RULE}")


def _example(name: str) -> str:
    """The text of a config that is part of the package, without the line for editors that names a schema beside it."""
    package = Path(mt_cli.__file__).parent
    folder = package / "configs"
    if not folder.is_dir():
        folder = package.parent / "configs"  # Of a checkout.
    names = sorted(path.name.removesuffix(".yaml") for path in folder.iterdir() if path.name.endswith(".yaml"))
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
