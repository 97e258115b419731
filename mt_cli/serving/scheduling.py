"""Batches of the searches that many requests ask for at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mt_cli.decoding.engine import Engine, RelayedEngine
from mt_cli.serving.errors import RequestCancelled

_FORCED_BATCH_TOKENS = 2048
_MOST_ROWS_OF_CALL = 64
"""Rows of a call in a batch, so that others soon have their turn."""
_WAITING_SHARE, _WAITING_SECONDS = 0.25, 0.2
"""Longest wait for further calls: a share of the seconds of the last batch, and seconds."""


class Ticket:
    """A request whose calls of engines are scheduled, and which can be cancelled."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def check(self) -> None:
        if self.is_cancelled:
            raise RequestCancelled


@dataclass(eq=False)
class _Call:
    """One call of an engine, whose rows are computed in one or several batches."""

    ticket: Ticket
    key: Hashable
    """Rows of calls with the same key can be in one batch."""
    compute: Callable[[Sequence[Any]], Sequence[Any]]
    rows: Sequence[Any]
    lengths: Sequence[int]
    """Number of source tokens of each row."""
    batch_tokens: int
    pending: deque[int] = field(init=False)
    """Indices of the rows that no batch has taken, longest first, so that batches have little padding."""
    results: dict[int, Any] = field(default_factory=dict)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.pending = deque(sorted(range(len(self.rows)), key=lambda row: -self.lengths[row]))


class Scheduler:
    """A thread that computes the rows of waiting calls in batches.

    A batch takes some rows of each call, first come, first served; a call with further rows waits again behind the
    others. Clients that were just answered often ask again, and a large batch is cheaper than two small ones: twice the
    rows take some ten to fifty percent longer. So a batch waits for as many calls as there were at the end of the last
    one, but not longer than a quarter of the time of that one, and at most 0.2 seconds.
    """

    def __init__(self, on_batch: Callable[[int, int, float], object] = lambda *batch: None) -> None:
        self._on_batch = on_batch
        self._calls: list[_Call] = []
        self._condition = threading.Condition()
        self._waits_until = 0.0
        self._last_num_calls = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def cancel(self, ticket: Ticket) -> None:
        """Drop the calls of a request and raise RequestCancelled in the thread that waits for them."""
        with self._condition:
            ticket.is_cancelled = True
            for call in [call for call in self._calls if call.ticket is ticket]:
                self._finish(call, RequestCancelled())

    def stop(self, seconds: float = 5.0) -> None:
        """Drop all calls and take no more; wait for the end of the thread, but not longer than `seconds`."""
        with self._condition:
            self._is_stopped = True
            for call in list(self._calls):
                self._finish(call, RequestCancelled())
            self._condition.notify_all()
        self._thread.join(seconds)

    def call(
        self,
        ticket: Ticket,
        key: Hashable,
        compute: Callable[[Sequence[Any]], Sequence[Any]],
        rows: Sequence[Any],
        lengths: Sequence[int],
        batch_tokens: int,
    ) -> list[Any]:
        """Wait for the result of each row. Raises RequestCancelled, and errors of `compute`."""
        if not rows:
            return []
        call = _Call(ticket, key, compute, rows, lengths, batch_tokens)
        with self._condition:
            if ticket.is_cancelled or self._is_stopped:
                raise RequestCancelled
            self._calls.append(call)
            self._condition.notify_all()
        call.done.wait()
        if call.error is not None:
            raise call.error
        return [call.results[row] for row in range(len(rows))]

    def _finish(self, call: _Call, error: BaseException | None = None) -> None:
        call.error = error
        call.pending.clear()
        self._calls = [other for other in self._calls if other is not call]
        call.done.set()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._calls and not self._is_stopped:
                    self._condition.wait()
                if not self._calls:
                    return
                while self._calls and not self._is_stopped and len(self._calls) < self._last_num_calls:
                    seconds = self._waits_until - time.monotonic()
                    if seconds <= 0:
                        break
                    self._condition.wait(seconds)
                batch = self._next_batch() if self._calls else []
            if batch:
                self._compute(batch)

    def _next_batch(self) -> list[tuple[_Call, list[int]]]:
        first, num_tokens = self._calls[0], 0
        batch: list[tuple[_Call, list[int]]] = []
        for call in [call for call in self._calls if call.key == first.key]:
            indices: list[int] = []
            while call.pending and len(indices) < _MOST_ROWS_OF_CALL:
                length = call.lengths[call.pending[0]]
                if num_tokens and num_tokens + length > first.batch_tokens:
                    break
                indices.append(call.pending.popleft())
                num_tokens += length
            if indices:
                batch.append((call, indices))
        served = [call for call, _ in batch]
        self._calls = [call for call in self._calls if call not in served] + served
        return batch

    def _compute(self, batch: Sequence[tuple[_Call, list[int]]]) -> None:
        """Compute a batch; if that fails, compute each call alone, so that only the call with the error fails."""
        started_at = time.monotonic()
        compute = batch[0][0].compute
        try:
            results = iter(compute([call.rows[index] for call, indices in batch for index in indices]))
            outcomes: list[Any] = [[next(results) for _ in indices] for _, indices in batch]
        except Exception as error:
            outcomes = [error] if len(batch) == 1 else []
        if not outcomes:  # Not in the handler, where the error still holds the memory of the failed batch.
            for part in batch:
                self._compute([part])
            return
        seconds = time.monotonic() - started_at
        num_tokens = sum(call.lengths[index] for call, indices in batch for index in indices)
        self._on_batch(sum(len(indices) for _, indices in batch), num_tokens, seconds)
        with self._condition:
            self._last_num_calls = len(self._calls)
            self._waits_until = time.monotonic() + min(_WAITING_SHARE * seconds, _WAITING_SECONDS)
            for (call, indices), outcome in zip(batch, outcomes, strict=True):
                if call.done.is_set():
                    continue
                if isinstance(outcome, Exception):
                    self._finish(call, outcome)
                    continue
                call.results.update(zip(indices, outcome, strict=True))
                if len(call.results) == len(call.rows):
                    self._finish(call)


def batched_engine(engine: Engine, scheduler: Scheduler, ticket: Ticket) -> Engine:
    """Engine whose calls are computed together with the calls of other requests.

    The results are those of a call alone, but for rounding.
    """

    def compute(method: str, rows: Sequence[Any], *options: Any) -> list[Any]:
        if method == "search":
            decoding, num_best = options
            lengths = [len(sentence.ids) + 1 for sentence in rows]
            batch_tokens = max(1, decoding.batch_tokens // max(decoding.beam_size, num_best))
        else:
            lengths, batch_tokens = [max(map(len, pair)) + 1 for pair in rows], _FORCED_BATCH_TOKENS
        key, work = (id(engine), method, *map(str, options)), getattr(engine, method)
        return scheduler.call(ticket, key, lambda some: work(some, *options), list(rows), lengths, batch_tokens)

    return RelayedEngine(compute)
