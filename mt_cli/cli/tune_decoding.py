"""The command `tune-decoding`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any

from mt_cli.cli import options
from mt_cli.cli.options import OF_RUN, OUTPUT, RUNS, SEARCH, flag, load_translator, option, run_path
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.runtime.console import say
from mt_cli.runtime.files import real_path

_search = partial(option, SEARCH)
_SPLIT = "valid"
"""Tuning on a test set would inflate its scores."""


def tune_decoding(
    run: options.RunOption = None,
    beam_sizes: Annotated[str, _search("N,N,...", "Beam sizes to try.")] = "1,2,4,5,8",
    length_penalties: Annotated[str, _search("X,X,...", "Length penalties to try.")] = "0,0.5,1,1.5,2",
    no_repeat_ngrams: Annotated[
        str | None, _search("N,N,...", "Values of no_repeat_ngram to try; off is one.", OF_RUN)
    ] = None,
    margin: Annotated[float, _search("X", "Loss of score that a smaller beam is worth.", min=0.0, max=100.0)] = 0.1,
    max_sentences: Annotated[int, _search("N", "Use a random sample of a larger set.", min=1)] = 2000,
    dry_run: Annotated[bool, flag(OUTPUT, "--dry-run", "Write nothing, only print the choice.")] = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Choose beam size and length penalty.

    Compares them on the validation set, and writes the best ones into the run, as defaults of mt translate.

    Examples:
        mt tune-decoding --run runs/my_run
        mt tune-decoding --beam-sizes 1,4,8 --length-penalties 0.6,1,1.4 --dry-run

    More: docs/translating.md
    """
    grid = _numbers("--beam-sizes", beam_sizes, int), _numbers("--length-penalties", length_penalties, float)
    ngrams = None if no_repeat_ngrams is None else _numbers("--no-repeat-ngrams", no_repeat_ngrams, int, off=None)
    path = run_path(run)
    translator = load_translator(path, device, precision, num_threads=threads)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.cache import Cache
    from mt_cli.evaluation import tuning
    from mt_cli.evaluation.compare import read_split

    directory = RunDirectory(path)
    with nullcontext() if dry_run else directory.locked():
        config = directory.config()
        settings = tuning.search_grid(config.decoding, *grid, ngrams or [config.decoding.no_repeat_ngram])
        valid = read_split(directory, config, _SPLIT, Cache(RUNS / ".cache"))
        compared = tuning.TuningSet.of(config, valid.pairs, valid.languages)
        compared = compared.sampled(max_sentences, config.training.seed)
        result = tuning.tune(translator, compared, settings, margin)
        result = {"run": real_path(path).name, "split": _SPLIT, **result, "is_written": not dry_run}
        changes = tuning.write_choice(directory, config, result["chosen"]) if not dry_run else []
    show(json.dumps(result) if as_json else f"{result['run']}: {tuning.format_tuning(result)}")
    advice = "To keep them when `mt train` goes on with this run, put them into its config too."
    for line in [*changes, advice] if not dry_run else ["Nothing was written (--dry-run)."]:
        say(line)


def _numbers(option: str, text: str, kind: Callable[[str], Any], **words: None) -> list[Any]:
    """Numbers of a text such as `1,2,4`, or values of `words`; raises InputError for any other text."""
    try:
        return [None if part.strip() in words else kind(part) for part in text.split(",")]
    except ValueError:
        example = "0,0.5,1" if kind is float else ",".join([*words, "1,2,4"])
        raise InputError(f"{option} {text!r}: write numbers with commas between them, such as {example}") from None
