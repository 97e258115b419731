"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Commands import heavy modules inside their functions, so that `mt --help` is fast.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer.core import TyperGroup

from mt_cli.cli.average import average
from mt_cli.cli.data import data_check, data_show
from mt_cli.cli.doctor import doctor
from mt_cli.cli.evaluate import evaluate
from mt_cli.cli.export import export
from mt_cli.cli.import_model import import_model
from mt_cli.cli.init import init
from mt_cli.cli.inspect import inspect
from mt_cli.cli.options import refuse_launcher
from mt_cli.cli.report import report
from mt_cli.cli.score import score
from mt_cli.cli.serve import serve
from mt_cli.cli.streams import show, use_utf8
from mt_cli.cli.tokenize import tokenize
from mt_cli.cli.train import train
from mt_cli.cli.translate import translate
from mt_cli.cli.tune_decoding import tune_decoding
from mt_cli.errors import MtError, one_line, reason
from mt_cli.machine.storage import is_out_of_room, is_wrong_path

_PANELS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Start": {"init": init, "doctor": doctor},
    "Train": {"train": train, "average": average, "tune-decoding": tune_decoding},
    "Use": {"translate": translate, "serve": serve, "evaluate": evaluate, "score": score},
    "Look inside": {"inspect": inspect, "report": report, "tokenize": tokenize},
    "Exchange": {"import": import_model, "export": export},
}
"""Commands by panel of the help and by name. `data`, a group of commands, stands after `init`."""
_DATA_COMMANDS: Mapping[str, Callable[..., None]] = {"check": data_check, "show": data_show}
_UsageError: Any = typer.BadParameter.__base__
"""Base class of Typer's exceptions for wrong command lines; Typer has no public name for it."""
_is_interrupted = False


class _Group(TyperGroup):
    """Group that lists its commands in the order of the help; Typer would list subgroups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: ("init", "data").index(name) if name in ("init", "data") else 2)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        show(f"mt {metadata.version('mt-cli')}")
        raise typer.Exit


def mt(
    context: typer.Context,
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
    command = context.invoked_subcommand
    if command and command not in ("train", "translate"):
        refuse_launcher(command)


def data() -> None:
    """Check and show the corpora of a config."""


def _help_of(function: Callable[..., None]) -> dict[str, Any]:
    """Help of a command, made from the docstring of its function, and the examples and the page that follow it."""
    text, _, examples = cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    # An indented block after an empty line is code in Markdown.
    return {"help": "\n\n".join(paragraphs)} | ({"epilog": f"Examples:\n\n{examples}"} if examples else {})


def _command_line() -> typer.Typer:
    settings: dict[str, Any] = {"no_args_is_help": True, "pretty_exceptions_enable": False}
    settings["context_settings"] = {"help_option_names": ["-h", "--help"]}
    program = typer.Typer(name="mt", cls=_Group, callback=mt, **_help_of(mt), **settings)
    corpora = typer.Typer(callback=data, no_args_is_help=True)
    for name, function in _DATA_COMMANDS.items():
        corpora.command(name, **_help_of(function))(function)
    for panel, commands in _PANELS.items():
        for name, function in commands.items():
            program.command(name, rich_help_panel=panel, **_help_of(function))(function)
    program.add_typer(corpora, name="data", rich_help_panel="Start")
    return program


app = _command_line()


def main() -> NoReturn:
    """Run the command line; an error that users can fix becomes one message and an exit status."""
    use_utf8()
    _handle_signals(_interrupt)
    try:
        sys.exit(_status())
    except MtError as error:
        _handle_signals(signal.SIG_IGN)  # A second signal would only change the exit status.
        _end(str(error), error.exit_code)
    except _UsageError as error:
        message = " ".join(error.format_message().split()).removesuffix(".")
        if not message:  # Typer has shown the help of a command that needs another word.
            sys.exit(2)
        advice = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        _end(f"{message[0].lower()}{message[1:]}{advice}", 2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted", 130)
    except MemoryError:
        _end("out of memory", 1)
    except UnicodeEncodeError as error:  # A file name, because all other texts have been checked.
        name = str(error.object)[:200]
        _end(f"{name}: cannot be written in {error.encoding}; use UTF-8 (PYTHONUTF8=1) for names", 2)
    except OSError as error:
        if not is_out_of_room(error) and not (is_wrong_path(error) and error.filename):
            raise
        _end(f"{os.fsdecode(error.filename or 'output')}: {reason(error)}", 1 if is_out_of_room(error) else 2)
    except Exception as error:
        if _is_interrupted:  # A library may hide the KeyboardInterrupt, especially while modules are imported.
            _end("interrupted", 130)
        if not _is_out_of_memory(error):
            raise
        _end(one_line(error), 1)


def _is_out_of_memory(error: Exception) -> bool:
    if "torch" not in sys.modules:
        return False
    from mt_cli.machine.devices import is_out_of_memory  # Imports torch, which takes seconds.

    return is_out_of_memory(error)


def _status() -> int:
    """Exit status of the command. Raises the exceptions that Typer turns into a status."""
    try:
        status: int = app(prog_name="mt", standalone_mode=False) or 0
    except SystemExit as end:
        cause = None if end.__suppress_context__ else end.__context__
        if isinstance(cause, BrokenPipeError):  # A broken connection; `streams.py` handles standard output.
            raise cause from None
        raise
    if status == 130:
        raise KeyboardInterrupt
    return status


def _end(message: str, status: int) -> NoReturn:
    print(f"mt: {message}", file=sys.stderr)
    sys.exit(status)


def _interrupt(number: int, frame: object) -> NoReturn:
    global _is_interrupted
    _is_interrupted = True
    raise KeyboardInterrupt


def _handle_signals(termination: Any) -> None:
    """Set the handler of SIGTERM, restore those of SIGINT and SIGHUP, and ignore SIGUSR1, which makes training save.

    SIGHUP stays ignored where it was, as under `nohup`.
    """
    with suppress(ValueError):  # Only the main thread can set handlers.
        for number in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
            if signal.getsignal(number) == signal.SIG_DFL:  # The state in which `mt_cli.__main__` leaves it.
                signal.signal(number, _interrupt)
        signal.signal(signal.SIGTERM, termination)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
