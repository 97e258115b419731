"""Becomes a command that ends with the tests: `python child.py IGNORED COMMAND...`.

`IGNORED` lists the names of signals that the command shall ignore, with commas; all others have their default action,
whatever the parent of the tests ignores, as `nohup` and services do. Needs the standard library alone.
"""

import os
import signal
import sys

_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
_PR_SET_PDEATHSIG = 1  # Of prctl(2).


def end_with_parent() -> None:
    """Let the kernel end this process when its parent is gone, however that ended; only Linux can."""
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It ended before the call.
            os.kill(os.getpid(), signal.SIGKILL)


def become(ignored: str, command: list[str]) -> None:
    """Replace this process by a command."""
    for name in _SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN if name in ignored.split(",") else signal.SIG_DFL)
    end_with_parent()
    os.execvp(command[0], command)


if __name__ == "__main__":
    become(sys.argv[1], sys.argv[2:])
