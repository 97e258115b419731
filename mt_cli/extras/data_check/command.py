"""The commands that examine corpora: `data check` and `data show`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.options import (
    RUNS,
    load_config,
)
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    data = typer.Typer(help="Check and show the corpora of a config.", no_args_is_help=True)
    data.command("check")(data_check)
    data.command("show")(data_show)
    app.add_typer(data, name="data")


def data_check(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[Path | None, Option("--write-clean", help="New TSV file for the pairs that are kept.")] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, tokens and suspicious pairs."""
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
    overrides: options.SetOption = None,
    number: Annotated[int, Option("-n", "--number", min=1, help="Number of pairs.")] = 5,
    dropped: Annotated[
        str | None, Option(metavar="FILTER", help="Show dropped pairs: a filter, such as duplicates, or any.")
    ] = None,
    split: Annotated[str, Option(help="Corpus: train, valid, test, or one of extra_tests.")] = "train",
) -> None:
    """Show pairs as the model reads them, or dropped pairs."""
    loaded = load_config(config, overrides)
    from mt_cli.corpus.cache import Cache
    from mt_cli.extras.data_check.report import shown_pairs
    from mt_cli.run.plan import prepare_new

    loaded, data, _ = prepare_new(loaded, Cache(RUNS / ".cache", say), stream_rows=loaded.corpus.shuffle_buffer)
    lines = shown_pairs(data, split, number, dropped)
    show(*lines) if lines else say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")
