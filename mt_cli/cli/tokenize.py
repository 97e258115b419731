"""The command `tokenize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import RUNS, argument, check_choice, check_no_files, flag, load_config, option, run_path
from mt_cli.cli.streams import show
from mt_cli.errors import InputError


def tokenize(
    sentences: Annotated[list[str] | None, argument("SENTENCE", "Sentences to tokenize with a run.")] = None,
    run: options.RunOption = None,
    side: Annotated[str, option(options.MODEL, "NAME", "Tokenizer: source or target.")] = "source",
    ids: Annotated[bool, flag(options.OUTPUT, "--ids", "Print ids instead of tokens.")] = False,
    config: Annotated[
        Path | None, options.file_option(options.CONFIG, "Train its tokenizers and report on them.")
    ] = None,
    overrides: options.SetTokenizerOption = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Show tokens, or statistics of tokenizers.

    Examples:
        mt tokenize "The red house." --run runs/quickstart
        mt tokenize --config configs/quickstart.yaml

    More: docs/data.md
    """
    check_choice("--side", side, "source", "target")
    if config is not None:
        if sentences or run:
            raise InputError("--config reports on a config's tokenizers; use it without sentences and without --run")
        from mt_cli.advice.data_check import format_tokens, token_report
        from mt_cli.corpus.cache import Cache
        from mt_cli.run.config import prepare_new

        _, data, _ = prepare_new(load_config(config, overrides), Cache(RUNS / ".cache"))
        return show(*format_tokens(token_report(data)))
    if not sentences:
        raise InputError("give sentences to tokenize, or --config FILE to train tokenizers and report on them")
    check_no_files(sentences, "give the sentences themselves")
    from mt_cli.checkpoint.directory import RunDirectory

    directory = RunDirectory(run_path(run))
    tokenizer = directory.tokenizers(directory.config())[0 if side == "source" else 1]
    rows = tokenizer.encode(sentences) if ids else map(tokenizer.pieces, sentences)
    return show(*(" ".join(map(str, row)) for row in rows))
