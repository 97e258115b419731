"""Errors of the Hugging Face hub's client: one retry, and one-line messages that say what to do."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from urllib.request import getproxies

from mt_cli.errors import InputError, MtError, one_line
from mt_cli.machine.console import say

Kind = Literal["dataset", "model"]
T = TypeVar("T")

_WAIT_SECONDS, MAX_WAIT_SECONDS = 2, 60
"""Wait before the second attempt, and longest one for which the hub may ask."""
_BUSY = (408, 429, 500, 502, 503, 504)
_AGAIN = "{problem}; run the command again"
LOGIN_HINT = "a network that asks to log in may have answered: run the command again"


def _messages() -> list[tuple[Any, type[MtError], str]]:
    """Error types or response statuses of the client, our error types, and messages; the first match counts."""
    from huggingface_hub import errors

    http = _http_library()
    no_address = (http.InvalidURL, http.UnsupportedProtocol)
    not_a_hub = (errors.FileMetadataError, json.JSONDecodeError)
    xet = getattr(errors, "XetDownloadError", RuntimeError)
    offline = "is not downloaded, and HF_HUB_OFFLINE is set; run the command once without it{note}"
    revision = "has no such revision; use a branch, a tag or a commit of {page}/commits/main"
    repository = "not found on the hub; check the name ({page}); if it is private, {token}{note}"
    return [
        (errors.OfflineModeIsEnabled, InputError, offline),
        (errors.GatedRepoError, InputError, "its owner gives access on request, at {page}; {token}"),
        (errors.RevisionNotFoundError, InputError, revision),
        (errors.RepositoryNotFoundError, InputError, repository),
        (errors.RemoteEntryNotFoundError, MtError, "one of its files is not there ({text})"),
        (errors.HFValidationError, InputError, "not an id of the hub, which has the form `owner/name`{note}"),
        (401, InputError, "the hub refuses the token (HF_TOKEN, or the saved one); use a valid one, or none"),
        (429, MtError, "{problem}; with a token (HF_TOKEN) it allows more"),
        (errors.HfHubHTTPError, MtError, _AGAIN),
        (no_address, InputError, "HF_ENDPOINT is not an address such as https://huggingface.co"),
        (_timeouts(), MtError, "{problem}; check the network, and run the command again{note}"),
        (http.TransportError, MtError, _AGAIN),
        (not_a_hub, MtError, f"the answer is not that of a hub; {LOGIN_HINT}"),
        (UnicodeEncodeError, InputError, "HF_TOKEN, or the saved token, has a character that no token has"),
        (xet, MtError, "the download failed ({text}); run the command again"),
    ]


@contextmanager
def hub_errors(kind: Kind, name: str, note: str = "") -> Iterator[None]:
    """Context manager that turns errors of the client into InputError or MtError; other errors pass.

    The first cause of an error that is in the table counts. `note` is appended if a repository was not found.
    """
    from huggingface_hub import get_token

    try:
        yield
    except MtError:
        raise
    except Exception as error:
        page = f"{_endpoint()}/{'datasets/' if kind == 'dataset' else ''}{name}"
        token = "set HF_TOKEN to a token of your account, or run `hf auth login`"
        if get_token():
            token = "the account of your token has no access"
        for cause in _causes(error):
            for key, error_class, message in _messages():
                if _status_of(cause) == key if isinstance(key, int) else isinstance(cause, key):
                    text = {"problem": _problem_of(cause), "text": one_line(cause), "page": page, "token": token}
                    raise error_class(f"{kind} {name}: {message.format(note=note, **text)}") from error
        raise


def retry(request: Callable[[], T]) -> T:
    """Send a request; send it once more if the hub is busy or the connection is lost.

    Timeouts are not retried: there may be no network, and the client has already retried a download.
    """
    try:
        return request()
    except Exception as error:
        lost = _http_library().NetworkError, _http_library().RemoteProtocolError
        for cause in _causes(error):
            is_lost = isinstance(cause, lost) and not isinstance(cause, _timeouts())
            if is_lost or _status_of(cause) in _BUSY:
                break
        else:
            raise
        seconds = requested_wait(getattr(cause, "response", None)) or _WAIT_SECONDS
        if seconds > MAX_WAIT_SECONDS:
            raise
        say(f"{_problem_of(cause)}; next attempt in {seconds} s")
    time.sleep(seconds)
    return request()


def _timeouts() -> tuple[type[Exception], ...]:
    """Types of errors for no connection, or no answer in time."""
    http = _http_library()
    return http.TimeoutException, http.ConnectError, http.ProxyError


def _status_of(error: BaseException) -> int | None:
    """Status of the response that an error is about; None without a response."""
    return getattr(getattr(error, "response", None), "status_code", None)


def requested_wait(response: Any) -> int | None:
    """Seconds that a response asks to wait: `Retry-After: 30`, or `t` in `RateLimit: "api";r=0;t=30`."""
    headers = getattr(response, "headers", {})
    match = re.search(r"\bt=(\d+)", f"t={headers.get('retry-after', '')} {headers.get('ratelimit', '')}")
    return int(match[1]) if match else None


def _problem_of(error: BaseException) -> str:
    """Reason why a request failed, with the name of the hub."""
    host, status = _endpoint().partition("//")[2], _status_of(error)
    if status == 429:
        seconds = requested_wait(getattr(error, "response", None))
        return f"{host} allows no more requests {'for now' if seconds is None else f'for {seconds} s'}"
    if status is not None:
        return f"{host} answered with status {status}"
    through = " through a proxy" if getproxies().get(_endpoint().partition(":")[0]) else ""
    connection = "no connection to" if isinstance(error, _timeouts()) else "a lost connection to"
    return f"{connection} {host}{through} ({one_line(error)})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__ or error


def _http_library() -> Any:
    """HTTP library of the client, which depends on its version: `httpx` or `httpx2`."""
    from huggingface_hub.errors import HfHubHTTPError

    base = next(kind for kind in HfHubHTTPError.__mro__[1:] if kind.__name__ == "HTTPError")
    return sys.modules[base.__module__.partition(".")[0]]


def _endpoint() -> str:
    """Address of the hub, without the name and the password that `HF_ENDPOINT` may have."""
    from huggingface_hub.constants import ENDPOINT

    scheme, slashes, rest = ENDPOINT.rpartition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"
