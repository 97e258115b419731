"""A parallel map, the number of threads to use, and the load of the CPUs. Imports no torch.

The threads of a parallel operation wait for each other at its end. libgomp, which PyTorch uses on CPUs, lets them spin
for milliseconds before they sleep. If another program runs, spinning threads take the CPU from the thread that they
wait for: two threads on two CPUs did 4.7 steps a second alone, 1.5 next to one other program, and 2.4 next to it with
less spinning (`docs/benchmarks.md`). The limit on spinning must be set before torch is loaded; after that, using fewer
threads has the same effect.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
U = TypeVar("U")

_USER_SETTINGS = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}


def in_threads(work: Callable[[T], U], items: Iterable[T], num_threads: int = 2) -> Iterator[U]:
    """Call `work` on items in threads, a few items ahead of the caller; yield the results in order."""
    from concurrent.futures import ThreadPoolExecutor  # Slow to import, and `mt --help` does not need it.

    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque[Future[U]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > num_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def spin_less_if_busy() -> None:
    """Let threads sleep sooner if CPUs are busy. Does nothing if the user has set this, or after torch is loaded."""
    if "torch" not in sys.modules and not _USER_SETTINGS & set(os.environ) and _idle_if_busy() is not None:
        os.environ["GOMP_SPINCOUNT"] = "1000"


def threads_if_busy() -> int | None:
    """Number of threads to use while other programs use CPUs; None if no other program does.

    Also None if the user has set the number of threads, or if threads spin less, because then more threads do no harm.
    """
    if {*_USER_SETTINGS, "OMP_NUM_THREADS"} & set(os.environ):
        return None
    idle = _idle_if_busy()
    return None if idle is None else max(1, round(idle))


def _idle_if_busy() -> float | None:
    """Number of idle CPUs if other programs use some; None if no program does, or if unknown."""
    idle = idle_cpus(0.2)
    return idle if idle is not None and idle < (os.cpu_count() or 1) - 0.5 else None


def num_usable_cpus() -> int:
    """Number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def idle_cpus(seconds: float = 0.5) -> float | None:
    """Mean number of idle CPUs in the next `seconds`; None except on Linux."""
    times = []
    for pause in (seconds, 0):
        with suppress(OSError, ValueError):  # Only Linux has this file.
            lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
            rows = [[int(number) for number in line.split()[1:9]] for line in lines if re.match(r"cpu\d", line)]
            times.append((sum(row[3] + row[4] for row in rows), sum(map(sum, rows)), len(rows)))
        time.sleep(pause)
    if len(times) < 2 or times[1][1] == times[0][1]:
        return None
    return (times[1][0] - times[0][0]) / (times[1][1] - times[0][1]) * times[1][2]
