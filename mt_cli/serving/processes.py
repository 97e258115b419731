"""Work on a document in a process of its own: it holds up no other request, and its memory and its time end with it.

Only the search is computed by the server, whose scheduler puts it in batches with those of other requests.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mt_cli.decoding.engine import Engine, RelayedEngine
from mt_cli.documents.translate import Job
from mt_cli.errors import MtError
from mt_cli.runtime.console import say
from mt_cli.runtime.signals import STOPS, set_handlers
from mt_cli.serving.errors import RequestError
from mt_cli.serving.scheduling import Ticket

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])
_SECONDS_BETWEEN_LOOKS = 0.2
_DOCUMENT_BYTES = 2**22
"""Bytes of the documents that are worked on at once; a larger one is worked on alone."""
_LEAST_BYTES = 2**19
"""Bytes that a document counts as at least: the process that works on it needs some memory, too."""
_MEMORY_PER_BYTE = 2**10
"""Memory that the process of a document may take for each byte that counts. Common sentences take a tenth of it, a
single line of millions of short ones half."""
_ROWS_AT_ONCE = 512
"""Rows of a search that are sent at once; unpickling them takes the server some milliseconds."""
_NICENESS = 10
"""Added to the niceness of the server: texts of other requests come before work on a document."""


class Documents:
    """Documents that threads work on: small ones together, a large one alone, first come, first served."""

    def __init__(self) -> None:
        self._free = _DOCUMENT_BYTES
        self._queue: deque[Ticket] = deque()
        self._condition = threading.Condition()

    @contextmanager
    def turn(self, num_bytes: int, ticket: Ticket) -> Iterator[int]:
        """Wait until a document of this unpacked size can be worked on, in a process of the returned number of bytes.

        Raises RequestCancelled.
        """
        num_bytes = min(max(num_bytes, _LEAST_BYTES), _DOCUMENT_BYTES)
        with self._condition:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or self._free < num_bytes:
                    ticket.check()
                    self._condition.wait(_SECONDS_BETWEEN_LOOKS)
                self._free -= num_bytes
            finally:
                self._queue.remove(ticket)
                self._condition.notify_all()
        try:
            yield num_bytes * _MEMORY_PER_BYTE
        finally:
            with self._condition:
                self._free += num_bytes
                self._condition.notify_all()


class Server:
    """The server, as a process of it sees it: a pipe for questions and their answers."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def ask(self, name: str, *arguments: Any) -> Any:
        """Answer to a question; raises RequestError if that is the answer."""
        try:
            self._pipe.send_bytes(pickle.dumps((name, arguments)))
            answer = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionError):  # The server has ended.
            sys.exit(1)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def job(self, job: Job | None) -> Job | None:
        """Job that the server has sent, whose searches are computed by the server."""
        return job and job.with_engines(lambda number: RelayedEngine(partial(self._compute, number)))

    def _compute(self, number: int, method: str, rows: Sequence[Any], *options: Any) -> list[Any]:
        blocks = (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
        return [row for block in blocks for row in self.ask("compute", number, method, block, *options)]


def sent(job: Job | None, engines: list[Engine]) -> Job | None:
    """Copy of a job for a process, which has numbers for engines: their places in `engines`."""

    def number_of(engine: Engine) -> int:
        engines.append(engine)
        return len(engines) - 1

    return job and job.with_engines(number_of)


def start_processes() -> None:
    """Start what starts processes, which imports PyTorch once for all of them."""
    _CONTEXT.Process(target=int).start()


def in_process(
    work: Callable[..., Any],
    arguments: Sequence[Any],
    answers: Mapping[str, Callable[..., Any]],
    ticket: Ticket,
    max_bytes: int,
) -> Any:
    """Result of `work(server, *arguments)` in a process, whose questions to the `Server` get their answers by name.

    Raises RequestError if the work does or, on Linux, needs more than `max_bytes` of memory, and RequestCancelled if
    the request is cancelled, which ends the process.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(theirs, work, arguments, max_bytes), daemon=True)
    try:
        process.start()
        theirs.close()
        while True:
            while not ours.poll(_SECONDS_BETWEEN_LOOKS):
                ticket.check()
            try:
                name, values = pickle.loads(ours.recv_bytes())
            except (EOFError, ConnectionError):  # The system has ended it.
                raise RequestError("the server has too little memory for this file", 503, 10) from None
            if name in ("done", "failed"):
                if name == "failed":
                    raise values
                return values
            try:
                answer = answers[name](*values)
            except MtError as error:
                answer = RequestError.of(error)
            ours.send_bytes(pickle.dumps(answer))
    finally:
        ours.close()
        if process.pid is not None:
            process.kill()
            process.join()


def _limit_memory(max_bytes: int) -> None:
    """Let this process take so many bytes in addition to those that it has."""
    if sys.platform == "linux":
        import resource  # Other systems do not have it.

        num_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        limit = num_pages * resource.getpagesize() + max_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _work(pipe: Connection, work: Callable[..., Any], arguments: Sequence[Any], max_bytes: int) -> None:
    set_handlers(dict.fromkeys(STOPS, signal.SIG_IGN))  # The server finishes what it has begun.
    if sys.platform != "win32":
        os.nice(_NICENESS)
    _limit_memory(max_bytes)
    outcome: tuple[str, Any]
    try:
        outcome = "done", work(Server(pipe), *arguments)
    except MtError as error:
        outcome = "failed", RequestError.of(error)
    except MemoryError:
        outcome = "failed", RequestError("the server has too little memory for this file", 503, 10)
    except Exception as error:
        say(f"mt: a file failed:\n{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}")
        outcome = "failed", RequestError("the server has a problem; its log says more", 500)
    with suppress(ConnectionError):
        pipe.send_bytes(pickle.dumps(outcome))
