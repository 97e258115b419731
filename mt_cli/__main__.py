"""`mt`, which is the same as `python -m mt_cli`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; a signal before or after that, as modules are imported or released, leaves no traceback."""
    _end_at_once()
    from mt_cli.cli.main import main as run

    try:
        run()
    finally:
        _end_at_once()


def _end_at_once() -> None:
    """Have SIGINT and SIGTERM end the process, unless they are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main()
