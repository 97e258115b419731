"""Requests to the Hugging Face hub: repeated while it is busy, and the errors of its client as errors of ours."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from mt_cli.errors import InputError, MtError, one_line
from mt_cli.machine.console import say

Kind = Literal["dataset", "model"]
T = TypeVar("T")

_NUM_ATTEMPTS = 4
_MAX_WAIT_SECONDS = 60
_HEARD_FROM: set[str] = set()
"""The hubs that have answered this process."""


class TruncatedError(Exception):
    """A file ended too early."""


def import_clients() -> None:
    """Import the hub's client; raises InputError if an environment variable keeps it from that."""
    _check_address(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        import huggingface_hub.constants  # noqa: F401
    except ValueError as error:
        names = [name for name in os.environ if name.startswith("HF_")]
        raise InputError(f"{' or '.join(names)}: not a number: {one_line(error)}") from None


def _check_address(address: str) -> None:
    """Raise InputError if this is not the address of a server."""
    with suppress(ValueError):  # The port may be no number.
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    raise InputError(f"HF_ENDPOINT: {_without_password(address)!r} is not an address such as https://huggingface.co")


def status_of(error: BaseException) -> int | None:
    """The status of the hub's answer that an error is about; None if there was none."""
    return _response_of(error)[0]


def timeout() -> float:
    """Seconds without a byte after which a connection is lost: `HF_HUB_DOWNLOAD_TIMEOUT`, by default 10."""
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT

    return HF_HUB_DOWNLOAD_TIMEOUT


def patiently(call: Callable[[], T], done: Callable[[], int] = lambda: 0) -> T:
    """The result of a call to the hub, which is repeated if the hub is busy or the connection is lost.

    It is repeated as long as `done`, the number of bytes of a download, grows. A hub that has not answered this process
    at all is not asked again: there may be no network.
    """
    attempt, before = 0, done()
    while True:
        try:
            result = call()
            _HEARD_FROM.add(_address())
            return result
        except Exception as error:
            if done() > before:
                attempt, before = 0, done()
                _HEARD_FROM.add(_address())
            attempt += 1
            wait = _seconds_to_wait(error, attempt, _address() in _HEARD_FROM)
            if wait is None or attempt == _NUM_ATTEMPTS:
                raise
            say(f"{_reason(error)}; next attempt in {wait} s")
            time.sleep(wait)


def _seconds_to_wait(error: Exception, attempt: int, has_answered: bool) -> int | None:
    """The seconds until another attempt may help; None if it would not."""
    status, headers = _response_of(error)
    if status == 429:
        asked = _seconds_asked_for(headers)
        wait = 2**attempt if asked is None else asked
        return wait if wait <= _MAX_WAIT_SECONDS else None
    is_lost = _is_of_connection(error) and (has_answered or not _is_silence(error))
    is_lost = is_lost or isinstance(error, TruncatedError)
    return 2 ** (attempt - 1) if is_lost or status in (408, 500, 502, 503, 504) else None


def _seconds_asked_for(headers: Mapping[str, str]) -> int | None:
    """The time that the hub asks to wait: `Retry-After: 30`, or `t` in `RateLimit: "api";r=0;t=30`."""
    found = re.search(r"^\d+$", headers.get("retry-after", "")) or re.search(
        r"(?<=\bt=)\d+", headers.get("ratelimit", "")
    )
    return int(found[0]) if found else None


def _response_of(error: BaseException) -> tuple[int | None, Mapping[str, str]]:
    """The status and the headers of the answer that an error is about."""
    response = getattr(error, "response", None)
    return (None, {}) if response is None else (response.status_code, response.headers)


def _is_of_connection(error: BaseException) -> bool:
    """Whether an error is one of the HTTP libraries, which change with the version of the client."""
    return type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore", "requests", "urllib3")


def _is_silence(error: BaseException) -> bool:
    """Whether there was no connection, or no answer."""
    return any(each in type(error).__name__ for each in ("Connect", "Proxy", "Timeout"))


@contextmanager
def asking(kind: Kind, name: str, note: str = "") -> Iterator[None]:
    """Context manager for calls of the hub's clients; their errors become ours, and other errors stay as they are.

    Raises InputError if there is no such repository or revision or access to it is refused, and MtError if the hub
    cannot be reached; `note` is the end of messages that say that it was not found.
    """
    from huggingface_hub import get_session, get_token
    from huggingface_hub.utils import logging

    logging.set_verbosity(logging.CRITICAL)  # Errors are in our message.
    if not (get_token() or "").isascii():
        raise InputError("HF_TOKEN, or the saved token: has characters that are in no token; copy it again")
    try:
        get_session().timeout = timeout()  # By default, some requests would wait for ever.
    except OSError as error:
        raise InputError(f"SSL_CERT_FILE or SSL_CERT_DIR: cannot be read: {one_line(error)}") from None
    except Exception as error:  # Its message would show the password of a proxy.
        raise InputError(
            f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: no address of a usable proxy ({type(error).__name__})"
        ) from None
    try:
        yield
    except MtError:
        raise
    except Exception as error:
        known = next(filter(None, (_known(each, kind, name, note) for each in _causes(error))), None)
        if known is None:
            raise
        raise known from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised for."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__ or error


def _known(error: BaseException, kind: Kind, name: str, note: str) -> MtError | None:
    """Our error for one of the hub's client."""
    from huggingface_hub import errors, get_token

    what, page = f"{kind} {name}", f"{_address()}/{'datasets/' if kind == 'dataset' else ''}{name}"
    has_token = get_token() is not None
    token = (
        "the account of your token has no access"
        if has_token
        else "set HF_TOKEN to a token of your account, or run `hf auth login`"
    )
    status, _ = _response_of(error)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return InputError(f"{what}: is not downloaded, and HF_HUB_OFFLINE is set; run the command once without it")
    if isinstance(error, errors.GatedRepoError):
        return InputError(f"{what}: its owner gives access on request, at {page}; {token}")
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(f"{what}: has no such revision; use a branch, a tag or a commit of {page}/commits/main")
    if isinstance(error, errors.RepositoryNotFoundError):
        return InputError(f"{what}: not found on the hub; check the name ({page}); if it is private, {token}{note}")
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return MtError(f"{what}: one of its files is not there ({one_line(error)})")
    if isinstance(error, errors.HFValidationError):
        return InputError(f"{what}: not an id of the hub, which has the form `owner/name`{note}")
    if status == 401:
        return InputError(f"{what}: the hub refuses the token (HF_TOKEN, or the saved one); use a valid one, or none")
    if status == 429:
        hint = "" if has_token else "; with a token (HF_TOKEN) it allows more"
        return MtError(f"{what}: {_reason(error)}{hint}")
    if _is_silence(error) and _is_of_connection(error):
        return MtError(f"{what}: {_reason(error)}; check the network, and run the command again")
    if status is not None or _is_of_connection(error) or isinstance(error, TruncatedError):
        return MtError(f"{what}: {_reason(error)}; run the command again")
    return None


def _reason(error: BaseException) -> str:
    """Why a request failed."""
    host = _address().partition("//")[2]
    status, headers = _response_of(error)
    if status == 429:
        seconds = _seconds_asked_for(headers)
        return f"{host} allows no more requests {'for now' if seconds is None else f'for {seconds} s'}"
    if status is not None:
        return f"{host} answered with status {status}"
    if isinstance(error, TruncatedError):
        return f"the connection to {host} was lost: {error}"
    proxy = urlsplit(getproxies().get(_address().partition(":")[0], "")).hostname
    through = f" through the proxy {proxy}" if proxy else ""
    problem = "no connection to" if _is_silence(error) else "a lost connection to"
    return f"{problem} {host}{through} ({one_line(error)})"


def _address() -> str:
    """The address of the hub, without the name and the password that `HF_ENDPOINT` may have."""
    from huggingface_hub.constants import ENDPOINT

    return _without_password(ENDPOINT)


def _without_password(address: str) -> str:
    scheme, slashes, rest = address.rpartition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"
