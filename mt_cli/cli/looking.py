"""The commands that show a finished run: inspect and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mt_cli.cli.options import (
    CheckpointOption,
    DeviceOption,
    RunOption,
    check_no_files,
    load_translator,
    run_path,
    utf8,
)
from mt_cli.cli.streams import Output, show
from mt_cli.errors import InputError, MtError, reason


def inspect(
    sentence: Annotated[
        str | None, typer.Argument(help="A sentence to translate and to draw.", show_default=False, callback=utf8)
    ] = None,
    run: RunOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="A folder for the pictures; default: pictures in the run directory.")
    ] = None,
    suffix: Annotated[str, typer.Option("--picture", help="png or svg.")] = "png",
    positions: Annotated[
        int | None, typer.Option("--positions", min=1, max=100_000, help="Number of positions to draw; default: 100.")
    ] = None,
    checkpoint: CheckpointOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Show a model's parameters, or how it translates a sentence.

    Without a sentence: a table of the parameters, and pictures of the positional encoding and the embeddings. With
    one: its greedy translation, the probability of each token and the runners-up, and a picture of every head.
    """
    if suffix not in ("png", "svg"):
        raise InputError(f"--picture {suffix}: use png or svg")
    if sentence is not None and positions is not None:
        raise InputError("--positions: the positional encoding is drawn without a sentence; give one of the two")
    check_no_files([] if sentence is None else [sentence], "give the sentence itself")
    path = run_path(run)
    translator = load_translator(path, device, "fp32", checkpoint=checkpoint)
    from mt_cli import inspection
    from mt_cli.figures import font_note
    from mt_cli.storage import make_folder

    folder = path / "pictures" if output is None else output
    trace = None if sentence is None else inspection.trace_translation(translator, sentence)
    try:
        make_folder(folder) if output is None else folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {reason(error)}; give another folder with --output") from None
    notes = []
    if trace is None:
        lines = inspection.parameter_table(translator.model)
        paths = inspection.draw_model(translator, folder, suffix, positions)
    else:
        lines = [trace.text, *inspection.choice_table(trace)]
        if (beam_size := translator.decoding.beam_size) > 1:
            notes.append(f"This is greedy search; mt translate keeps {beam_size} hypotheses and may find another one.")
        if note := font_note([*trace.source_tokens, *trace.output_tokens]):
            notes.append(f"mt: {note}")
        paths = inspection.draw_attention(trace, folder, suffix)
    show(*lines)
    print("\n".join([*notes, *(f"drawn: {each}" for each in paths)]), file=sys.stderr)


def report(
    run: RunOption = None,
    compare: Annotated[
        list[Path] | None, typer.Option("--compare", callback=utf8, help="Another run to compare; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The page; default: report.html in the run directory.")
    ] = None,
) -> None:
    """Write a page about a run, or about several.

    It has scores, curves, samples, attention, data and config, and needs no network.
    """
    path = run_path(run)
    from mt_cli.report.page import page_of
    from mt_cli.report.reading import RunFiles
    from mt_cli.storage import write_text

    page = None if output is None else Output(output)
    runs = [RunFiles.read(each) for each in [path, *(compare or [])]]
    try:
        translator = load_translator(path, "auto", "fp32")
    except MtError as error:
        print(f"mt: no attention is drawn: {error}", file=sys.stderr)
        translator = None
    text = page_of(runs, translator)
    if page is None:
        write_text(path / "report.html", text + "\n")
    else:
        with page:
            page.write(text)
    show(str(output or path / "report.html"))
