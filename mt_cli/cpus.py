"""CPUs that other programs use too. Knows no torch, so that it can be asked before torch is loaded. Linux only.

The threads of a parallel operation wait for each other at its end. libgomp, which PyTorch uses on CPUs, has them
spin for milliseconds before they sleep. Beside another program that takes the CPU from the thread they wait for: two
threads on two CPUs did 4.7 steps a second alone, 1.5 beside one program, and 2.4 if they spin less
(`docs/benchmarks.md`).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_THREADS = 2


def spin_less_if_busy() -> None:
    """Have threads sleep sooner if CPUs are in use now; no effect where the user has set that, or torch is loaded."""
    if "torch" in sys.modules or {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        return
    idle = idle_cpus(_SECONDS_LOOKED_AT)
    if idle is not None and idle < (os.cpu_count() or 1) - 0.5:
        os.environ["GOMP_SPINCOUNT"] = _FEW_SPINS


_SECONDS_LOOKED_AT = 0.2
_FEW_SPINS = "1000"


class CpuContention:
    """How much of their time this process' threads wait for a CPU that other programs use. Linux only."""

    def __init__(self) -> None:
        self._before = _seconds_on_cpus()

    def waiting_share(self) -> float | None:
        """Share, 0 to 1, of the time since this was last asked that threads ready to run had no CPU.

        None if they have been ready for less than ten seconds, which are counted on, or the system does not say.
        """
        now = _seconds_on_cpus()
        running, waiting = (max(0.0, after - before) for after, before in zip(now, self._before, strict=True))
        if running + waiting < _SECONDS_WORTH_A_SHARE:
            return None
        self._before = now
        return waiting / (running + waiting)


_SECONDS_WORTH_A_SHARE = 10.0


def idle_cpus(seconds: float = 0.5) -> float | None:
    """How many CPUs have nothing to do, the mean of so many seconds from now; None where the system does not say."""
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


def _seconds_on_cpus() -> tuple[float, float]:
    """How long the threads of this process have run on CPUs, and how long they have waited for one."""
    times = [0, 0]
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # A thread that has ended meanwhile.
            running, waiting, _ = map(int, path.read_text(encoding="ascii").split())
            times = [times[0] + running, times[1] + waiting]
    return times[0] / 1e9, times[1] / 1e9


def in_threads(work: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """`map` in threads, a few items ahead, results in order."""
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[U]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
