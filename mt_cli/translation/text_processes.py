"""Processes that prepare lines and join translations, while this process keeps a GPU busy with the search.

A process prepares some 8,000 lines a second, and a GPU translates several times as many.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from mt_cli.decoding.engine import RelayedEngine
from mt_cli.errors import MtError
from mt_cli.runtime.cpus import num_usable_cpus
from mt_cli.translation.stream import TextWork, TranslatedLine

_CONTEXT = get_context("forkserver")
_FEWEST_LINES = 512
"""Blocks of fewer lines are not worth a process, which takes seconds to start."""
_MOST_PROCESSES = 8


def num_text_processes(num_sharing: int = 1) -> int:
    """Number of processes that are worth starting beside a GPU; `num_sharing` processes share the CPUs. 0: none."""
    number = min(_MOST_PROCESSES, num_usable_cpus() // num_sharing - 1)
    return number if number > 1 else 0


class TextProcesses:
    """`TextWork` in processes, whose searches the calling thread computes with the engine of the work.

    Several threads may call it. Small blocks are computed in the thread. Processes end with this one.
    """

    def __init__(self, work: TextWork, number: int) -> None:
        self._work, self._free = work, SimpleQueue[Connection | None]()
        for _ in range(number):
            self._free.put(None)
        _CONTEXT.set_forkserver_preload([__name__])  # Imports PyTorch once, while the first blocks are translated.
        forkserver.ensure_running()

    def __call__(self, lines: Sequence[str]) -> list[TranslatedLine]:
        """Raises MtError if the work does, and EOFError if a process has ended."""
        if len(lines) < _FEWEST_LINES:
            return self._work(lines)
        pipe = self._free.get()
        try:
            pipe = pipe or self._started()
            _send(pipe, lines)
            while True:
                name, value = pickle.loads(pipe.recv_bytes())
                if name == "failed":
                    raise value
                if name == "done":
                    return value  # type: ignore[no-any-return]
                _send(pipe, getattr(self._work.translator.engine, name)(*value))
        finally:
            self._free.put(pipe)

    def _started(self) -> Connection:
        ours, theirs = _CONTEXT.Pipe()
        engine = RelayedEngine(partial(_ask, theirs))
        work = replace(self._work, translator=self._work.translator.with_engine(engine))
        _CONTEXT.Process(target=_serve, args=(theirs, work), daemon=True).start()
        theirs.close()
        return ours


def _ask(pipe: Connection, method: str, *arguments: Any) -> Any:
    """Results of a method of the engine at the other end of a pipe."""
    _send(pipe, (method, arguments))
    return pickle.loads(pipe.recv_bytes())


def _send(pipe: Connection, value: object) -> None:
    pipe.send_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # `send` would share the memory of tensors.


def _serve(pipe: Connection, work: TextWork) -> None:
    """Work on blocks until the other process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the other process, which terminates this one.
    with suppress(EOFError, ConnectionError):
        while True:
            lines = pickle.loads(pipe.recv_bytes())
            try:
                answer: tuple[str, Any] = "done", work(lines)
            except MtError as error:
                answer = "failed", error
            _send(pipe, answer)
