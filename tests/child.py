"""Becomes a command with known signals: `python child.py IGNORED COMMAND...`.

`IGNORED` lists the names of signals that the command shall ignore, with commas; all others have their default action,
whatever the parent of the tests ignores, as `nohup` and services do. Needs the standard library alone.
"""

import os
import signal
import sys

_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD")


def become(ignored: str, command: list[str]) -> None:
    """Replace this process by a command."""
    for name in _SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN if name in ignored.split(",") else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Blocked signals are inherited, too.
    os.execvp(command[0], command)


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2:])
