"""`mt`, the same as `python -m mt_cli`."""

import gc
import os
import sys
from typing import NoReturn

_SPINS = "10000"
"""Turns for which a thread of GNU OpenMP waits for work before it sleeps: tens of microseconds instead of milliseconds.

Beside other programs, threads that wait keep the processor from the one that works.
"""

_OBJECTS_BEFORE_GARBAGE = 20_000
"""New objects after which Python searches for garbage. With its default, 700, PyTorch is imported 0.1 s later."""


def main() -> NoReturn:
    """Run the command line; Ctrl-C ends it with status 130, also while modules are imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)  # Read when PyTorch is loaded.
    gc.set_threshold(_OBJECTS_BEFORE_GARBAGE)
    try:
        from mt_cli.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
