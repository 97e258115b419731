"""A parallel map, and the CPUs that this process may use. Imports no torch."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
U = TypeVar("U")


def in_threads(work: Callable[[T], U], items: Iterable[T], num_threads: int = 2) -> Iterator[U]:
    """Call `work` on items in threads, a few items ahead of the caller; yield the results in order."""
    from concurrent.futures import ThreadPoolExecutor  # Slow to import, and `mt --help` does not need it.

    with ThreadPoolExecutor(num_threads) as pool:
        waiting: deque[Future[U]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > num_threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # The caller may need no more results.
            for future in waiting:
                future.cancel()


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """Items in order; the next one is made in a thread while the caller works on one."""
    end = object()
    for item in in_threads(lambda _: next(items, end), repeat(None), num_threads=1):
        if item is end:
            return
        yield cast("T", item)


def limit_threads(number: int | None) -> int:
    """Limit the threads of `tokenizers`; return the given number, or a thread per core, or 0 with OMP_NUM_THREADS.

    0 leaves the number to a library that reads this variable.
    """
    if number is not None:
        os.environ["RAYON_NUM_THREADS"] = str(number)  # `tokenizers` reads it when it first encodes a batch.
        return number
    return 0 if "OMP_NUM_THREADS" in os.environ else num_usable_cores()


def num_usable_cores() -> int:
    """Number of cores that this process may use; on Linux, CPUs that share a core count once."""
    cpus = os.sched_getaffinity(0) if sys.platform == "linux" else ()
    paths = (Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus)
    cores = {path.read_bytes() for path in paths if path.exists()}
    return min(num_usable_cpus(), len(cores) or num_usable_cpus())


def num_usable_cpus() -> int:
    """Number of CPUs that this process may use, which the quota of a container (cgroup v2) can limit."""
    number = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # There is no such file, or its quota is `max`.
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split())
        number = min(number, -(-quota // period))
    return max(1, number)
