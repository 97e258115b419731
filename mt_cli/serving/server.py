"""The server process: its socket, its signals, and the messages at its start and end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from mt_cli.errors import InputError, RunInterruptedError, reason
from mt_cli.runtime.console import say
from mt_cli.runtime.signals import STOPS, set_handlers
from mt_cli.serving.access import is_loopback
from mt_cli.serving.app import application
from mt_cli.serving.files import remove_temporary_folders
from mt_cli.serving.service import Service

_ALL_ADDRESSES = ("0.0.0.0", "::", "")
_MOST_CONNECTIONS = 500
_MOST_HEAD_BYTES = 2**15
_SECONDS_KEPT_OPEN = 30
"""Time for which a connection stays open without a request."""


class _Server(uvicorn.Server):
    """Server that tells when it answers and what it waits for when it ends, and does not raise again its signals."""

    def __init__(self, service: Service, host: str) -> None:
        super().__init__(server_config(service))
        self._service, self._host = service, host

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            _say_start(self._service, self._host, listener.getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell how many requests are finished first, and finish them. A handler of signals must not print."""
        if number := self._service.num_running:
            say(f"Stopping after {number:,} request{'s' * (number > 1)} ... (a second Ctrl-C stops at once)")
        await super().shutdown(sockets)
        if self.force_exit:  # Uvicorn reports each request that it drops.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Context manager in which SIGINT, SIGTERM and SIGHUP end the server, and a second SIGINT ends it at once.

        SIGHUP stays ignored where it was, as under `nohup`.
        """
        previous = set_handlers(dict.fromkeys(STOPS, self.handle_exit))
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def serve(load: Callable[[], Service], host: str, port: int) -> None:
    """Load models and answer requests until SIGINT or SIGTERM; requests that were accepted are finished.

    Raises InputError, before anything is loaded, if the address cannot be used.
    """
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # It logs each damaged form.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # It warns of each damaged request.
    with bound(host, port) as listener:
        service = load()
        service.prepare()
        server = _Server(service, host)
        try:
            asyncio.run(server.serve([listener]))
        except KeyboardInterrupt:  # Between the handlers of both.
            server.force_exit = True
        service.scheduler.stop()
    if not server.force_exit:
        say("Stopped.")
        return
    say("Stopped at once.")
    remove_temporary_folders()
    sys.stderr.flush()
    os._exit(RunInterruptedError.exit_code)  # The interpreter would wait for the threads of requests.


def server_config(service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        application(service),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        timeout_keep_alive=_SECONDS_KEPT_OPEN,
        timeout_graceful_shutdown=int(service.limits.file_seconds),
        ws="none",
        http="h11",
        loop="asyncio",
    )


def bound(host: str, port: int) -> socket.socket:
    """Listening socket with an address; raises InputError if that is not possible. Clients wait until it is served."""
    listener = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # Only with this protocol does asyncio turn off Nagle's algorithm, which delays answers by 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        if listener is not None:
            listener.close()
        raise InputError(f"--host {host} --port {port}: {reason(error)}; choose another address or port") from None
    return listener


def _say_start(service: Service, host: str, port: int) -> None:
    for model in service.models.models:
        directions = service.models.directions_of(model)
        shown = ", ".join(f"{source} to {target}" for source, target in directions[:8])
        say(f"{model.name}: {shown}{', ...' if len(directions) > 8 else ''}")
    name = socket.gethostname() if host in _ALL_ADDRESSES else host
    name = f"[{name}]" if ":" in name else name
    say(f"Serving on http://{name}:{port} (Ctrl-C stops; interface: http://{name}:{port}/docs)")
    if not is_loopback(host) and not service.keys.digests:
        say("note: every machine that reaches this address can use the server; --keys FILE asks for keys")
