"""Errors of the Hugging Face hub's client as one-line messages that say what to do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from mt_cli.errors import InputError, MtError, one_line

Kind = Literal["dataset", "model"]

LOGIN_HINT = "a network that asks to log in may have answered: run the command again"


def _messages() -> list[tuple[Any, type[MtError], str]]:
    """Error types or response statuses of the client, our error types, and messages; the first match counts."""
    from huggingface_hub import errors

    http = _http_library()
    offline = "is not downloaded, and HF_HUB_OFFLINE is set; run the command once without it{note}"
    revision = "has no such revision; use a branch, a tag or a commit of {page}/commits/main"
    repository = "not found on the hub; check the name ({page}); if it is private, {token}{note}"
    no_connection = "no connection to {host} ({text}); check the network, and run the command again{note}"
    return [
        (errors.OfflineModeIsEnabled, InputError, offline),
        (errors.GatedRepoError, InputError, "its owner gives access on request, at {page}; {token}"),
        (errors.RevisionNotFoundError, InputError, revision),
        (errors.RepositoryNotFoundError, InputError, repository),
        (errors.HFValidationError, InputError, "not an id of the hub, which has the form `owner/name`{note}"),
        (401, InputError, "the hub refuses the token (HF_TOKEN, or the saved one); use a valid one, or none"),
        (429, MtError, "{host} allows no more requests for now; with a token (HF_TOKEN) it allows more"),
        (errors.HfHubHTTPError, MtError, "{host} answered with status {status}; run the command again"),
        (http.UnsupportedProtocol, InputError, "HF_ENDPOINT is not an address such as https://huggingface.co"),
        (http.TransportError, MtError, no_connection),
        ((errors.FileMetadataError, json.JSONDecodeError), MtError, f"the answer is not that of a hub; {LOGIN_HINT}"),
        (UnicodeEncodeError, InputError, "HF_TOKEN, or the saved token, has a character that no token has"),
        (getattr(errors, "XetDownloadError", ()), MtError, "the download failed ({text}); run the command again"),
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
        endpoint = _endpoint()
        page = f"{endpoint}/{'datasets/' if kind == 'dataset' else ''}{name}"
        token = "set HF_TOKEN to a token of your account, or run `hf auth login`"
        if get_token():
            token = "the account of your token has no access"
        for cause in _causes(error):
            status = getattr(getattr(cause, "response", None), "status_code", None)
            for key, error_class, message in _messages():
                if status == key if isinstance(key, int) else isinstance(cause, key):
                    text = {"text": one_line(cause), "host": endpoint.partition("//")[2], "status": status}
                    message = message.format(note=note, page=page, token=token, **text)
                    raise error_class(f"{kind} {name}: {message}") from error
        raise


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
