"""The command `init`: a config from parallel text, or from an example."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, get_args

from mt_cli.advice.init import Request, write_config
from mt_cli.cli.options import RUNS, argument, check_choice, check_languages, flag, option
from mt_cli.cli.streams import show

_FOUND, _WRITTEN = "Found by itself", "What it writes"
_text, _found, _written = (partial(option, panel) for panel in ("Your text (give one)", _FOUND, _WRITTEN))

_SOURCE = (
    *("paths", "files", "file", "dataset", "example", "columns", "format", "skip_damaged", "subset", "split"),
    *("revision", "data_files"),
)
"""Parameters of the command that describe the text to train on."""


def init(
    paths: Annotated[
        list[str] | None, argument("FOLDER", "A folder of .po, .tmx or .xlf files, or files as for --file, --files.")
    ] = None,
    files: Annotated[tuple[str, str] | None, _text("SOURCE TARGET", "Two files with a sentence per line.")] = None,
    file: Annotated[str | None, _text("FILE", "A file of pairs, such as pairs.tsv, .tmx or .xlf.")] = None,
    dataset: Annotated[str | None, _text("ID", "Hugging Face hub id, or such a folder.")] = None,
    example: Annotated[str | None, _text("NAME", "A config of mt itself, such as quickstart.")] = None,
    source_language: Annotated[str | None, _found("CODE", "Source language.", "by names")] = None,
    target_language: Annotated[str | None, _found("CODE", "Target language.", "by names")] = None,
    valid: Annotated[
        list[str] | None,
        _found("FILE", "Pairs for validation: a file, folder or split; twice for two files.", "by its name"),
    ] = None,
    test: Annotated[
        list[str] | None, _found("FILE", "Pairs for the scores at the end, given in the same way.", "by its name")
    ] = None,
    mono: Annotated[
        list[str] | None, _found("FILE", "Text in one language, which ends its name; once for each file.", "none")
    ] = None,
    columns: Annotated[
        tuple[str, str] | None,
        _found("SOURCE TARGET", "Columns of a table, by name or, from 1, by number.", "by their names"),
    ] = None,
    format: Annotated[
        str | None, _found("NAME", "Format of the file: tsv, plain_tsv, csv or json.", "by its suffix")
    ] = None,
    skip_damaged: Annotated[bool, flag(_FOUND, "--skip-damaged", "Skip and count damaged files of a folder.")] = False,
    subset: Annotated[str | None, _found("NAME", "Configuration of the dataset.", "its only one")] = None,
    split: Annotated[str | None, _found("NAME", "Split of the dataset to train on.", "train")] = None,
    revision: Annotated[str | None, _found("NAME", "Branch, tag or commit of the dataset.", "main")] = None,
    data_files: Annotated[
        str | None, _found("PATTERN", "Files of the dataset: en-it/*.parquet.", "named by the dataset")
    ] = None,
    begin_with: Annotated[
        Path | None, _written("DIR", "Run whose weights training begins with.", "random weights")
    ] = None,
    destination: Annotated[
        str | None,
        _written("NAME", "Fit the model to argos, huggingface or ctranslate2.", "no program", names="--for"),
    ] = None,
    accept_processed: Annotated[
        bool, flag(_WRITTEN, "--accept-processed", "Accept text that is tokenised or has subword marks or tags.")
    ] = False,
    name: Annotated[str | None, _written("NAME", "Name of the run and of its config.", "by the data")] = None,
    output: Annotated[
        Path | None, _written("FILE", "File of the config, whose stem is the default of --name.", "NAME.yaml")
    ] = None,
) -> None:
    """Write a config for your data.

    Each value has a comment with its reason. An existing file is never overwritten.

    Examples:
        mt init --files train.en train.it
        mt init po
        mt init --dataset opus_books --subset en-it --for huggingface

    More: docs/recipes.md
    """
    given = locals()
    check_languages(source_language, target_language)
    if format is not None:
        from mt_cli.config.sources import FormatName

        check_choice("--format", format, *get_args(FormatName))
    if destination is not None:
        from mt_cli.exchange.destinations import DESTINATIONS

        check_choice("--for", destination, *DESTINATIONS)
    path = write_config(
        {key: given[key] for key in _SOURCE if given[key] not in (None, False)},
        (source_language, target_language),
        {role: names for role, names in {"valid": valid, "test": test}.items() if names},
        RUNS,
        Request(
            name=name,
            parent=begin_with,
            accept_processed=accept_processed,
            mono=tuple(mono or ()),
            destination=destination,
        ),
        output,
    )
    show(str(path))
