"""The command `tokenize`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import RUNS, check_choice, check_no_files, load_config, run_path, utf8
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.machine.console import say

if TYPE_CHECKING:
    from mt_cli.config.sections import Config


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    examples = ('mt tokenize "The red house." --run runs/quickstart', "mt tokenize --config configs/quickstart.yaml")
    add_command(app, tokenize, "Look inside", *examples)


def tokenize(
    sentences: Annotated[
        list[str] | None, Argument(metavar="SENTENCE", help="Sentences to tokenize with a run.", callback=utf8)
    ] = None,
    run: options.RunOption = None,
    side: Annotated[
        str, Option(metavar="NAME", help="Tokenizer: source or target.", rich_help_panel=options.MODEL)
    ] = "source",
    ids: Annotated[bool, Option("--ids", help="Print ids instead of tokens.", rich_help_panel=options.OUTPUT)] = False,
    config: Annotated[
        Path | None,
        Option(metavar="FILE", help="Train its tokenizers and report on them.", rich_help_panel=options.CONFIG),
    ] = None,
    overrides: options.SetTokenizerOption = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Show tokens of sentences, or statistics of tokenizers."""
    check_choice("--side", side, "source", "target")
    if config is not None:
        if sentences or run:
            raise InputError("--config reports on a config's tokenizers; use it without sentences and without --run")
        return show(*_tokenizer_report(load_config(config, overrides)))
    if not sentences:
        raise InputError("give sentences to tokenize, or --config FILE to train tokenizers and report on them")
    check_no_files(sentences, "give the sentences themselves")
    from mt_cli.checkpoint.directory import RunDirectory

    directory = RunDirectory(run_path(run))
    tokenizer = directory.tokenizers(directory.config())[0 if side == "source" else 1]
    show(*(" ".join(map(str, tokenizer.encode([each])[0]) if ids else tokenizer.pieces(each)) for each in sentences))
    return None


def _tokenizer_report(config: Config) -> Iterator[str]:
    from mt_cli.corpus.cache import Cache
    from mt_cli.run.compose import prepare_new

    config, data, _ = prepare_new(config, Cache(RUNS / ".cache", say))
    shared = ", one for both languages" if config.tokenizer.shared else ""
    trained_on = f"{len(data.corpora['train']):,} pairs" if "train" in data.corpora else "the beginning of the stream"
    yield f"{config.name}: {config.tokenizer.algorithm}{shared}, trained on {trained_on}"
    yield f"{'side':<8}{'entries':>10}{'corpus':>20}{'unknown':>10}{'tokens a sentence':>20}"
    for side, tokenizer in zip(("source", "target"), data.tokenizers, strict=True):
        for name, statistics in data.statistics.items():
            counts = getattr(statistics, side)
            shares = f"{counts.unknown_share:>10.2%}{counts.tokens_per_sentence:>20.1f}"
            yield f"{side:<8}{tokenizer.vocab_size:>10,}{name:>20}{shares}"
