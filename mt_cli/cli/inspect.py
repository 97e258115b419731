"""The commands that look inside: `inspect` a model and `report` on runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import check_choice, check_no_files, load_translator, run_path, utf8
from mt_cli.cli.streams import Output, show
from mt_cli.errors import InputError, MtError
from mt_cli.machine.console import say

_PICTURES = "Pictures"


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_command(
        app,
        inspect,
        "Look inside",
        "mt inspect --run runs/quickstart",
        'mt inspect "The red house." --output pictures',
        page="docs/tutorial.md",
    )
    add_command(
        app,
        report,
        "Look inside",
        "mt report --run runs/quickstart",
        "mt report --run runs/new --against runs/old --output comparison.html",
        page="docs/runs.md",
    )


def inspect(
    sentence: Annotated[str | None, Argument(metavar="SENTENCE", help="Sentence to translate.", callback=utf8)] = None,
    run: options.RunOption = None,
    checkpoint: options.CheckpointOption = None,
    to: options.ToOption = None,
    tag: options.TagOption = None,
    output: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Folder for pictures.",
            show_default="pictures in the run directory",
            rich_help_panel=_PICTURES,
        ),
    ] = None,
    suffix: Annotated[
        str, Option("--picture", metavar="NAME", help="Format: png or svg.", rich_help_panel=_PICTURES)
    ] = "png",
    positions: Annotated[
        int | None,
        Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Positions of the encoding to draw.",
            show_default="100",
            rich_help_panel=_PICTURES,
        ),
    ] = None,
    device: options.DeviceOption = "auto",
) -> None:
    """Show a model's parameters, or how it translates a sentence.

    Draws the positional encoding and the embeddings or, with a sentence, the attention of every head. If a picture of
    attention is pale and its rows are alike, the model has not learned yet where to look.
    """
    check_choice("--picture", suffix, "png", "svg")
    if sentence is not None and positions is not None:
        raise InputError("--positions: the positional encoding is drawn without a sentence; give one of the two")
    if sentence is None and (to or tag):
        raise InputError(f"{'--to' if to else '--tag'}: is for a translation; give a sentence, too")
    check_no_files([] if sentence is None else [sentence], "give the sentence itself")
    path = run_path(run)
    translator = load_translator(path, device, "fp32", checkpoint=checkpoint)
    from mt_cli.features.inspection import trace as inspection
    from mt_cli.features.inspection.figures import font_note

    if sentence is None:
        paths = inspection.draw_model(translator, _picture_folder(path, output), suffix, positions)
        show(*_lineage(path, checkpoint), *inspection.parameter_table(translator.model))
    else:
        trace = inspection.trace_translation(translator, sentence, options.target_tag(translator, to, tag))
        paths = inspection.draw_attention(trace, _picture_folder(path, output), suffix)
        show(trace.text, *inspection.choice_table(trace))
        if (size := translator.decoding.beam_size) > 1:
            say(
                f"This is greedy search: the most likely token at each step. mt translate keeps {size} hypotheses "
                "(beam search) and may find another translation."
            )
        if note := font_note([*trace.source_tokens, *trace.output_tokens]):
            say(f"mt: {note}")
    for each in paths:
        say(f"wrote {each}")


def _lineage(run: Path, checkpoint: str | None) -> list[str]:
    """Lines on the runs that a run comes from."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.checkpoint.files import open_checkpoint
    from mt_cli.checkpoint.state import describe_lineage

    with open_checkpoint(RunDirectory(run).path_of(checkpoint)) as saved:
        lines = list(describe_lineage(saved.state.parents))
    return [*lines, ""] if lines else []


def _picture_folder(run: Path, output: Path | None) -> Path:
    """The folder for pictures, created if it is missing."""
    from mt_cli.machine.storage import make_folder, refusal

    folder = run / "pictures" if output is None else output
    try:
        make_folder(folder) if output is None else folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(folder, error, "; give another folder with --output") from None
    return folder


def report(
    run: options.RunOption = None,
    against: Annotated[
        list[Path] | None,
        Option(
            metavar="DIR",
            callback=utf8,
            help="Run to compare with; can be repeated.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="HTML file.",
            show_default="report.html in the run directory",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    compare: Annotated[
        list[Path] | None, Option(hidden=True, callback=utf8, help="An older name of --against.")
    ] = None,
) -> None:
    """Write a report of one or several runs as an HTML page."""
    path = run_path(run)
    from mt_cli.features.inspection.page import page_of
    from mt_cli.machine.storage import write_text
    from mt_cli.reporting.summary import RunSummary

    page = Output(output) if output else None
    runs = [RunSummary.read(each) for each in [path, *(against or []), *(compare or [])]]
    try:
        translator = load_translator(path, "auto", "fp32")
    except MtError as error:
        say(f"mt: attention is not drawn: {error}")
        translator = None
    text = page_of(runs, translator)
    if page is None:
        try:
            write_text(path / "report.html", text + "\n")
        except MtError as error:
            raise MtError(f"{error}; give another file with --output") from None
    else:
        with page:
            page.write(text)
    show(str(output or path / "report.html"))
