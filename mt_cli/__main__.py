"""`mt`, the same as `python -m mt_cli`."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a signal while modules are imported or released leaves no traceback.

    A command that was interrupted ends with status 130 also if more signals follow.
    """
    _set_signals(signal.SIG_DFL)
    sys.unraisablehook = _end_if_interrupted
    from mt_cli.cli.main import main as run

    status: object = None
    try:
        run()
    except KeyboardInterrupt:  # Of a second signal, while the message about the first was printed.
        status = 130
        sys.exit(status)
    except SystemExit as end:
        status = end.code
        raise
    finally:
        _set_signals(signal.SIG_IGN if status == 130 else signal.SIG_DFL)


def _set_signals(action: signal.Handlers) -> None:
    """Let the signals that interrupt end the process or do nothing, unless they are ignored already."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has only the first two.
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, action)


def _end_if_interrupted(failure: sys.UnraisableHookArgs) -> None:
    """End the process if Python is about to ignore a KeyboardInterrupt where nothing can be raised."""
    if issubclass(failure.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(failure)


if __name__ == "__main__":
    main()
