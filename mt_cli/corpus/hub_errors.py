"""Errors of the Hugging Face hub's client as one-line messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import Any, Literal

from mt_cli.errors import InputError, MtError

Kind = Literal["dataset", "model"]


@contextmanager
def hub_errors(kind: Kind, name: str, note: str = "") -> Iterator[None]:
    """Context manager of calls of the client, which turns its errors into InputError or MtError.

    `note` is appended if a repository was not found. Messages have no text of the client, because it may show the
    password of a proxy.
    """
    from huggingface_hub import constants, errors, get_token

    # The HTTP library is `httpx` or `httpx2`, depending on the version of the client.
    http_error: Any = next(base for base in errors.HfHubHTTPError.__mro__[1:] if base.__name__ == "HTTPError")
    title = f"{kind} {name}"
    try:
        yield
    except MtError:
        raise
    except errors.HFValidationError as error:
        raise InputError(f"{title}: not an id of the hub, which has the form `owner/name`{note}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{title}: HF_TOKEN, or the saved token, has a character that no token has") from error
    except (http_error, ConnectionError, errors.EntryNotFoundError, errors.FileMetadataError, JSONDecodeError) as error:
        scheme, _, address = constants.ENDPOINT.rpartition("//")
        host = address.rpartition("@")[2]  # Without a name and a password.
        page = f"{scheme}//{host}/{'datasets/' if kind == 'dataset' else ''}{name}"
        token = "set HF_TOKEN to a token of your account, or run `hf auth login`"
        if get_token():
            token = "the account of your token has no access"
        for cause in _causes(error):
            status = getattr(getattr(cause, "response", None), "status_code", None)
            if isinstance(cause, errors.OfflineModeIsEnabled):
                raise InputError(
                    f"{title}: not in the cache, and HF_HUB_OFFLINE is set; run the command once without it{note}"
                ) from error
            if isinstance(cause, errors.GatedRepoError):
                raise InputError(f"{title}: its owner gives access on request, at {page}; {token}") from error
            if isinstance(cause, errors.RevisionNotFoundError):
                raise InputError(f"{title}: has no such revision; see {page}/commits/main") from error
            if isinstance(cause, errors.RepositoryNotFoundError):
                problem = f"not found on the hub; check the name ({page}); if it is private, {token}{note}"
                raise InputError(f"{title}: {problem}") from error
            if status is not None:
                advice = "run the command again" + ", with a token (HF_TOKEN) if you have none" * (status == 429)
                raise MtError(f"{title}: {host} answered with status {status}; {advice}") from error
        kind_of_error = type(list(_causes(error))[-1]).__name__
        raise MtError(
            f"{title}: no usable answer from {host} ({kind_of_error}); check the network, and run the command "
            f"again{note}"
        ) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__ or error
