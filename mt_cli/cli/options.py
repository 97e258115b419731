"""Options that several commands share, and the objects that they name."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, CallbackParam, Context, Option

from mt_cli.cli.streams import as_utf8
from mt_cli.corpus.languages import primary
from mt_cli.errors import InputError
from mt_cli.machine.console import say, show_progress
from mt_cli.machine.group import ALONE, Group

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.translation.translator import Translator

ENGINES = ("mt", "ctranslate2")
RUNS = Path("runs")
File = Path | None


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise InputError for a NUL character, which no system passes on, but a program that calls `main` may."""
    for text in arguments:
        if "\0" in text:
            raise InputError(f"{text!a:.100}: has a NUL character, which no name or text may have")


def utf8(parameter: CallbackParam, given: Any) -> Any:
    """The text or texts of an option or argument, decoded as UTF-8 in any locale; paths are only checked."""
    if not given or isinstance(given, list | tuple):
        return given and type(given)(utf8(parameter, each) for each in given)
    text = as_utf8(str(given), parameter.opts[0], sys.getfilesystemencoding())
    return text if isinstance(given, str) else given


MODEL, CONFIG, SEARCH, HARDWARE, OUTPUT = "Model", "Config", "Search", "Hardware", "Output"
"""Panels of help that several commands have."""


def _changes(example: str, panel: str) -> Any:
    help = f"Change an option, such as {example}; can be repeated."
    return Option("--set", metavar="KEY=VALUE", callback=utf8, help=help, rich_help_panel=panel)


def expect_option(context: Context, given: list[str] | None) -> list[str] | None:
    """Raise InputError, with the right command line, if a config is given without `--config`."""
    if given:
        right = f"{context.command_path} --config {shlex.quote(given[0])}"
        raise InputError(f"{given[0]}: a config is given with --config:  {right}")
    return given


NoArguments = Annotated[
    list[str] | None,
    Argument(hidden=True, is_eager=True, callback=expect_option, help="A config without its option, which is refused."),
]
ConfigOption = Annotated[
    Path,
    Option("--config", metavar="FILE", help="Config, such as configs/quickstart.yaml.", rich_help_panel=CONFIG),
]
SetOption = Annotated[list[str] | None, _changes("training.max_epochs=5", CONFIG)]
SetCorpusOption = Annotated[list[str] | None, _changes("corpus.filters.identical=false", CONFIG)]
SetTokenizerOption = Annotated[list[str] | None, _changes("tokenizer.vocab_size=4000", CONFIG)]
SetDecodingOption = Annotated[list[str] | None, _changes("decoding.max_length=50", SEARCH)]
NEWEST_RUN = "the newest below ./runs"
RunOption = Annotated[
    Path | None,
    Option(metavar="DIR", callback=utf8, help="Run directory.", show_default=NEWEST_RUN, rich_help_panel=MODEL),
]
RunsOption = Annotated[
    list[Path] | None,
    Option(
        "--run",
        metavar="DIR",
        callback=utf8,
        help="Run directory; several are an ensemble.",
        show_default=NEWEST_RUN,
        rich_help_panel=MODEL,
    ),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)]
