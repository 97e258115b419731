"""`mt`, the same as `python -m mt_cli`."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a signal while modules are imported or released leaves no traceback."""
    _reset_signals()
    sys.unraisablehook = _end_if_interrupted
    from mt_cli.cli.main import main as run

    try:
        run()
    finally:
        _reset_signals()


def _reset_signals() -> None:
    """Let SIGINT and SIGTERM end the process, unless they are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _end_if_interrupted(failure: sys.UnraisableHookArgs) -> None:
    """End the process if Python is about to ignore a KeyboardInterrupt where nothing can be raised."""
    if issubclass(failure.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(failure)


if __name__ == "__main__":
    main()
