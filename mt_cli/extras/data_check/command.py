"""The commands that examine corpora: `data check` and `data show`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.help import Group, add_command
from mt_cli.cli.options import RUNS, load_config
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say

_PAIRS = "Pairs"


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(cls=Group, no_args_is_help=True, callback=_data)
    check = ("mt data check --config my.yaml", "mt data check --config my.yaml --write-clean clean.tsv")
    show = ("mt data show --config my.yaml -n 20", "mt data show --config my.yaml --dropped duplicates")
    add_command(data, data_check, "", *check, name="check", page="docs/data.md")
    add_command(data, data_show, "", *show, name="show", page="docs/data.md")
    app.add_typer(data, name="data", rich_help_panel="Start", epilog="\n".join((check[0], show[0])))


def _data() -> None:
    """Check and show the corpora of a config."""


def data_check(
    config: options.ConfigOption,
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

    The exit status is 2 if lines have slipped, sides are swapped or a language is wrong.
    """
    loaded = load_config(config, overrides)
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
    config: options.ConfigOption,
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
    others: options.NoArguments = None,
) -> None:
    """Show pairs as the model reads them, or dropped pairs."""
    loaded = load_config(config, overrides)
    from mt_cli.corpus.cache import Cache
    from mt_cli.extras.data_check.report import shown_pairs
    from mt_cli.run.plan import prepare_new

    loaded, data, _ = prepare_new(loaded, Cache(RUNS / ".cache", say), stream_rows=loaded.corpus.shuffle_buffer)
    lines = shown_pairs(data, split, number, dropped)
    show(*lines) if lines else say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")
