"""The command `inspect`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import argument, check_choice, check_no_files, load_translator, option, run_path
from mt_cli.cli.streams import show
from mt_cli.runtime.console import say

_picture = partial(option, "Pictures")


def inspect(
    sentence: Annotated[str | None, argument("SENTENCE", "Sentence to translate.")] = None,
    run: options.RunOption = None,
    checkpoint: options.CheckpointOption = None,
    to: options.ToOption = None,
    output: Annotated[
        Path | None, _picture("DIR", "Folder for pictures.", "pictures in the run directory", callback=None)
    ] = None,
    suffix: Annotated[str, _picture("NAME", "Format: png or svg.", names="--picture")] = "png",
    device: options.DeviceOption = "auto",
) -> None:
    """Show parameters, or one translation.

    Draws the positional encoding or, with a sentence, the attention of every head in greedy search, which may find
    another translation than mt translate. If a picture of attention is pale and its rows are alike, the model has not
    learned yet where to look.

    Examples:
        mt inspect --run runs/quickstart
        mt inspect "The red house." --output pictures

    More: docs/tutorial.md
    """
    check_choice("--picture", suffix, "png", "svg")
    check_no_files([] if sentence is None else [sentence], "give the sentence itself")
    path = run_path(run)
    translator = load_translator(path, device, "fp32", checkpoint=checkpoint)
    from mt_cli.checkpoint.checkpoint import Checkpoint
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.checkpoint.state import describe_lineage
    from mt_cli.inspection import trace as inspection
    from mt_cli.inspection.figures import font_note

    if sentence is None:
        model = inspection.model_of(translator)
        pictures = inspection.draw_model(model, _folder(path, output), suffix)
        state = Checkpoint(RunDirectory(path).path_of(checkpoint)).state
        lineage = list(describe_lineage(state.parents))
        show(*lineage, *([""] if lineage else []), *inspection.parameter_table(model))
    else:
        trace = inspection.trace_translation(translator, sentence, translator.target_tag(to))
        pictures = inspection.draw_attention(trace, _folder(path, output), suffix)
        show(trace.text, *inspection.choice_table(trace))
        if translator.decoding.beam_size > 1:
            say("note: this is greedy search; mt translate keeps several hypotheses and may find another translation")
        if note := font_note([*trace.source_tokens, *trace.output_tokens]):
            say(f"mt: {note}")
    for picture in pictures:
        say(f"wrote {picture}")


def _folder(run: Path, output: Path | None) -> Path:
    from mt_cli.runtime.files import refusal

    folder = run / "pictures" if output is None else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(folder, error, "; give another folder with --output") from None
    return folder
