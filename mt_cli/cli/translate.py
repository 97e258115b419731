"""The command `translate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.notices import LineNotices
from mt_cli.cli.options import (
    File,
    check_model,
    check_no_files,
    load_translator,
    run_paths,
    search_options,
    together,
    utf8,
)
from mt_cli.cli.streams import Output, check_lines, check_outputs, check_shared, input_lines, prompted_lines
from mt_cli.errors import InputError
from mt_cli.machine.console import Progress, say
from mt_cli.translation.stream import blocks, format_json, translated

if TYPE_CHECKING:
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.translator import Translator

    Writers = Mapping[Output, Callable[[Translation], str]]

_TEXT, _EXTRA = "Input and output", "Extra results"


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(
        app,
        translate,
        "Use",
        'mt translate "The old doctor does not see the red house."',
        "mt translate --run runs/my_run --input in.txt --output out.txt",
        'mt translate "The red house." --n-best 5 --attention attention.png',
        page="docs/translating.md",
    )


def translate(
    sentences: Annotated[
        list[str] | None, Argument(metavar="SENTENCE", help="Sentences, each in quotation marks.", callback=utf8)
    ] = None,
    run: options.RunsOption = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    input_file: Annotated[
        File,
        Option(
            "--input",
            metavar="FILE",
            help="File with one sentence per line.",
            show_default="standard input",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    output_file: Annotated[
        File,
        Option(
            "--output",
            metavar="FILE",
            help="File for translations.",
            show_default="standard output",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    split_sentences: Annotated[
        bool, Option("--split-sentences", help="Split lines into sentences first.", rich_help_panel=_TEXT)
    ] = False,
    as_lines: options.AsLinesOption = False,
    to: options.ToOption = None,
    tag: options.TagOption = None,
    interactive: Annotated[
        bool, Option("--interactive", help="Prompt for sentences, one at a time.", rich_help_panel=_TEXT)
    ] = False,
    beam_size: options.BeamSizeOption = None,
    length_penalty: options.LengthPenaltyOption = None,
    prefix: Annotated[
        str,
        Option(
            metavar="TEXT",
            help="Beginning of every translation.",
            show_default=False,
            callback=utf8,
            rich_help_panel=options.SEARCH,
        ),
    ] = "",
    unk: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Unknown words: copy the source word, keep [UNK], or avoid.",
            show_default="that of the run",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    sample: Annotated[
        bool,
        Option("--sample", help="Choose tokens at random; see decoding.top_k, top_p.", rich_help_panel=options.SEARCH),
    ] = False,
    seed: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Seed for --sample.",
            show_default="that of the run",
            rich_help_panel=options.SEARCH,
        ),
    ] = None,
    overrides: options.SetDecodingOption = None,
    n_best: Annotated[
        int,
        Option(min=1, max=1000, metavar="N", help="Lines per sentence: its best translations.", rich_help_panel=_EXTRA),
    ] = 1,
    as_json: Annotated[
        bool, Option("--json", help="Print JSON: tokens, scores and alignments, too.", rich_help_panel=_EXTRA)
    ] = False,
    alignment: Annotated[
        File,
        Option(metavar="FILE", help="File for word alignments: a line such as 0-0 1-2.", rich_help_panel=_EXTRA),
    ] = None,
    attention: Annotated[
        File,
        Option(metavar="FILE", help="Picture (PNG, SVG) of one sentence's attention.", rich_help_panel=_EXTRA),
    ] = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
    devices: options.DevicesOption = 1,
    progress: options.ProgressOption = "auto",
) -> None:
    """Translate sentences: one line in, one line out.

    Reads standard input if no sentence and no file is given. The output has the order of the input.
    """
    given = {"beam_size": beam_size, "length_penalty": length_penalty, "unk": unk, "seed": seed}
    given |= {"sample": sample or None}

    def check_before_launch() -> None:
        check_shared(sentences, input_file)
        _check_sources(sentences, input_file, interactive, as_lines)
        check_outputs(None if sentences else input_file or 0, output_file, alignment, attention)
        check_model(run, engine, checkpoint, device, precision, search_options(overrides, **given))

    with together(devices, if_lost="the output is not complete, start again", check=check_before_launch) as group:
        if group.size > 1:
            check_shared(sentences, input_file)
        _check_sources(sentences, input_file, interactive, as_lines)
        check_outputs(None if sentences else input_file or 0, output_file, alignment, attention)
        if attention and len(sentences or ()) != 1:
            raise InputError("--attention draws one sentence; give exactly one as an argument")
        if alignment and engine != "mt":
            raise InputError(f"--alignment: --engine {engine} does not report attention; use --engine mt")
        search = search_options(overrides, **given)
        search |= {
            "prefix": prefix,
            "split_sentences": split_sentences,
            "num_best": n_best,
        }
        search["with_details"] = as_json or alignment is not None
        writers: dict[Output, Callable[[Translation], str]] = {
            Output(output_file): format_json if as_json else partial(_format_texts, n_best)
        }
        if alignment:
            writers[Output(alignment)] = _format_alignment
        translator = load_translator(run_paths(run), device, precision, engine, checkpoint, threads, group)
        search["tag"] = options.target_tag(translator, to, tag)
        is_piped = bool(output_file) or not sys.stdout.isatty()
        lines = _blocks(sentences, input_file, interactive, as_lines, progress=is_piped)
        items = (item for block in lines for item in translated(translator, block, search, group))
        _write_translations(translator, items, group.on_main(lambda: writers) or {}, attention, search["tag"])


def _check_sources(sentences: list[str] | None, path: Path | None, interactive: bool, as_lines: bool) -> None:
    """Raise InputError unless there is one source of lines at most, and it is not a document."""
    if sum(map(bool, (sentences, path, interactive))) > 1:
        raise InputError("give only one of sentences, --input and --interactive")
    if sentences:
        check_no_files(sentences, f"translate its lines with --input {sentences[0]}")
    check_lines(path, as_lines=as_lines)


def _blocks(
    sentences: list[str] | None, path: Path | None, interactive: bool, as_lines: bool, progress: bool
) -> Iterator[list[str]]:
    """The lines to translate, in blocks; single lines where a user waits for each."""
    if sentences or interactive:
        yield from ([line] for line in sentences or prompted_lines(as_lines))
    elif path is None and sys.stdin.isatty():
        say("One sentence per line; Ctrl-D ends.")
        yield from ([line] for line in input_lines(None, as_lines))
    elif not progress:
        yield from blocks(input_lines(path, as_lines))
    else:
        with Progress("translate", None, "line", is_quiet=True) as bar:
            for block in blocks(input_lines(path, as_lines)):
                yield block
                bar.advance(len(block))


def _write_translations(
    translator: Translator,
    items: Iterable[Translation],
    writers: Writers,
    attention: Path | None,
    tag: str | None,
) -> None:
    """Write to each output what its function returns for each translation; `tag` is that of the lines without one."""
    with ExitStack() as stack:
        notices = stack.enter_context(LineNotices())
        for output in writers:
            stack.enter_context(output)
        for item in items:
            for output, formatted in writers.items():
                output.write(formatted(item))
            notices.add(item)
            if attention:
                _draw_attention(translator, item, attention, tag)


def _draw_attention(translator: Translator, item: Translation, path: Path, tag: str | None) -> None:
    if not item.searched:
        raise InputError("--attention: this line is copied, not translated, so that there is no attention to draw")
    source_tokens, target_tokens, weights = translator.attention(item.normalised, item.text, tag)
    from mt_cli.features.inspection.figures import save_attention

    save_attention(weights, source_tokens, target_tokens, path)
    say(f"wrote {path}")


def _format_texts(num_best: int, item: Translation) -> str:
    """One line per hypothesis; missing hypotheses are empty lines, so that output lines match input lines."""
    texts = [text for text, _ in item.hypotheses[:num_best]]
    return "\n".join(texts + [""] * (num_best - len(texts)))


def _format_alignment(item: Translation) -> str:
    assert item.details is not None
    return " ".join(f"{source}-{target}" for source, target in item.details.word_alignment)
