"""The ASGI application: routes, and what every request passes through."""

from __future__ import annotations

import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mt_cli.errors import DeviceMemoryError, MtError
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import is_out_of_memory
from mt_cli.serving import libretranslate, native
from mt_cli.serving.errors import Answer, RequestCancelled, RequestError
from mt_cli.serving.files import FileStore
from mt_cli.serving.libretranslate import key_of, service_of
from mt_cli.serving.metrics import CONTENT_TYPE
from mt_cli.serving.openapi import description_page, openapi
from mt_cli.serving.service import Service

PAGE = Path(__file__).with_name("page")
_CONTENT_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect")),
        "img-src 'self' data:",
        *(f"{rule} 'none'" for rule in ("form-action", "base-uri", "frame-ancestors")),
    ]
)
_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "X-Frame-Options": "DENY",
}
_CLOSED_REQUEST = 499
"""Status in the log and the metrics of a request whose client has closed the connection."""


def application(service: Service) -> Starlette:
    middleware = [Middleware(_Gate, service=service)]
    if "*" not in service.allowed_hosts:
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=service.allowed_hosts, www_redirect=False))
    if service.origins:
        headers = ["authorization", "content-type"]
        cors = partial(CORSMiddleware, allow_methods=["GET", "POST"], allow_headers=headers)
        middleware.append(Middleware(cors, allow_origins=service.origins))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        app.state.files = FileStore()
        yield
        service.close()
        app.state.files.close()

    handlers = {HTTPException: _answer_without_route}
    app = Starlette(routes=_routes(), middleware=middleware, lifespan=lifespan, exception_handlers=handlers)
    app.state.service = service
    return app


def _routes() -> Sequence[BaseRoute]:
    get, post = ["GET"], ["POST"]
    return [
        Route("/", _answered(_page), methods=get),
        Route("/languages", _answered(libretranslate.languages), methods=get),
        Route("/translate", _answered(libretranslate.translate), methods=post),
        Route("/detect", _answered(libretranslate.detect), methods=post),
        Route("/translate_file", _answered(libretranslate.translate_upload), methods=post),
        Route("/download_file/{token}", _answered(libretranslate.download), methods=get, name="download"),
        Route("/suggest", _answered(libretranslate.suggest), methods=post),
        Route("/health", _answered(libretranslate.health), methods=get),
        Route("/frontend/settings", _answered(libretranslate.frontend_settings), methods=get),
        Route("/v1/models", _answered(native.models), methods=get),
        Route("/v1/translate", _answered(native.translate), methods=post),
        Route("/v1/corrections", _answered(native.corrections), methods=post),
        Route("/metrics", _answered(_metrics), methods=get),
        Route("/openapi.json", _answered(_openapi), methods=get),
        Route("/docs", _answered(_docs), methods=get),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]


async def _page(request: Request) -> Response:
    return FileResponse(PAGE / "index.html")


async def _metrics(request: Request) -> Response:
    service = service_of(request)
    service.keys.check(key_of(request))
    return Response(service.metrics.exposition(), media_type=CONTENT_TYPE)


async def _openapi(request: Request) -> Response:
    return Answer(openapi(service_of(request).limits))


async def _docs(request: Request) -> Response:
    return Response(description_page(service_of(request).limits), media_type="text/html")


def _answered(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Handler whose errors are answers in JSON; other exceptions are reported in the log and hidden from clients."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            return _refusal(str(error), error.status, error.retry_seconds, error.columns)
        except (MemoryError, DeviceMemoryError):
            return _too_little_memory()
        except MtError as error:
            return _refusal(str(error), 400)
        except (RequestCancelled, ClientDisconnect):
            return _refusal("cancelled", _CLOSED_REQUEST)
        except HTTPException:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                return _too_little_memory()
            # Its message can have text of the client, which is not logged.
            say(f"mt: a request failed:\n{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}")
            return _refusal("the server has a problem; its log says more", 500)
        finally:
            if form := getattr(request.state, "form", None):
                await form.close()

    return answer


def _too_little_memory() -> Response:
    return _refusal("the server has too little memory for this request", 503, 10)


def _refusal(message: str, status: int, retry_seconds: int | None = None, columns: Sequence[str] = ()) -> Response:
    headers = {"Retry-After": str(retry_seconds)} if retry_seconds is not None else {}
    return Answer({"error": message} | ({"columns": columns} if columns else {}), status, headers)


def _answer_without_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = {404: "there is no such path", 405: "this path has another method"}.get(status, "the request is wrong")
    return _refusal(f"{message}; see /docs", status)


class _Gate:
    """Checks of every request, security headers of every answer, and its line in the log."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at, status = time.monotonic(), 500

        async def send_checked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check_origin(scope)
        except RequestError as error:
            await _refusal(str(error), error.status)(scope, receive, send_checked)
        else:
            await self._app(scope, receive, send_checked)
        finally:
            seconds = time.monotonic() - started_at
            route = scope.get("route")
            path = route.path if route else "other"  # The log does not show what a stranger asks for.
            self._service.metrics.requests.labels(path, str(status)).inc()
            self._service.metrics.request_seconds.observe(seconds)
            if self._service.logs_requests:
                client = scope["client"][0] if scope.get("client") else "-"
                say(f"{client} {scope['method']} {path} {status} {1000 * seconds:.0f} ms")

    def _check_origin(self, scope: Scope) -> None:
        """Raise RequestError if a page of another site asks for work: it could use a server of this machine alone."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        is_own = origin is None or origin.partition("://")[2] == headers.get("host", "")
        if not is_own and origin not in self._service.origins and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            raise RequestError("pages of other sites may not use this server; see --cors", 403)
