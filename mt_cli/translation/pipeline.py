"""A pipeline over blocks of text: threads read, encode, decode and write, while the calling thread computes.

Only the calling thread uses the engine, so Ctrl-C interrupts a search, and a GPU or the threads of PyTorch have one
user. The other threads wait for its results:

    reader      | block 3 | block 4 |
    workers     | block 2: encode, wait, decode, write | block 3: encode ...
    this thread | search of block 1 | search of block 2 |
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mt_cli.decoding.engine import Engine, RelayedEngine

Block = TypeVar("Block")
Result = TypeVar("Result")
MOST_BLOCKS = 3
"""Default number of blocks in memory: one that is searched, one before it and one after it."""
_Call = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]
"""A call for the main thread: its result, the function, and the arguments."""


@dataclass(frozen=True)
class Pipeline:
    """Runs blocks through `work` in threads, and calls of engines in the thread that calls `run`."""

    num_blocks: int = MOST_BLOCKS
    """Number of blocks in memory, each in a thread."""
    _calls: SimpleQueue[_Call] = field(default_factory=SimpleQueue)
    _is_closed: threading.Event = field(default_factory=threading.Event)

    def queued(self, engine: Engine) -> Engine:
        """Engine whose calls are made in the thread that calls `run`."""
        return RelayedEngine(lambda method, *arguments: self.call(getattr(engine, method), *arguments))

    def run(self, blocks: Iterable[Block], work: Callable[[Block], Result], write: Callable[[Result], object]) -> None:
        """Call `work` with each block, and `write` with each result, one at a time and in the order of the blocks.

        The first error, of the blocks, `work`, `write` or an engine, is raised after the results of earlier blocks are
        written. A pipeline runs once.
        """
        free, begun, end = threading.Semaphore(self.num_blocks), deque[Future[None]](), Future[None]()

        def read() -> None:
            previous = None
            try:
                for block in blocks:
                    free.acquire()
                    if self._is_closed.is_set():
                        break
                    previous = pool.submit(process, block, previous)
                    begun.append(previous)
                    previous.add_done_callback(wake)
                end.set_result(None)
            except BaseException as error:
                end.set_exception(error)
            wake()

        def process(block: Block, previous: Future[None] | None) -> None:
            result = work(block)
            if previous is not None:
                previous.result()
            write(result)

        def wake(done: object = None) -> None:
            self._calls.put((Future(), lambda: None, ()))

        with ThreadPoolExecutor(self.num_blocks, "text") as pool:
            # A read of a silent pipe cannot be interrupted, and must not keep the process alive.
            threading.Thread(target=read, name="reader", daemon=True).start()
            try:
                while begun or not end.done():
                    _compute(*self._calls.get())
                    while begun and begun[0].done():
                        begun.popleft().result()
                        free.release()
                end.result()
            finally:
                self._is_closed.set()
                with suppress(Empty):
                    while True:
                        self._calls.get_nowait()[0].cancel()
                free.release()

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Result of a function that the thread of `run` calls; raises CancelledError if `run` has ended."""
        future = Future[Result]()
        self._calls.put((future, function, arguments))
        if self._is_closed.is_set():
            future.cancel()
        return future.result()


def _compute(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    except BaseException:  # Ctrl-C.
        future.cancel()
        raise
