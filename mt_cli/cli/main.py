"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Commands import heavy modules inside their functions, so that `mt --help` is fast.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from mt_cli.cli import (
    average,
    data,
    doctor,
    evaluate,
    export,
    init,
    inspect,
    tokenize,
    train,
    translate,
    tune_decoding,
)
from mt_cli.cli.help import Group
from mt_cli.cli.options import check_arguments, refuse_launcher
from mt_cli.cli.streams import open_standard_streams, show
from mt_cli.errors import MtError, reason
from mt_cli.machine.storage import is_out_of_room, is_wrong_path

_UsageError: Any = typer.BadParameter.__base__
"""What Typer raises for all wrong command lines, which it has under no name of its own."""

_is_interrupted = False

app = typer.Typer(
    name="mt",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
    epilog="""mt init --example quickstart
mt train --config quickstart.yaml
mt translate "The old doctor does not see the red house."
""",
)


def main() -> NoReturn:
    """Run the command line; an error that users can fix becomes one message and an exit status."""
    open_standard_streams()
    _handle_signals(_interrupt)
    try:
        check_arguments(sys.argv[1:])
        status = app(prog_name="mt", standalone_mode=False) or 0
    except MtError as error:
        _handle_signals(signal.SIG_IGN)  # A second signal would only change the exit status.
        _end(str(error), error.exit_code)
    except _UsageError as error:
        _show_usage(error)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted", 130)
    except MemoryError:
        _end("out of memory", 1)
    except UnicodeEncodeError as error:  # A file name; all other texts have been checked.
        name = str(error.object)[:200]
        _end(f"{name}: cannot be written in {error.encoding}; use UTF-8 (PYTHONUTF8=1) for names", 2)
    except OSError as error:
        if not is_out_of_room(error) and not (is_wrong_path(error) and error.filename):
            raise
        _end(f"{os.fsdecode(error.filename or 'output')}: {reason(error)}", 1 if is_out_of_room(error) else 2)
    except Exception:
        if not _is_interrupted:  # A library may hide the KeyboardInterrupt, above all while modules are imported.
            raise
        _end("interrupted", 130)
    if status == 130:  # Typer turns a KeyboardInterrupt into this status.
        _end("interrupted", 130)
    sys.exit(status)


def _show_usage(error: Any) -> None:
    """Print on one line what is wrong with a command line, or the help of a command that needs another word."""
    text = io.StringIO()
    error.show(text)
    usage, is_wrong, problem = f"\n{text.getvalue()}".rpartition("\nError: ")
    if not is_wrong:
        return print(text.getvalue(), end="", file=sys.stderr)
    problem = problem[0].lower() + " ".join(problem[1:].split()).removesuffix(".")
    advice = f"; see {error.ctx.command_path} --help" if usage else ""
    return print(f"mt: {problem}{advice}", file=sys.stderr)


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
            if signal.getsignal(number) == signal.SIG_DFL:  # As `mt_cli.__main__` leaves it.
                signal.signal(number, _interrupt)
        signal.signal(signal.SIGTERM, termination)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        show(f"mt {metadata.version('mt-cli')}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train machine translation models from parallel text, and translate with them.

    `mt COMMAND -h` explains a command. After `mt --install-completion`, the Tab key completes commands and options.
    """
    command = context.invoked_subcommand
    if command and command not in ("train", "translate"):
        refuse_launcher(command)


for _module in (
    init,
    data,
    doctor,
    train,
    average,
    tune_decoding,
    translate,
    evaluate,
    inspect,
    tokenize,
    export,
):
    _module.add(app)
