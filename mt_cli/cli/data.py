"""The commands `data check` and `data show`."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mt_cli.cli import options
from mt_cli.cli.options import OUTPUT, RUNS, file_option, load_config, option
from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError
from mt_cli.runtime.console import say

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.prepare import Data

_pairs = partial(option, "Pairs")


def _prepared(loaded: Config) -> tuple[Config, Data, Cache]:
    """Complete config, its data and the cache; of a stream, as many rows as its buffer has."""
    from mt_cli.corpus.cache import Cache
    from mt_cli.run.config import prepare_new

    cache = Cache(RUNS / ".cache", say)
    return *prepare_new(loaded, cache, stream_rows=loaded.corpus.shuffle_buffer)[:2], cache


def data_check(
    config: options.ConfigOption,
    overrides: options.SetCorpusOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[
        Path | None,
        file_option(OUTPUT, "New TSV file for the kept pairs of train, without held-out ones.", names="--write-clean"),
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, and problems of their text.

    The exit status is 2 if lines have slipped, sides are swapped, a language is wrong or text is processed already.

    Examples:
        mt data check --config my.yaml
        mt data check --config my.yaml --write-clean clean.tsv

    More: docs/data.md
    """
    loaded = load_config(config, overrides)
    if clean is not None and os.path.lexists(clean):
        raise InputError(f"{clean}: exists already; give the clean pairs a new name")
    check_output(clean)
    from mt_cli.advice.data_check import examine, format_examination, write_clean
    from mt_cli.advice.problems import find_problems, refuse_problems

    loaded, data, cache = _prepared(loaded)
    problems = find_problems(data.corpora, loaded, cache)
    report = examine(data, loaded, problems)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    if clean is not None:
        say(f"{write_clean(data, loaded, clean):,} pairs written to {clean}")
    refuse_problems(problems)


def data_show(
    config: options.ConfigOption,
    overrides: options.SetCorpusOption = None,
    number: Annotated[int, _pairs("N", "Number of pairs.", names="-n --number", min=1)] = 5,
    dropped: Annotated[
        str | None, _pairs("FILTER", "Dropped pairs: a filter, such as duplicates, or any.", callback=None)
    ] = None,
    split: Annotated[str, _pairs("NAME", "train, valid, test, or one of extra_tests.", callback=None)] = "train",
) -> None:
    """Show pairs as the model reads them.

    With --dropped, shows pairs that are dropped, and why.

    Examples:
        mt data show --config my.yaml -n 20
        mt data show --config my.yaml --dropped duplicates

    More: docs/data.md
    """
    loaded = load_config(config, overrides)
    from mt_cli.advice.data_check import shown_pairs

    loaded, data, _ = _prepared(loaded)
    lines = shown_pairs(data, loaded, split, number, dropped)
    if lines:
        return show(*lines)
    return say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")
