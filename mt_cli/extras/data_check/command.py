"""The commands that examine corpora: `data check` and `data show`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from mt_cli import hooks
from mt_cli.cli import options
from mt_cli.cli.options import RUNS, load_config, utf8
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say

if TYPE_CHECKING:
    from mt_cli.config.sections import Config


FolderArgument = Annotated[
    str | None, Argument(metavar="[FOLDER]", callback=utf8, help="Folder of .po or .tmx files, instead of --config.")
]
ConfigOption = Annotated[
    Path | None, Option("--config", metavar="FILE", help="Config, such as configs/quickstart.yaml.")
]


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(help="Check and show the corpora of a config.", no_args_is_help=True)
    data.command("check")(data_check)
    data.command("show")(data_show)
    app.add_typer(data, name="data")


def data_check(
    folder: FolderArgument = None,
    config: ConfigOption = None,
    overrides: options.SetOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[Path | None, Option("--write-clean", help="New TSV file for the pairs that are kept.")] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, tokens and suspicious pairs."""
    loaded = _loaded(config, folder, overrides)
    if clean is not None and os.path.lexists(clean):
        raise InputError(f"{clean}: exists already; give the clean pairs a new name")
    check_output(clean)
    from mt_cli.corpus.cache import Cache
    from mt_cli.extras.data_check.report import examine, format_examination, write_clean
    from mt_cli.run.plan import prepare_new

    loaded, data, _ = prepare_new(loaded, Cache(RUNS / ".cache", say), stream_rows=loaded.corpus.shuffle_buffer)
    report = examine(data, loaded)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    if clean is not None:
        say(f"{write_clean(data, loaded, clean):,} pairs written to {clean}")
    if data.problems:
        raise InputError("the corpora have problems, see above; check these lines before training on them")


def data_show(
    folder: FolderArgument = None,
    config: ConfigOption = None,
    overrides: options.SetOption = None,
    number: Annotated[int, Option("-n", "--number", min=1, help="Number of pairs.")] = 5,
    dropped: Annotated[
        str | None, Option(metavar="FILTER", help="Show dropped pairs: a filter, such as duplicates, or any.")
    ] = None,
    split: Annotated[str, Option(help="Corpus: train, valid, test, or one of extra_tests.")] = "train",
) -> None:
    """Show pairs as the model reads them, or dropped pairs."""
    loaded = _loaded(config, folder, overrides)
    from mt_cli.corpus.cache import Cache
    from mt_cli.extras.data_check.report import shown_pairs
    from mt_cli.run.plan import prepare_new

    loaded, data, _ = prepare_new(loaded, Cache(RUNS / ".cache", say), stream_rows=loaded.corpus.shuffle_buffer)
    lines = shown_pairs(data, loaded, split, number, dropped)
    show(*lines) if lines else say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")


def _loaded(path: Path | None, folder: str | None, overrides: list[str] | None) -> Config:
    """The config in a file, or the one that `mt init` would write for a folder."""
    if (path is None) == (folder is None):
        raise InputError("give --config FILE, or a folder of .po or .tmx files")
    if path is not None:
        return load_config(path, overrides)
    if not os.path.isdir(str(folder)):
        raise InputError(f"{folder}: no such folder; give a config with --config {folder}")
    if overrides:
        raise InputError("--set: changes a config; write one with mt init, and give it with --config")
    from mt_cli.corpus.cache import Cache

    return hooks.config_of_folder(str(folder), Cache(RUNS / ".cache", say))
