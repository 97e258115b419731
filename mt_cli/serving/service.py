"""The work of a server: requests as work in threads, with limits on their number, size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from mt_cli.advice.recognition import rank_languages
from mt_cli.documents.document import MAX_BYTES
from mt_cli.serving.access import Hosts, Keys, Rates, client_of
from mt_cli.serving.errors import GivenUpError, RequestError
from mt_cli.serving.metrics import Metrics
from mt_cli.serving.models import AUTO, Choice, Models, ServedModel
from mt_cli.serving.scheduling import BatchedEngine, Scheduler, Ticket
from mt_cli.translation.translator import Translator

T = TypeVar("T")
COUNTED = "mt.is_counted"
"""Key in the scope of a request that the scheduler counts until it is answered."""
_ASCII_OF_CHARACTER = 6
"""Most bytes of a character in JSON, `\\u00e4`."""
_BYTES_BESIDE_TEXT = 2**16
_CERTAIN = 0.5
"""Probability from which a detected language is believed against the target of a request."""
_MOST_BYTES_AT_ONCE = 2**28
_RETRY_SECONDS = 10


@dataclass(frozen=True)
class Limits:
    """Limits on what a client can ask for."""

    max_characters: int = 20_000
    """Characters of the texts of a request."""
    max_texts: int = 1_000
    max_alternatives: int = 10
    max_file_bytes: int = MAX_BYTES
    max_requests: int = 128
    """Requests that are worked on or wait."""
    body_seconds: float = 30.0
    """Time for sending a request with texts."""
    text_seconds: float = 60.0
    """Time for answering a request with texts."""
    file_seconds: float = 900.0
    """Time for sending a file, and for translating it."""

    @property
    def max_body_bytes(self) -> int:
        """Bytes of a request with texts."""
        return _ASCII_OF_CHARACTER * self.max_characters + _BYTES_BESIDE_TEXT


@dataclass
class Service:
    """Models, and the means that all requests share."""

    models: Models
    limits: Limits = Limits()
    keys: Keys = field(default_factory=Keys)
    rates: Rates = field(default_factory=Rates)
    hosts: Hosts = field(default_factory=lambda: Hosts(None))
    search: Mapping[str, Any] = field(default_factory=dict)
    """Options of the section `decoding`, such as `beam_size`."""
    max_wait_seconds: float = 0.005
    logs_requests: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.max_wait_seconds, self.metrics.count_batch)
        self._executor = ThreadPoolExecutor(self.limits.max_requests, "request")
        self.num_running = 0
        self._num_bytes = 0

    def prepare_detection(self) -> None:
        """Load the model that detects languages in the background, if there are several to detect."""
        if len({pair.source for pair in self.models.directions}) > 1:
            self._executor.submit(rank_languages, "", ())

    def close(self) -> None:
        """End the threads, after the work that has begun."""
        self._executor.shutdown()
        self.scheduler.stop()

    def admit(self, request: Request, key: str | None) -> None:
        """Raise RequestError unless a client has a valid key and has not sent too many requests.

        Requests with a wrong key count for their address, which would otherwise have a new rate for each.
        """
        address = request.client.host if request.client else ""
        self.rates.check(client_of(address, key if self.keys.knows(key) else None))
        self.keys.check(key)

    async def run(self, request: Request, work: Callable[[Ticket], T], seconds: float) -> T:
        """Result of `work` in a thread.

        Raises RequestError (429) if too many requests wait, and (504) after the time limit. If the client closes its
        connection, the work is dropped and ClientDisconnect is raised.
        """
        if self.num_running >= self.limits.max_requests:
            raise RequestError("the server is busy; try again later", 429, _RETRY_SECONDS)
        ticket = Ticket()
        self.num_running += 1
        self.scheduler.count_requests(1)
        request.scope[COUNTED] = True
        future = asyncio.get_running_loop().run_in_executor(self._executor, work, ticket)
        future.add_done_callback(self._end)
        watch = asyncio.create_task(_disconnected(request))
        try:
            waiting: set[asyncio.Future[Any]] = {future, watch}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            self.scheduler.give_up(ticket)
            future.add_done_callback(_ignore)
            if watch.done():
                raise ClientDisconnect
            raise RequestError(f"not finished after {seconds:g} seconds; send less text at once", 504)
        except asyncio.CancelledError:
            self.scheduler.give_up(ticket)
            future.add_done_callback(_ignore)
            raise
        finally:
            watch.cancel()

    def _end(self, future: object) -> None:
        self.num_running -= 1

    def check_texts(self, texts: list[str], num_alternatives: int) -> None:
        """Raise RequestError for too many texts, characters or alternatives."""
        limits, num_characters = self.limits, sum(map(len, texts))
        if len(texts) > limits.max_texts:
            raise RequestError(f"{len(texts):,} texts are more than {limits.max_texts:,}", 413)
        if num_characters > limits.max_characters:
            raise RequestError(f"{num_characters:,} characters are more than {limits.max_characters:,}", 413)
        if num_alternatives > limits.max_alternatives:
            raise RequestError(f"{num_alternatives:,} alternatives are more than {limits.max_alternatives:,}")
        self.metrics.count("mt_texts_total", len(texts))
        self.metrics.count("mt_characters_total", num_characters)

    def translator(self, model: ServedModel, ticket: Ticket) -> Translator:
        """Translator of a model whose searches are computed together with those of other requests."""
        return replace(model.translator, engine=BatchedEngine(model.translator.engine, self.scheduler, ticket))

    def choose(
        self, source: str | None, target: str | None, name: str | None, text: str
    ) -> tuple[Choice, float | None]:
        """Model and direction for a request, and the confidence of the detection (0-100) if the source is detected.

        Raises RequestError if no model serves it, or if the target is not given and there are several.
        """
        source, target = source or None, target or None
        if source in (None, AUTO):
            choices = self.models.choose(None, target, name)
            if source == AUTO or len({choice.direction.source for choice in choices}) > 1:
                source, confidence = self._detect(text, choices, name)
                choices = [choice for choice in choices if choice.direction.source == source]
            else:
                confidence = None
        else:
            choices, confidence = self.models.choose(source, target, name), None
        targets = list(dict.fromkeys(choice.direction.target for choice in choices))
        if len(targets) > 1 and target is None:
            raise RequestError(f"choose a target: {', '.join(map(self.models.client_code, targets))}")
        return choices[0], confidence

    def _detect(self, text: str, choices: Sequence[Choice], name: str | None) -> tuple[str, float]:
        """Likeliest source language among the choices, and its probability in percent.

        Raises RequestError if the text is rather in a language that a model reads, but does not translate into the
        target.
        """
        sources = list(dict.fromkeys(choice.direction.source for choice in choices))
        others = [choice.direction.source for choice in self.models.choose(None, None, name)]
        ranked = rank_languages(text, list(dict.fromkeys([*sources, *others])))
        if ranked and ranked[0][0] not in sources and ranked[0][1] >= _CERTAIN:
            language = self.models.client_code(ranked[0][0])
            raise RequestError(f"the text seems to be in {language}, which is not translated into this target")
        source, share = next((row for row in ranked if row[0] in sources), (sources[0], 0.0))
        return source, round(100 * share, 1)

    def reserve(self, num_bytes: int) -> None:
        """Count bytes that a request holds in memory; raise RequestError (429) if all requests hold too many."""
        if self._num_bytes + num_bytes > _MOST_BYTES_AT_ONCE:
            raise RequestError("the server is busy with other files; try again later", 429, _RETRY_SECONDS)
        self._num_bytes += num_bytes

    def release(self, num_bytes: int) -> None:
        """Forget bytes that `reserve` counted."""
        self._num_bytes -= num_bytes


async def _disconnected(request: Request) -> None:
    """Wait until the client closes its connection; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _ignore(future: asyncio.Future[Any]) -> None:
    """Take the result of work that was given up, and raise errors that are bugs."""
    with suppress(GivenUpError, asyncio.CancelledError):
        future.result()
