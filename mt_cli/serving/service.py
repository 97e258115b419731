"""The work of a server: requests as work in threads, with limits on their number, size and time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from mt_cli.advice.recognition import are_near, rank_languages
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.languages import language_name, primary
from mt_cli.corpus.rows import Pair
from mt_cli.documents.document import MAX_BYTES, Document, Options
from mt_cli.documents.html import html_document
from mt_cli.documents.translate import Job, TranslatedDocument, translate_texts, translated_documents
from mt_cli.errors import MtError
from mt_cli.serving.access import Keys, Rates, client_of
from mt_cli.serving.errors import RequestCancelled, RequestError
from mt_cli.serving.metrics import Metrics
from mt_cli.serving.models import AUTO, CERTAIN, Direction, Models, Route, tag_of_direction
from mt_cli.serving.processes import Documents, start_processes
from mt_cli.serving.scheduling import Scheduler, Ticket, batched_engine
from mt_cli.translation.inline_tags import LIKE_TAG
from mt_cli.translation.texts import TextTranslation

T = TypeVar("T")
_ASCII_OF_CHARACTER = 6
"""Most bytes of a character in JSON, `\\u00e4`."""
_BYTES_BESIDE_TEXT, _RETRY_SECONDS = 2**16, 10
_TURN_SECONDS = 0.0005
"""Longest turn of a thread, 5 ms by default. A request needs some ten, and waits for others before each of them."""
DETECTED_CHARACTERS = 10_000
"""Number of characters of a text of which the language is detected."""


@dataclass(frozen=True)
class Limits:
    """Limits on what a client can ask for."""

    max_characters: int = 20_000
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
        return _ASCII_OF_CHARACTER * self.max_characters + _BYTES_BESIDE_TEXT


@dataclass
class Service:
    """Models, and the means that all requests share."""

    models: Models
    limits: Limits = Limits()
    keys: Keys = field(default_factory=Keys)
    rates: Rates = field(default_factory=Rates)
    allowed_hosts: Sequence[str] = ("*",)
    """Names of the server that requests may use."""
    origins: Sequence[str] = ()
    """Other origins whose pages may use the server."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Options of the section `decoding`, such as `beam_size`."""
    glossaries: Mapping[Direction, Glossary] = field(default_factory=dict)
    """Terms of all requests, by the codes of runs."""
    corrections: Path | None = None
    """File to which corrections are added; None if none are taken."""
    logs_requests: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(on_batch=self.metrics.count_batch)
        self._executor = ThreadPoolExecutor(self.limits.max_requests, "request")
        self.num_running = 0
        self.documents = Documents()
        self.metrics.show("mt_requests_running", "Requests that are worked on or wait.", lambda: self.num_running)
        for model in self.models.models:
            for pair in self.models.directions_of(model):
                self.metrics.models.labels(model.name, *pair, model.engine).set(1)

    def prepare(self) -> None:
        """Let threads take short turns, and load what detects languages and what starts processes in the background."""
        sys.setswitchinterval(_TURN_SECONDS)
        self._executor.submit(rank_languages, "a")
        self._executor.submit(start_processes)

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

        Raises RequestError (429) if too many requests wait, and (504) after the time limit. After that, and if the
        client closes its connection (ClientDisconnect), the ticket is cancelled, at which the work stops.
        """
        if self.num_running >= self.limits.max_requests:
            raise RequestError("the server is busy; try again later", 429, _RETRY_SECONDS)
        ticket = Ticket()
        self.num_running += 1

        def work_unless_cancelled() -> T:
            ticket.check()
            return work(ticket)

        future = asyncio.get_running_loop().run_in_executor(self._executor, work_unless_cancelled)
        future.add_done_callback(self._end)
        watch = asyncio.create_task(_disconnected(request))
        try:
            waiting: set[asyncio.Future[Any]] = {future, watch}
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if watch.done():
                raise ClientDisconnect
            raise RequestError(f"not finished after {seconds:g} seconds; send less text at once", 504)
        finally:
            watch.cancel()
            if not future.done():
                self.scheduler.cancel(ticket)
                future.add_done_callback(_ignore)

    def _end(self, future: object) -> None:
        self.num_running -= 1

    def check_length(self, *texts: str) -> None:
        num_characters, most = sum(map(len, texts)), self.limits.max_characters
        if num_characters > most:
            raise RequestError(f"{num_characters:,} characters are more than {most:,}", 413)

    def check_texts(self, texts: list[str], num_alternatives: int) -> None:
        limits, num_characters = self.limits, sum(map(len, texts))
        if len(texts) > limits.max_texts:
            raise RequestError(f"{len(texts):,} texts are more than {limits.max_texts:,}", 413)
        self.check_length(*texts)
        if num_alternatives > limits.max_alternatives:
            raise RequestError(f"{num_alternatives:,} alternatives are more than {limits.max_alternatives:,}")
        self.metrics.texts.inc(len(texts))
        self.metrics.characters.inc(num_characters)

    def job(self, route: Route, ticket: Ticket, terms: Sequence[Pair] = (), **options: Any) -> Job | None:
        """Translation by the models of a route, computed together with other requests; None if a text stays as it is.

        `options` are those of the search. A model that another one follows gives its best translation alone. Raises
        InputError for `terms` of a client that are none, and RequestError if there are two models.
        """
        job = None
        if terms and len(route.choices) > 1:
            raise RequestError("terms: not used by way of a third language; translate in two steps")
        for choice in reversed(route.choices):
            model, search = (
                choice.model,
                {**self.search, "tag": tag_of_direction(choice.model.translator.tagging, choice.direction)},
            )
            glossary = self.glossaries.get(choice.direction) if model.translator.takes_terms else None
            if terms or glossary:
                search["terms"] = Glossary.of(terms, glossary) if terms else glossary
            translator = model.translator.with_engine(batched_engine(model.translator.engine, self.scheduler, ticket))
            search |= options if len(route.choices) == 1 else {}
            job = Job(translator, search, Options(choice.direction), then=job)
        return job

    def choose(self, source: str | None, target: str | None, name: str | None, text: str) -> Route:
        """Models and direction for a text, whose language is detected unless `source` names it.

        Raises RequestError if no model serves it, or if the target is not given and there are several.
        """
        source, target = source or None, target or None
        if source is None:
            choices = self.models.choose(None, target, name)
            if len({choice.direction.source for choice in choices}) == 1:
                source = choices[0].direction.source
        if source in (None, AUTO):
            return self._detected(target, name, text)
        return self._route(source, target, name)

    def _route(self, source: str, target: str | None, name: str | None) -> Route:
        routes = self.models.routes(source, target, name)
        targets = list(dict.fromkeys(route.direction.target for route in routes))
        if len(targets) > 1 and target is None:
            raise RequestError(f"choose a target: {', '.join(targets)}")
        return routes[0]

    def _detected(self, target: str | None, name: str | None, text: str) -> Route:
        """Route for a text whose language is detected among all languages.

        A text in the target language stays as it is. Raises RequestError, which names the language, for a text in a
        language that is not translated into the target. A text that is not recognised well is taken for the likeliest
        language that is; any text may be in a language that cannot be recognised.
        """
        sources = [choice.direction.source for choice in self.models.choose(None, target, name)]
        ranked = rank_languages(text[:DETECTED_CHARACTERS])
        code, share = ranked[0] if ranked else ("", 0.0)
        source = next((known for known in sources if primary(known) == code), None)
        if source is None and share >= CERTAIN:
            if target and primary(target) == code:
                return Route(Direction(target, target), (), detected_share=share)
            source = next((known for known in sources if are_near(primary(known), code)), None)
            if source is None and {*map(primary, sources)} <= dict(ranked).keys():
                try:
                    return self._route(code, target, name)._replace(detected_share=share)
                except RequestError as error:
                    raise RequestError(f"the text seems to be in {language_name(code)}: {error}") from None
        if source is None:
            shares = {known: share for known in sources for label, share in ranked if label == primary(known)}
            source, share = max(shares.items(), key=itemgetter(1), default=(sources[0], 0.0))
        return self._route(source, target, name)._replace(detected_share=share)

    def rank_languages(self, text: str) -> list[tuple[str, float]]:
        """Languages of a text with their probabilities, the likeliest first, with the codes for clients."""
        served = {primary(code): code for code in reversed(self.models.languages())}
        ranked = rank_languages(text[:DETECTED_CHARACTERS])
        return [(served.get(code, code), share) for code, share in ranked] or [(next(iter(served.values())), 0.0)]


def read_texts(texts: Sequence[str], kind: str) -> Sequence[str | Document]:
    """Texts, or pages if they are `html`; raises DocumentError if a tag is cut off."""
    return [html_document(text) if kind == "html" else text for text in texts]


def plain_text(text: str | Document) -> str:
    """A text, or the texts of a document without tags."""
    if isinstance(text, str):
        return text
    return LIKE_TAG.sub(" ", "\n".join(text for unit in text.units for text in unit.texts))


def translations(
    job: Job | None, texts: Sequence[str | Document], ticket: Ticket
) -> Sequence[TextTranslation] | Sequence[TranslatedDocument]:
    """Translations of texts or of pages, all in one search. Without a job, they stay as they are."""

    def unless_cancelled() -> Iterator[str]:
        for text in plain:
            ticket.check()
            yield text

    plain = [text for text in texts if isinstance(text, str)]
    pages = [text for text in texts if isinstance(text, Document)]
    if not pages:
        return translate_texts(job, unless_cancelled())
    kept = [TranslatedDocument(page.content.encode()) for page in pages]
    return translated_documents(pages, "html", job) if job else kept


async def _disconnected(request: Request) -> None:
    """Wait until the client closes its connection; the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _ignore(future: asyncio.Future[Any]) -> None:
    with suppress(RequestCancelled, asyncio.CancelledError, MtError):
        future.result()
