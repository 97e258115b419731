"""The command `tune-decoding`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from mt_cli.cli import options
from mt_cli.cli.evaluate import _pairs_of
from mt_cli.cli.options import (
    load_translator,
    run_path,
)
from mt_cli.cli.streams import Output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.storage import real_path

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation

    Writers = Mapping[Output, Callable[[Translation], str]]


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(tune_decoding)


def tune_decoding(
    run: options.RunOption = None,
    split: Annotated[str, Option(help="valid; test sets are refused.")] = "valid",
    beam_sizes: Annotated[str, Option(help="Beam sizes to try.")] = "1,2,4,5,8",
    length_penalties: Annotated[str, Option(help="Length penalties to try.")] = "0,0.5,1,1.5,2",
    margin: Annotated[float, Option(help="Loss of score that a smaller beam is worth.")] = 0.1,
    max_sentences: Annotated[int, Option(min=1, help="Translate a random sample of a larger validation set.")] = 2000,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the choice only.")] = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Choose beam size and length penalty on the validation set.

    Writes them into config.yaml of the run, from which mt translate takes its defaults.
    """
    if split != "valid":
        raise InputError(f"--split {split}: use valid; options chosen on a test set would make its scores too good")
    if not 0 <= margin <= 100:
        raise InputError(f"--margin {margin:g}: use 0 to 100")
    grid = _numbers("--beam-sizes", beam_sizes, int), _numbers("--length-penalties", length_penalties, float)
    path = run_path(run)
    translator = load_translator(path, device, precision, num_threads=threads)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.evaluation.texts import scorer_of
    from mt_cli.extras.tuning import tuning

    directory = RunDirectory(path)
    with nullcontext() if dry_run else directory.locked():
        config = directory.config()
        settings = tuning.search_grid(config.decoding, *grid)
        pairs = tuning.sampled_pairs(_pairs_of(config, split, None, None)[1], max_sentences, config.training.seed)
        scorer = scorer_of(config, split)
        metric = tuning.metric_of(config, scorer)
        result = tuning.tune(translator, pairs, scorer, metric, settings, margin)
        result = {"run": real_path(path).name, "split": split, **result, "is_written": not dry_run}
        changes = tuning.write_choice(directory, config, result["chosen"]) if not dry_run else []
    show(json.dumps(result) if as_json else f"{result['run']}: {tuning.format_tuning(result)}")
    advice = "To keep them when `mt train` goes on with this run, put them into its config too."
    for line in [*changes, advice] if not dry_run else ["Nothing was written (--dry-run)."]:
        say(line)


def _numbers(option: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    """The numbers in a text such as `1,2,4`; raises InputError for any other text."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "1,2,4" if kind is int else "0,0.5,1"
        raise InputError(f"{option} {text!r}: write numbers with commas between them, such as {example}") from None
