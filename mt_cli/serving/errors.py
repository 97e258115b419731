"""Answers in JSON, and errors of requests, each with its HTTP status. Messages are for clients: they name no path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from mt_cli.errors import MtError


class Answer(Response):
    """Answer in JSON. Large ones, such as the words of a long text, are written ten times as fast as by `json`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")


class RequestError(MtError):
    """A request that cannot be answered; the client can change it, or wait."""

    def __init__(
        self, message: str, status: int = 400, retry_seconds: int | None = None, columns: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_seconds = retry_seconds
        """Value of the header `Retry-After`, in seconds; None if there is none."""
        self.columns = columns
        """Columns of a table, one of which has to be chosen."""

    @classmethod
    def of(cls, error: MtError) -> RequestError:
        return error if isinstance(error, RequestError) else cls(str(error))


class RequestCancelled(Exception):  # noqa: N818
    """The client closed its connection, or the time limit of its request has passed."""
