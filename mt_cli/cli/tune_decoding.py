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
from mt_cli.cli.help import add_command
from mt_cli.cli.options import SEARCH, load_translator, run_path
from mt_cli.cli.streams import Output, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.storage import real_path

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation

    Writers = Mapping[Output, Callable[[Translation], str]]

_SPLIT = "valid"
"""Tuning on a test set would inflate its scores."""


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        tune_decoding,
        "Train",
        "mt tune-decoding --run runs/my_run",
        "mt tune-decoding --beam-sizes 1,4,8 --length-penalties 0.6,1,1.4 --dry-run",
        page="docs/translating.md",
    )


def _refuse(given: str | None) -> str | None:
    """Raise InputError for `--split`, whose only value was `valid`."""
    if given is not None:
        raise InputError(
            "--split: leave it out; the choice is made on valid, because it would inflate scores of a test set"
        )
    return given


def tune_decoding(
    run: options.RunOption = None,
    beam_sizes: Annotated[
        str, Option(metavar="N,N,...", help="Beam sizes to try.", rich_help_panel=SEARCH)
    ] = "1,2,4,5,8",
    length_penalties: Annotated[
        str, Option(metavar="X,X,...", help="Length penalties to try.", rich_help_panel=SEARCH)
    ] = "0,0.5,1,1.5,2",
    no_repeat_ngrams: Annotated[
        str | None,
        Option(
            metavar="N,N,...",
            help="Values of no_repeat_ngram to try; off is one.",
            show_default="that of the run",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    margin: Annotated[
        float, Option(metavar="X", help="Loss of score that a smaller beam is worth.", rich_help_panel=SEARCH)
    ] = 0.1,
    max_sentences: Annotated[
        int,
        Option(min=1, metavar="N", help="Use a random sample of a larger set.", rich_help_panel=SEARCH),
    ] = 2000,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Write nothing, only print the choice.", rich_help_panel=options.OUTPUT)
    ] = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
    split: Annotated[str | None, Option(hidden=True, callback=_refuse, help="Had one value; is refused.")] = None,
) -> None:
    """Choose beam size and length penalty on the validation set.

    Writes them into config.yaml of the run, from which mt translate takes its defaults.
    """
    if not 0 <= margin <= 100:
        raise InputError(f"--margin {margin:g}: use 0 to 100")
    grid = _numbers("--beam-sizes", beam_sizes, int), _numbers("--length-penalties", length_penalties, float)
    ngrams = None if no_repeat_ngrams is None else _numbers("--no-repeat-ngrams", no_repeat_ngrams, _ngram)
    path = run_path(run)
    translator = load_translator(path, device, precision, num_threads=threads)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.evaluation.texts import scorer_of
    from mt_cli.features.tuning import tuning

    directory = RunDirectory(path)
    with nullcontext() if dry_run else directory.locked():
        config = directory.config()
        settings = tuning.search_grid(config.decoding, *grid, ngrams or [config.decoding.no_repeat_ngram])
        _, pairs, languages, _ = _pairs_of(config, _SPLIT, None, None)
        scorer = scorer_of(config, _SPLIT)
        compared = tuning.TuningSet(pairs, languages, scorer, tuning.metric_of(config, scorer))
        compared = compared.sampled(max_sentences, config.training.seed)
        result = tuning.tune(translator, compared, settings, margin)
        result = {"run": real_path(path).name, "split": _SPLIT, **result, "is_written": not dry_run}
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
        example = "1,2,4" if kind is int else "0,0.5,1" if kind is float else "off,3,4"
        raise InputError(f"{option} {text!r}: write numbers with commas between them, such as {example}") from None


def _ngram(text: str) -> int | None:
    return None if text.strip() == "off" else int(text)
