"""Becomes a command with known signals: `python child.py COMMAND...`.

All signals have their default action, whatever the parent of the tests ignores, as `nohup` and services do. Needs the
standard library alone.
"""

import os
import signal
import sys

for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCHLD"):
    signal.signal(getattr(signal, name), signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())  # Blocked signals are inherited, too.
os.execvp(sys.argv[1], sys.argv[1:])
