"""Options that several commands share, and loading of the configs, runs and translators that they name."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, CallbackParam, Option

from mt_cli.errors import InputError
from mt_cli.runtime.console import say, show_progress
from mt_cli.runtime.group import ALONE, Group

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.corpus.glossary import Glossary
    from mt_cli.translation.translator import Translator

_MAX_REPORT_BYTES = 2**24
RUNS = Path("runs")
MODEL, CONFIG, SEARCH, HARDWARE, OUTPUT = "Model", "Config", "Search", "Hardware", "Output"


def utf8(parameter: CallbackParam, value: Any) -> Any:
    for text in value if isinstance(value, list | tuple) else [value]:
        if bad := re.search("[\udc80-\udcff]", str(text)):  # Python's marks for bytes that it could not decode.
            raise InputError(f"{parameter.opts[0]}: {text!a} is not UTF-8 (0x{ord(bad[0]) - 0xDC00:02X})")
    return value


def option(panel: str | None, metavar: str, help: str, default: str | bool = True, names: str = "", **more: Any) -> Any:
    """Option in a panel of the help; `default` describes a default of None, `names` are separated by spaces."""
    more = {"callback": utf8} | more
    return Option(*names.split(), metavar=metavar, help=help, show_default=default, rich_help_panel=panel, **more)


def flag(panel: str | None, name: str, help: str) -> Any:
    return Option(name, help=help, rich_help_panel=panel)


def file_option(panel: str, help: str, default: str | bool = True, names: str = "") -> Any:
    """Option that names a file; its name need not be UTF-8."""
    return option(panel, "FILE", help, default, names, callback=None)


def argument(metavar: str, help: str) -> Any:
    return Argument(metavar=metavar, help=help, callback=utf8)


def _set_option(panel: str, example: str) -> Any:
    return option(panel, "KEY=VALUE", f"Change an option, such as {example}; can be repeated.", names="--set")


_model, _search, _hardware = (partial(option, panel) for panel in (MODEL, SEARCH, HARDWARE))
NEWEST_RUN, OF_RUN = "the newest below ./runs", "from the run"
File = Path | None
ConfigOption = Annotated[Path, file_option(CONFIG, "Config, such as configs/quickstart.yaml.", names="--config")]
SetOption = Annotated[list[str] | None, _set_option(CONFIG, "training.max_epochs=5")]
SetCorpusOption = Annotated[list[str] | None, _set_option(CONFIG, "corpus.filters.identical=false")]
SetTokenizerOption = Annotated[list[str] | None, _set_option(CONFIG, "tokenizer.vocab_size=4000")]
SetDecodingOption = Annotated[list[str] | None, _set_option(SEARCH, "decoding.no_repeat_ngram=3")]
RunOption = Annotated[Path | None, _model("DIR", "Run directory.", NEWEST_RUN)]
RunsOption = Annotated[list[Path] | None, _model("DIR", "Run directory; several are an ensemble.", NEWEST_RUN, "--run")]
JsonOption = Annotated[bool, flag(OUTPUT, "--json", "Print JSON.")]
DeviceOption = Annotated[str, _hardware("NAME", "auto, cpu, cuda, cuda:1 or mps.")]
PrecisionOption = Annotated[str, _hardware("NAME", "fp32, bf16, fp16, or auto: bf16 where it is fast.")]
DevicesOption = Annotated[int, _hardware("N", "Processes on this machine, one for each GPU.", min=1)]
ThreadsOption = Annotated[int | None, _hardware("N", "Threads on the CPU.", "one per usable core", min=1, max=1024)]
ProgressOption = Annotated[
    str,
    Option(metavar="NAME", callback=show_progress, help="bar, plain (lines), none, or auto: a bar on a terminal."),
]
"""Option `--progress`, which takes effect when it is parsed; commands only declare it."""
EngineOption = Annotated[str, _model("NAME", "mt, or ctranslate2 for a folder made by mt export.")]
CheckpointOption = Annotated[str | None, _model("NAME", "Checkpoint: best, last, step-N, ...", "best")]
ToOption = Annotated[
    str | None, _model("CODE", "Target language of a model for several, or a tag such as <2it>.", names="--to")
]
AsLinesOption = Annotated[bool, flag(None, "--as-lines", "Read a file line by line also if it has markup or columns.")]
SplitSentencesOption = Annotated[
    bool | None,
    flag(
        None,
        "--split-sentences/--no-split-sentences",
        "Translate each sentence of a line alone; by default if training had no such lines.",
    ),
]
TermsOption = Annotated[
    list[Path] | None,
    option(None, "FILE", "Glossary (.tsv, .csv, .tbx, .po); can be repeated.", False, "--terms", callback=None),
]
BeamSizeOption = Annotated[int | None, _search("N", "Hypotheses kept per sentence; 1 is greedy search.", OF_RUN, min=1)]
LengthPenaltyOption = Annotated[float | None, _search("X", "Larger values give longer translations.", OF_RUN, min=0.0)]


def check_choice(option: str, value: str, *choices: str) -> None:
    if value not in choices:
        raise InputError(f"{option} {value}: use {', '.join(choices[:-1])} or {choices[-1]}")


def check_no_files(texts: Sequence[str], advice: str) -> None:
    """Raise InputError, with the advice, if all texts of the command line are names of existing files."""
    if texts and all(" " not in text and os.path.exists(text) and not os.path.isdir(text) for text in texts):
        raise InputError(f"{texts[0]}: this is a file; {advice}")


@contextmanager
def together(devices: int, check: Callable[[], object]) -> Iterator[Group]:
    """Context manager that yields the group of this process; with several devices, it starts the processes first.

    `check` raises errors of the command line before processes are started. For a single process, torch is not loaded.
    """
    if "WORLD_SIZE" not in os.environ and devices == 1:
        yield ALONE
        return
    from mt_cli.runtime.launcher import launch, launched_group

    if "WORLD_SIZE" not in os.environ:
        check()
        sys.exit(launch(devices, sys.argv[1:]))
    with launched_group() as group:
        yield group


def load_config(path: Path, overrides: list[str] | None) -> Config:
    from mt_cli.config import loading

    return loading.load_config(path, overrides or ())


def search_options(overrides: list[str] | None, **options: Any) -> dict[str, Any]:
    """Options of the section `decoding`: `options` that are not None, otherwise the values of `--set`."""
    from mt_cli.config.loading import section_overrides

    changes = {name: value for name, value in options.items() if value is not None}
    return section_overrides(overrides or (), "decoding") | changes


def read_terms(
    paths: list[Path] | None, languages: tuple[str, str], translator: Translator | None = None
) -> Glossary | None:
    """Glossary of files, whose notes are printed, and one if the translator forces terms; None without files.

    Raises InputError if the translator takes no terms.
    """
    if not paths:
        return None
    if translator is not None:
        from mt_cli.translation.segments import check_terms

        check_terms(translator)
        if not translator.source_tokenizer.has_term_marks:
            say("note: this model was not trained with corpus.terms, so terms are written as in the glossary")
    from mt_cli.corpus.glossary import Glossary

    glossary = Glossary.read(paths, languages)
    for note in glossary.notes:
        say(f"note: {note}")
    return glossary


def run_path(run: Path | None) -> Path:
    """Directory of the run; by default the newest run, whose name is then printed on standard error."""
    if run is not None:
        return run
    from mt_cli.checkpoint.directory import newest_run

    newest = newest_run()
    say(f"Using {newest}")
    return newest


def run_paths(runs: list[Path] | None) -> list[Path]:
    """Directories of the runs; by default the newest run."""
    return runs or [run_path(None)]


def check_new_run(path: Path) -> None:
    """Raise InputError unless a path for a new run is free, or an empty folder, and has a name that a run may have."""
    from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE
    from mt_cli.runtime.files import is_free

    if not RUN_NAME.fullmatch(path.name):
        raise InputError(f"--output {path}: the name of a run has {RUN_NAME_RULE}")
    if not is_free(path):
        raise InputError(f"{path}: exists already; give a new run directory with --output")


def check_languages(*codes: str | None) -> None:
    """Raise InputError unless the codes of the source and the target, where given, are language codes."""
    from mt_cli.corpus.languages import LANGUAGE_CODE

    for side, code in zip(("source", "target"), codes, strict=True):
        if code is not None and not LANGUAGE_CODE.fullmatch(code):
            raise InputError(f"--{side}-language {code}: not a language code, such as en, pt_BR or zh-Hans")


def load_translator(
    path: Path | list[Path],
    device: str = "auto",
    precision: str = "auto",
    engine: str = "mt",
    checkpoint: str | None = None,
    num_threads: int | None = None,
    group: Group = ALONE,
) -> Translator:
    """Load a translator with `Translator.load`; keep freed memory for searches of many sizes."""
    from mt_cli.translation.translator import Translator

    translator = Translator.load(path, device, precision, checkpoint, num_threads, group, engine)
    if engine == "mt":
        from mt_cli.runtime.devices import keep_memory

        keep_memory()
    gc.freeze()  # Modules and models stay. Searching them for garbage takes 0.17 s, often several times a minute.
    return translator


def note_little_learned(paths: Iterable[Path], engine: str) -> None:
    """Say so if the translations of a run had little to do with their sources when it was scored; not of exports."""
    if engine != "mt":
        return
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.runtime.files import read_regular

    for directory in map(RunDirectory, paths):
        with suppress(OSError):  # Without the import of `evaluation` for a run that has learned.
            if b'"is_little": true' in read_regular(directory.report_path, _MAX_REPORT_BYTES):
                from mt_cli.evaluation.results import read_report

                if (report := read_report(directory)) and report.learning:
                    say(f"note: {directory.path} has learned little, expect wrong translations; mt report says why")