DeviceOption = Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda, cuda:1 or mps.", rich_help_panel=HARDWARE)]
PrecisionOption = Annotated[
    str, Option(metavar="NAME", help="fp32, bf16, fp16, or auto: bf16 where it is fast.", rich_help_panel=HARDWARE)
]
DevicesOption = Annotated[
    int, Option(min=1, metavar="N", help="Processes on this machine, one for each GPU.", rich_help_panel=HARDWARE)
]
ThreadsOption = Annotated[
    int | None,
    Option(
        min=1,
        max=1024,
        metavar="N",
        help="Threads on the CPU.",
        show_default="one per idle core",
        rich_help_panel=HARDWARE,
    ),
]
ProgressOption = Annotated[
    str,
    Option(metavar="NAME", callback=show_progress, help="bar, plain (lines), none, or auto: a bar on a terminal."),
]
"""Is applied when it is parsed, so commands only declare it."""
EngineOption = Annotated[
    str,
    Option(
        metavar="NAME",
        help="mt, or ctranslate2 for a folder made by mt export.",
        rich_help_panel=MODEL,
    ),
]
CheckpointOption = Annotated[
    str | None,
    Option(metavar="NAME", help="Checkpoint: best, last, step-N, ...", show_default="best", rich_help_panel=MODEL),
]
ToOption = Annotated[
    str | None,
    Option(
        "--to",
        metavar="CODE",
        help="Target language, of a model for several directions.",
        callback=utf8,
        rich_help_panel=MODEL,
    ),
]
AsLinesOption = Annotated[bool, Option("--as-lines", help="Read a file line by line also if it has markup or columns.")]
TagOption = Annotated[
    str | None,
    Option(
        "--tag",
        metavar="TAG",
        help="Put before every sentence without a tag, such as <2it>.",
        callback=utf8,
        rich_help_panel=MODEL,
    ),
]
BeamSizeOption = Annotated[
    int | None,
    Option(
        min=1,
        metavar="N",
        help="Hypotheses kept per sentence; 1 is greedy search.",
        show_default="that of the run",
        rich_help_panel=SEARCH,
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    Option(
        min=0.0,
        metavar="X",
        help="Larger values give longer translations.",
        show_default="that of the run",
        rich_help_panel=SEARCH,
    ),
]


def check_choice(option: str, value: str, *choices: str) -> None:
    """Raise InputError unless the value of an option is one of the choices."""
    if value not in choices:
        raise InputError(f"{option} {value}: use {', '.join(choices[:-1])} or {choices[-1]}")


def check_no_files(texts: Sequence[str], advice: str) -> None:
    """Raise InputError, with the advice, if all texts of the command line are names of files."""
    if texts and all(" " not in text and os.path.exists(text) and not os.path.isdir(text) for text in texts):
        raise InputError(f"{texts[0]}: this is a file; {advice}")


@contextmanager
def together(devices: int, if_lost: str, check: Callable[[], object] = lambda: None) -> Iterator[Group]:
    """Context manager that gives the group of processes of a launcher; with several devices, this is one.

    `if_lost` says what to do if one of them is lost. `check` raises errors of the command line before processes are
    started. Torch is not loaded if there are none.
    """
    if "WORLD_SIZE" not in os.environ and devices == 1:
        yield ALONE
        return
    from mt_cli.machine.launcher import launch, launched_group, launched_processes

    number = launched_processes()
    if number is None:
        check()
        sys.exit(launch(devices, sys.argv[1:]))
    if devices not in (1, number):
        raise InputError(f"--devices {devices}: the launcher of this process says {number}; leave the option out")
    with launched_group(if_lost) as group:
        yield group


def refuse_launcher(command: str) -> None:
    """Raise InputError in the first of several processes of a launcher, and end the others: they would all do the same.

    Variables that are not those of a launcher, which clusters may set, change nothing.
    """
    count, rank = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK"))
    if not (count.isdecimal() and rank.isdecimal() and "LOCAL_RANK" in os.environ and int(count) > 1):
        return
    if int(rank) > 0:
        sys.exit(2)
    raise InputError(f"`mt {command}` uses one process; start it without torchrun (or unset WORLD_SIZE)")


def load_config(path: Path, overrides: list[str] | None) -> Config:
    """The config in a file, changed by `--set`."""
    from mt_cli.config import loading

    return loading.load_config(path, overrides or ())


def search_options(overrides: list[str] | None, **given: Any) -> dict[str, Any]:
    """Options of the section `decoding`: those of `--set` and, with precedence, those given that are not None."""
    from mt_cli.config.loading import section_overrides

    changes = {name: value for name, value in given.items() if value is not None}
    return section_overrides(overrides or (), "decoding") | changes


def target_tag(translator: Translator, language: str | None, tag: str | None = None) -> str | None:
    """Tag that asks for a target language; without a language, the given tag or the default of the model.

    A note says so if the model has several target languages and none is chosen. Raises InputError if the model does
    not translate into the language.
    """
    tagging = translator.tagging
    targets = tagging.targets
    source, target = translator.languages
    if language is None:
        if tag is None and len(targets) > 1:
            here = f"this is {tagging.target_of(tagging.default)}, and " if tagging.default else ""
            say(f"note: no target language is chosen; {here}--to chooses one of {', '.join(targets)}")
        return tagging.chosen(tag)
    if tag is not None:
        raise InputError("give --to or --tag, not both")
    if found := tagging.into(language):
        return found
    if primary(language) == primary(target) and not (targets and tagging.is_required):
        return tagging.default
    known = f"into {', '.join(targets)}" if targets else f"from {source} to {target} only"
    raise InputError(f"--to {language}: this model translates {known}")


def run_path(run: Path | None) -> Path:
    """The run given, or the newest one, whose name is then printed on standard error."""
    if run is not None:
        return run
    from mt_cli.checkpoint.directory import newest_run

    newest = newest_run()
    say(f"Using {newest}")
    return newest


def run_paths(runs: list[Path] | None) -> list[Path]:
    """The runs given, or the newest one, whose name is then printed on standard error."""
    return runs or [run_path(None)]


def check_new_run(path: Path) -> None:
    """Raise InputError unless a path for a new run is free, or an empty folder, and has a name that a run may have."""
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE
    from mt_cli.machine.storage import is_free

    if not RUN_NAME.fullmatch(path.name):
        raise InputError(f"--output {path}: the name of a run has {RUN_NAME_RULE}")
    if not is_free(path):
        raise InputError(f"{path}: exists already; give a new run directory with --output")


def check_model(
    runs: list[Path] | None, engine: str, checkpoint: str | None, device: str, precision: str, search: dict[str, Any]
) -> None:
    """Raise the errors that show before a model is loaded, so that no process is started to find them."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.config.loading import changed_section
    from mt_cli.machine.devices import pick_device, pick_precision

    check_choice("--engine", engine, *ENGINES)
    pick_precision(precision, pick_device(device))
    for directory in map(RunDirectory, runs or () if engine == "mt" else ()):
        changed_section(directory.config().decoding, search)
        directory.path_of(checkpoint)


def load_translator(
    path: Path | list[Path],
    device: str = "auto",
    precision: str = "auto",
    engine: str = "mt",
    checkpoint: str | None = None,
    num_threads: int | None = None,
    group: Group = ALONE,
) -> Translator:
    """The translator that `Translator.load` returns."""
    from mt_cli.machine.devices import keep_memory
    from mt_cli.translation.translator import Translator

    check_choice("--engine", engine, *ENGINES)
    translator = Translator.load(path, device, precision, checkpoint, num_threads, group, engine)
    if engine == "mt":
        keep_memory()
    return translator


def check_languages(*codes: str | None) -> None:
    """Raise InputError unless the codes given for the source and the target are language codes."""
    from mt_cli.corpus.languages import LANGUAGE_CODE

    for side, code in zip(("source", "target"), codes, strict=True):
        if code is not None and not LANGUAGE_CODE.fullmatch(code):
            raise InputError(f"--{side}-language {code}: not a language code, such as en, pt_BR or zh-Hans")
