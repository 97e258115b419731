"""`mt`, the same as `python -m mt_cli`."""

import gc
import os
import sys
import time
from pathlib import Path
from typing import NoReturn

_SPINS_BESIDE_OTHERS = "10000"
"""Turns for which a thread of GNU OpenMP waits for work before it sleeps, where other programs compute.

With its default, 300,000, threads that wait keep the processor for milliseconds from the one that works: a fifth of the
updates a second beside one busy program. Without other programs, 10,000 make training a fifth slower.
"""

_OBJECTS_BEFORE_GARBAGE = 20_000
"""New objects after which Python searches for garbage. With its default, 700, PyTorch is imported 0.1 s later."""


def others_compute(load: Path = Path("/proc/loadavg"), looks: int = 5) -> bool:
    """True if the kernel reports another running task at each look, for at most 40 ms; Linux only."""
    for look in range(looks):
        try:
            running = int(load.read_text().split()[3].split("/")[0])
        except (OSError, ValueError, IndexError):
            return False
        if running <= 1:  # This process itself.
            return False
        if look < looks - 1:
            time.sleep(0.01)
    return True


def main() -> NoReturn:
    """Run the command line; Ctrl-C ends it with status 130, also while modules are imported."""
    if "OMP_WAIT_POLICY" not in os.environ and others_compute():
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS_BESIDE_OTHERS)  # Read when PyTorch is loaded.
    gc.set_threshold(_OBJECTS_BEFORE_GARBAGE)
    try:
        from mt_cli.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
