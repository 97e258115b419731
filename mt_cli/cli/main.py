"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Commands import heavy modules inside their functions, and a command line that begins with a command imports only its
module, so that `mt --help` and the first word of a translation are fast.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from mt_cli.cli.streams import show, use_utf8
from mt_cli.errors import LostProcessError, MtError, RunInterruptedError, one_line, reason
from mt_cli.runtime.files import is_out_of_room, is_wrong_path
from mt_cli.runtime.group import LAUNCH_NAME

_PANELS: Mapping[str, Sequence[str]] = {
    "Start": ("init", "doctor", "data check", "data show", "data pick", "data corrections"),
    "Train": ("train", "learn", "average", "tune-decoding", "tune-quality"),
    "Use": ("translate", "serve", "evaluate", "score"),
    "Look inside": ("inspect", "report", "tokenize"),
    "Exchange": ("import", "export"),
}
"""Commands by panel of the help. `data` is a group of commands."""
_UsageError: Any = typer.BadParameter.__base__
"""Base class of Typer's exceptions for wrong command lines; Typer has no public name for it."""


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        show(f"mt {metadata.version('mt-cli')}")
        raise typer.Exit


def mt(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train machine translation models from parallel text, and translate with them.

    `mt COMMAND -h` explains a command. After `mt --install-completion`, the Tab key completes commands and options.

    Examples:
        mt init --example quickstart
        mt train --config quickstart.yaml
        mt translate "The old doctor does not see the red house."
    """


def data() -> None:
    """Check and show the corpora of a config; collect corrections; pick sentences to translate."""


def _help_of(function: Callable[..., None]) -> dict[str, Any]:
    """Help of a command, made from the docstring of its function, and the examples and the page that follow it."""
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    # An indented block after an empty line is code in Markdown.
    return {"help": "\n\n".join(paragraphs)} | ({"epilog": f"Examples:\n\n{examples}"} if examples else {})


def _function_of(command: str) -> Callable[..., None]:
    """Function of a command; imports its module."""
    name = "import_model" if command == "import" else re.sub("[ -]", "_", command)  # `import` is a keyword.
    module = import_module(f"mt_cli.cli.{'data' if command.startswith('data ') else name}")
    function: Callable[..., None] = getattr(module, name)
    return function


def command_line(typed: str | None = None) -> typer.Typer:
    """Command line with all commands and their options, or only with a command that was typed.

    If another word was typed, such as `--help`, all commands are there without options, which take time to make.
    """
    settings: dict[str, Any] = {"no_args_is_help": True, "pretty_exceptions_enable": False}
    settings["context_settings"] = {"help_option_names": ["-h", "--help"]}
    program = typer.Typer(name="mt", callback=mt, **_help_of(mt), **settings)
    corpora = typer.Typer(callback=data, no_args_is_help=True)
    panels = {command: panel for panel, commands in _PANELS.items() for command in commands}
    chosen = [command for command in panels if command.split()[0] == typed] or panels
    for command in chosen:
        function = _function_of(command)
        options: dict[str, Any] = {"name": command.removeprefix("data "), **_help_of(function)}
        run = function if typed is None or chosen is not panels else lambda: None
        if command.startswith("data "):
            corpora.command(**options)(run)
        else:
            program.command(rich_help_panel=panels[command], **options)(run)
    if corpora.registered_commands:
        program.add_typer(corpora, name="data", rich_help_panel="Start")
    return program


def main() -> NoReturn:
    use_utf8()
    try:
        typed = None if "_MT_COMPLETE" in os.environ else "".join(sys.argv[1:2])
        status: int = command_line(typed)(prog_name="mt", standalone_mode=False) or 0
        if status == 130:  # Typer returns it for a KeyboardInterrupt.
            raise KeyboardInterrupt
    except (Exception, KeyboardInterrupt) as error:
        if (explanation := _explain(error)) is None:
            raise
        message, status = explanation
        if message and not _is_reported(error):
            print(f"mt: {message}", file=sys.stderr)
        if "WORLD_SIZE" in os.environ:  # Otherwise threads of gloo that still report errors could abort this process.
            sys.stdout.flush()
            os._exit(status)
    sys.exit(status)


def _is_reported(error: BaseException) -> bool:
    """True if another process of the group, or the launcher of `--devices`, prints the message."""
    if isinstance(error, RunInterruptedError):  # All processes raise it after the same step.
        return os.environ.get("RANK", "0") != "0"
    is_launched = os.environ.get("TORCHELASTIC_RUN_ID") == LAUNCH_NAME
    return is_launched and isinstance(error, LostProcessError | KeyboardInterrupt)


def _explain(error: BaseException) -> tuple[str, int] | None:
    """Message and exit status of an error that users can fix; None for a bug, which keeps its traceback."""
    if isinstance(error, MtError):
        return str(error), error.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", 130
    if isinstance(error, _UsageError):
        message = " ".join(error.format_message().split()).removesuffix(".")
        advice = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        # Without a message, Typer has shown the help of a command that needs another word.
        return message and f"{message[0].lower()}{message[1:]}{advice}", 2
    if isinstance(error, OSError) and (is_out_of_room(error) or (is_wrong_path(error) and error.filename)):
        return f"{os.fsdecode(error.filename or 'output')}: {reason(error)}", 1 if is_out_of_room(error) else 2
    if isinstance(error, MemoryError):
        return "out of memory", 1
    if isinstance(error, RuntimeError):
        from mt_cli.runtime.devices import is_out_of_memory  # Imports torch, which takes seconds.

        return (one_line(error), 1) if is_out_of_memory(error) else None
    return None
