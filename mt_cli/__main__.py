"""`mt`, the same as `python -m mt_cli`."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, without a traceback if a signal arrives while modules are imported or released.

    An interrupted command ends with status 130, even if more signals follow.
    """
    _set_signals(signal.SIG_DFL)
    sys.unraisablehook = _end_if_interrupted
    from mt_cli.cli.main import main as run

    status: object = None
    try:
        run()
    except KeyboardInterrupt:  # A second signal arrived while the message about the first was printed.
        status = 130
        sys.exit(status)
    except SystemExit as end:
        status = end.code
        raise
    finally:
        _set_signals(signal.SIG_IGN if status == 130 else signal.SIG_DFL)


def _set_signals(action: signal.Handlers) -> None:
    """Set the action of the signals that interrupt, unless they are ignored already."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has only the first two.
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, action)


def _end_if_interrupted(failure: sys.UnraisableHookArgs) -> None:
    """End the process if Python is about to ignore a KeyboardInterrupt, for example in a destructor."""
    if issubclass(failure.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(failure)


if __name__ == "__main__":
    main()
