"""Batches of the searches that many requests ask for at once. Knows engines and ids; does not know text or HTTP."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, ForcedDecoding, Ids, Sentence
from mt_cli.decoding.search import Hypothesis
from mt_cli.serving.errors import GivenUpError

_WAITING_SHARE = 0.25
"""Longest wait for further calls, as a share of the time of the last batch."""
_FORCED_BATCH_TOKENS = 2048
_MOST_ROWS_OF_CALL = 64
"""Rows of a call in a batch, so that others soon have their turn."""


class Ticket:
    """A request whose calls of engines are scheduled, and whether it is given up."""

    def __init__(self) -> None:
        self.is_given_up = False


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

    A batch may wait until nothing has happened for `max_wait_seconds`; see `_seconds_to_wait`. It takes rows of the
    waiting calls in turn, and begins with the call that has waited longest.
    """

    def __init__(self, max_wait_seconds: float = 0.005, on_batch: Callable[[int, int, float], object] | None = None):
        self._max_wait_seconds = max_wait_seconds
        self._on_batch = on_batch or (lambda num_rows, num_tokens, seconds: None)
        self._calls: list[_Call] = []
        """Calls that wait, the one that was served last at the end."""
        self._condition = threading.Condition()
        self._last_seconds = self._last_ended_at = self._last_event_at = 0.0
        self._last_num_calls = self._num_requests = 0
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the calls that wait."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        self._thread.join()

    @property
    def num_waiting_tokens(self) -> int:
        """Number of source tokens of the rows that no batch has taken."""
        with self._condition:
            return sum(call.lengths[row] for call in self._calls for row in call.pending)

    def count_requests(self, change: int) -> None:
        """Count a request that has begun (1) or ended (-1), so that batches wait for the calls of others."""
        with self._condition:
            self._num_requests += change
            self._last_event_at = time.monotonic()
            self._condition.notify_all()

    def give_up(self, ticket: Ticket) -> None:
        """Drop the calls of a request and raise GivenUpError in the threads that wait for them."""
        with self._condition:
            ticket.is_given_up = True
            for call in [call for call in self._calls if call.ticket is ticket]:
                self._finish(call, GivenUpError())

    def give_up_all(self, seconds: float = 5.0) -> None:
        """Drop all calls and take no more; wait for the end of the thread, but not longer than `seconds`."""
        with self._condition:
            self._is_stopped = True
            for call in list(self._calls):
                self._finish(call, GivenUpError())
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
        """Wait for the result of each row. Raises GivenUpError if the request is given up, and errors of `compute`."""
        if not rows:
            return []
        call = _Call(ticket, key, compute, rows, lengths, batch_tokens)
        with self._condition:
            if ticket.is_given_up or self._is_stopped:
                raise GivenUpError
            self._calls.append(call)
            self._last_event_at = time.monotonic()
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
                while self._calls and (seconds := self._seconds_to_wait()) > 0:
                    self._condition.wait(seconds)
                batch = self._next_batch() if self._calls else []
            if batch:
                self._compute(batch)

    def _seconds_to_wait(self) -> float:
        """Time until the next batch begins.

        Clients that were just answered often ask again, and a large batch is cheaper than two small ones. So wait until
        as many calls are there as at the end of the last batch, or nothing happens for a while, but only for a share of
        the time of that batch.
        """
        if len(self._calls) >= self._last_num_calls or self._is_stopped:
            return 0.0
        until = self._last_ended_at + max(self._max_wait_seconds, _WAITING_SHARE * self._last_seconds)
        if len({call.ticket for call in self._calls}) >= self._num_requests:  # No other request prepares a call.
            until = min(until, self._last_event_at + self._max_wait_seconds)
        return until - time.monotonic()

    def _next_batch(self) -> list[tuple[_Call, list[int]]]:
        """Rows of the next batch, by call: a row of each call in turn until the batch is full."""
        first = self._calls[0]
        batch: dict[_Call, list[int]] = {call: [] for call in self._calls if call.key == first.key}
        turns = [call for _ in range(_MOST_ROWS_OF_CALL) for call in batch]
        num_tokens = 0
        for call in turns:
            if not call.pending:
                continue
            length = call.lengths[call.pending[0]]
            if num_tokens and num_tokens + length > first.batch_tokens:
                break
            batch[call].append(call.pending.popleft())
            num_tokens += length
        served = [call for call, indices in batch.items() if indices]
        self._calls = [call for call in self._calls if call not in served] + served
        return [(call, batch[call]) for call in served]

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
            self._last_seconds, self._last_ended_at = seconds, time.monotonic()
            self._last_event_at = self._last_ended_at
            for (call, indices), outcome in zip(batch, outcomes, strict=True):
                if call.done.is_set():
                    continue
                if isinstance(outcome, Exception):
                    self._finish(call, outcome)
                    continue
                call.results.update(zip(indices, outcome, strict=True))
                if len(call.results) == len(call.rows):
                    self._finish(call)


@dataclass(frozen=True)
class BatchedEngine:
    """Engine whose calls are computed together with the calls of other requests; see `Engine`."""

    engine: Engine
    scheduler: Scheduler
    ticket: Ticket

    def search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """See `Engine`. The results are those of a search alone, but for rounding."""
        search = partial(self.engine.search, decoding=decoding, num_best=num_best)
        key = (id(self.engine), "search", decoding.model_dump_json(), num_best)
        num_beams = max(decoding.beam_size, num_best)
        lengths = [len(sentence.ids) + 1 for sentence in sentences]
        return self._call(key, search, list(sentences), lengths, max(1, decoding.batch_tokens // num_beams))

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`."""
        return self._of_pairs("force_decode", self.engine.force_decode, pairs)

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Tensor]:
        """See `Engine`."""
        return self._of_pairs("attend", self.engine.attend, pairs)

    def _of_pairs(self, name: str, compute: Callable[[Any], Any], pairs: Sequence[tuple[Ids, Ids]]) -> list[Any]:
        lengths = [max(map(len, pair)) + 1 for pair in pairs]
        return self._call((id(self.engine), name), compute, list(pairs), lengths, _FORCED_BATCH_TOKENS)

    def _call(self, key: Hashable, compute: Callable[[Any], Any], *rows_and_limit: Any) -> list[Any]:
        return self.scheduler.call(self.ticket, key, compute, *rows_and_limit)
