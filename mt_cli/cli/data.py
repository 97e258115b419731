"""The commands that examine corpora: `data check` and `data show`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import Group, add_command
from mt_cli.cli.options import RUNS, load_config
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say

if TYPE_CHECKING:
    from mt_cli.config.sections import Config

_PAIRS = "Pairs"


def _expect_folder(context: typer.Context, given: str | None) -> str | None:
    """Raise InputError, with the right command line, for a config without `--config`, and for a folder that is none."""
    if given and not os.path.isdir(given):
        if os.path.exists(given) or given.endswith((".yaml", ".yml")):
            options.expect_option(context, [given])
        raise InputError(f"{given}: no such folder")
    return given


FolderArgument = Annotated[
    str | None,
    Argument(
        metavar="[FOLDER]",
        is_eager=True,
        callback=_expect_folder,
        help="Folder of .po or .tmx files, instead of --config.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    Option(
        "--config",
        metavar="FILE",
        help="Config, such as configs/quickstart.yaml.",
        rich_help_panel=options.CONFIG,
    ),
]


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(cls=Group, no_args_is_help=True, callback=_data)
    check = ("mt data check --config my.yaml", "mt data check --config my.yaml --write-clean clean.tsv")
    show = tuple(f"mt data show --config my.yaml {each}" for each in ("-n 20", "--dropped duplicates", "--epoch 1"))
    add_command(data, data_check, "", *check, name="check", page="docs/data.md")
    add_command(data, data_show, "", *show, name="show", page="docs/data.md")
    app.add_typer(data, name="data", rich_help_panel="Start", epilog="\n".join((check[0], show[0])))


def _data() -> None:
    """Check and show the corpora of a config."""


def data_check(
    folder: FolderArgument = None,
    config: ConfigOption = None,
    overrides: options.SetCorpusOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[
        Path | None,
        Option(
            "--write-clean",
            metavar="FILE",
            help="New TSV file for the pairs that are kept.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, tokens and suspicious pairs.

    The exit status is 2 if lines have slipped, sides are swapped, a language is wrong or text is processed already.
    """
    loaded = _loaded(config, folder, overrides)
    if clean is not None and os.path.lexists(clean):
        raise InputError(f"{clean}: exists already; give the clean pairs a new name")
    check_output(clean)
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.problems import ACCEPT, RAW_TEXT, find_problems
    from mt_cli.features.data_check.report import examine, format_examination
    from mt_cli.features.data_check.show import write_clean
    from mt_cli.run.compose import prepare_new

    cache = Cache(RUNS / ".cache", say)
    loaded, data, _ = prepare_new(loaded, cache, stream_rows=loaded.corpus.shuffle_buffer)
    problems = find_problems(data.corpora, loaded, cache)
    report = examine(data, loaded, problems)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    if clean is not None:
        say(f"{write_clean(data, loaded, clean):,} pairs written to {clean}")
    reasons = []
    if any(problem.kind == "stretch" for problem in problems):
        reasons.append("the corpora have problems, see above; check these lines before training on them")
    if any(problem.is_refused for problem in problems):
        reasons.append(f"corpus.train: the text is processed already, see above; {RAW_TEXT}, or {ACCEPT}")
    if reasons:
        raise InputError("\n".join(reasons))


def data_show(
    folder: FolderArgument = None,
    config: ConfigOption = None,
    overrides: options.SetCorpusOption = None,
    number: Annotated[
        int, Option("-n", "--number", min=1, metavar="N", help="Number of pairs.", rich_help_panel=_PAIRS)
    ] = 5,
    dropped: Annotated[
        str | None,
        Option(metavar="FILTER", help="Dropped pairs: a filter, such as duplicates, or any.", rich_help_panel=_PAIRS),
    ] = None,
    split: Annotated[
        str, Option(metavar="NAME", help="train, valid, test, or one of extra_tests.", rich_help_panel=_PAIRS)
    ] = "train",
    epoch: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Pairs of this epoch of training, with what changes in each: sampled tokens, made-up words.",
            rich_help_panel=_PAIRS,
        ),
    ] = None,
) -> None:
    """Show pairs as the model reads them, or dropped pairs."""
    if epoch is not None and (dropped is not None or split != "train"):
        raise InputError("--epoch: shows pairs of training; leave out --dropped and --split")
    loaded = _loaded(config, folder, overrides)
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.data_check.show import pairs_of_epoch, shown_pairs
    from mt_cli.run.compose import prepare_new

    stream_rows = loaded.corpus.shuffle_buffer if epoch is None else None
    loaded, data, _ = prepare_new(loaded, Cache(RUNS / ".cache", say), stream_rows=stream_rows, is_quiet=True)
    if epoch is not None:
        return show(*pairs_of_epoch(data, loaded, epoch, number))
    lines = shown_pairs(data, loaded, split, number, dropped)
    show(*lines) if lines else say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")


def _loaded(path: Path | None, folder: str | None, overrides: list[str] | None) -> Config:
    """The config in a file, or the one that `mt init` would write for a folder."""
    if (path is None) == (folder is None):
        raise InputError("give --config FILE, or a folder of .po or .tmx files")
    if path is not None:
        return load_config(path, overrides)
    if overrides:
        raise InputError("--set: changes a config; write one with mt init, and give it with --config")
    from mt_cli.corpus.cache import Cache
    from mt_cli.features.recipes.new_config import config_of_folder

    return config_of_folder(str(folder), Cache(RUNS / ".cache", say))
