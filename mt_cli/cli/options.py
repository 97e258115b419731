"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mt_cli.cli.streams import as_utf8
from mt_cli.errors import InputError

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.translator.translator import Translator

RUNS = Path("runs")


def utf8(parameter: typer.CallbackParam, given: Any) -> Any:
    """The text or texts of an option or argument, which are UTF-8 whatever the locale is; paths are only checked."""
    if not given or isinstance(given, list):
        return given and [utf8(parameter, each) for each in given]
    text = as_utf8(str(given), parameter.opts[0], sys.getfilesystemencoding())
    return text if isinstance(given, str) else given


def check_no_files(texts: Sequence[str], advice: str) -> None:
    """Raise InputError, with the advice, if texts of the command line are all names of files."""
    if texts and all(" " not in text and os.path.exists(text) and not os.path.isdir(text) for text in texts):
        raise InputError(f"{texts[0]}: this is a file; {advice}")


ConfigOption = Annotated[Path, typer.Option("--config", help="The YAML file of a run.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        callback=utf8,
        help="Override one option of the config; may be repeated.",
    ),
]
SetDecodingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="decoding.KEY=VALUE",
        callback=utf8,
        help="Override one option of the run's search, such as decoding.no_repeat_ngram=3; may be repeated.",
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run", callback=utf8, help="A run directory; by default the newest below ./runs.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="fp32, bf16, or auto: bf16 where the hardware is fast at it.")
]
ProgressOption = Annotated[
    str,
    typer.Option(
        "--progress", help="bar, plain (a line now and then), none, or auto: a bar on a terminal and else plain."
    ),
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="mt, or ctranslate2; --run is then the folder of an exported model.")
]
CheckpointOption = Annotated[
    str | None,
    typer.Option("--checkpoint", help="best, last or step-N; default: the best one.", show_default=False),
]
BeamSizeOption = Annotated[
    int | None, typer.Option("--beam-size", min=1, help="Hypotheses kept per sentence; 1 is greedy search.")
]


def set_progress(mode: str) -> None:
    """Have progress shown as `--progress` says."""
    from mt_cli.console import show_progress

    show_progress(mode)


def load_config(path: Path, overrides: list[str] | None) -> Config:
    """The config of a file with what `--set` says."""
    from mt_cli.config import loading

    return loading.load_config(path, overrides or ())


def run_path(run: Path | None) -> Path:
    """The run given, or else the newest, which is then named on standard error."""
    if run is not None:
        return run
    from mt_cli.checkpoint.directory import newest_run

    newest = newest_run()
    print(f"Using {newest}", file=sys.stderr)
    return newest


def load_translator(
    path: Path, device: str = "auto", precision: str = "auto", engine: str = "mt", checkpoint: str | None = None
) -> Translator:
    """The translator of a run, or of the folder of an exported model."""
    from mt_cli.hardware import keep_memory
    from mt_cli.translator.translator import Translator

    if engine not in ("mt", "ctranslate2"):
        raise InputError(f"--engine {engine}: use mt or ctranslate2")
    if engine == "ctranslate2":
        from mt_cli.export.served import load_served

        if precision != "auto":
            raise InputError("--precision: an exported model has its own number format; see mt export --quantization")
        if checkpoint is not None:
            raise InputError("--checkpoint: an exported model has one checkpoint only; use --engine mt")
        return load_served(path, device)
    translator = Translator.load(path, device, precision, checkpoint)
    keep_memory()
    return translator
