"""Bodies of requests: their keys, types and limits."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from string import printable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request

from mt_cli.corpus.rows import Pair
from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import AUTO

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)
_MOST_DRAINED_BYTES = 2**26
_MAX_FIELDS, _MOST_TERMS = 32, 1000
DISK_FULL = "the file cannot be stored; the disk of the server may be full"

_Format = Annotated[
    Literal["text", "html"], Field(description="HTML keeps its tags, and has neither alternatives nor details.")
]


class KeyBody(BaseModel):
    """Key of a client, in any body."""

    api_key: str | None = Field(None, description="Key, if it is not in the header Authorization.")


class LibreBody(KeyBody):
    """Body of LibreTranslate's `/translate`. Unknown keys are ignored, because its clients have several versions."""

    q: str | list[str] = Field(description="A text, or a list of texts.")
    source: str = Field(AUTO, description="Code of the source language; auto detects it for each text.")
    target: str = Field(description="Code of the target language.")
    format: _Format = "text"
    alternatives: int = Field(default=0, ge=0, description="Number of other translations of each text.")


class LibreText(KeyBody):
    """Body of LibreTranslate's `/detect`."""

    q: str = Field(description="A text.")


class TranslateBody(KeyBody):
    """Body of `/v1/translate`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str | list[str] = Field(description="A text, or a list of texts.")
    source: str | None = Field(None, description="Code of the source language; auto or null detects it.")
    target: str | None = Field(None, description="Code of the target language; null if there is only one.")
    model: str | None = Field(None, description="Name of a model, where several translate the same direction.")
    format: _Format = "text"
    alternatives: int = Field(0, ge=0, description="Number of other translations of each sentence.")
    terms: dict[str, str | list[str]] = Field(
        {},
        max_length=_MOST_TERMS,
        description="Translations of terms in the text, before those of the server; the first one of a list is asked "
        "for. For models that are trained with terms.",
    )
    details: bool = Field(False, description="Words, their alignment and their probabilities, and tokens.")

    @property
    def term_pairs(self) -> list[Pair]:
        lists = ((term, [targets] if isinstance(targets, str) else targets) for term, targets in self.terms.items())
        return [(term, target) for term, targets in lists for target in targets]


class LibreSuggestion(KeyBody):
    """Body of LibreTranslate's `/suggest`."""

    q: str = Field(description="A text.")
    s: str = Field(description="A better translation.")
    source: str = Field(AUTO, description="Code of the source language; auto detects it.")
    target: str = Field(description="Code of the target language.")


class CorrectionBody(KeyBody):
    """Body of `/v1/corrections`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: str = Field(description="A sentence or text.")
    target: str = Field(description="Its corrected translation; the draft itself takes a correction back.")
    draft: str = Field("", description="The translation of the server.")
    source_language: str | None = Field(None, description="Code of the source language; auto or null detects it.")
    target_language: str | None = Field(None, description="Code of the target language; null if there is only one.")
    model: str | None = Field(None, description="Name of the model of the draft.")


class FileBody(KeyBody):
    """Form of `/translate_file`."""

    file: Annotated[InstanceOf[UploadFile], WithJsonSchema({"type": "string", "format": "binary"})]
    source: str | None = Field(None, description="Code of the source language; auto or nothing detects it.")
    target: str = Field(min_length=1, description="Code of the target language.")
    model: str | None = Field(None, description="Name of a model, where several translate this direction.")
    column: str | None = Field(
        None,
        description="Of a table: the column to translate, by its name, or by its number if there is no header. "
        "Without it, the answer (400) has the names as `columns`.",
    )


async def read_body(
    request: Request, max_bytes: int, seconds: float, parse: Callable[[AsyncGenerator[bytes, None]], Awaitable[T]]
) -> T:
    """What `parse` makes of a body; raises RequestError (413, 408, 415) if it is too large, too slow or compressed.

    A body that is refused is read to its end and dropped, up to a limit, so that clients that do not listen while they
    send see the answer.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("compressed requests are not read; send it without Content-Encoding", 415)
    declared, stream, num_bytes = int(request.headers.get("content-length", 0)), request.stream(), 0
    too_large = RequestError(f"the request has more than {max_bytes:,} bytes", 413)
    if declared > max_bytes and (declared > _MOST_DRAINED_BYTES or "expect" in request.headers):
        raise too_large

    async def parts() -> AsyncGenerator[bytes, None]:
        nonlocal num_bytes
        async for chunk in stream:
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise too_large
            yield chunk

    try:
        async with asyncio.timeout(seconds):
            try:
                return await parse(parts())
            except RequestError:
                async for chunk in stream:
                    num_bytes += len(chunk)
                    if num_bytes > _MOST_DRAINED_BYTES:
                        break
                raise
    except TimeoutError:
        raise RequestError("the request was not complete in time", 408) from None


async def read_fields(
    request: Request, parts: AsyncGenerator[bytes, None], check: Callable[[int, Mapping[str, Any]], object]
) -> dict[str, Any]:
    """Fields of a form; files are in `request.state.form`. Raises RequestError for a form that is not well formed.

    `check` gets the number of bytes and the fields so far after each part, and may raise RequestError.
    """
    is_multipart = media_type(request) == "multipart/form-data"

    async def checked() -> AsyncGenerator[bytes, None]:
        num_bytes = 0
        async for part in parts:
            yield part if is_multipart else quote(part, safe=printable).encode()  # curl -d sends UTF-8 as it is.
            num_bytes += len(part)
            check(num_bytes, dict(getattr(parser, "items", ())))

    kind: Any = partial(MultiPartParser, max_files=1) if is_multipart else FormParser
    parser = kind(request.headers, checked(), max_fields=_MAX_FIELDS)
    values: dict[str, list[Any]] = {}
    try:
        request.state.form = form = await parser.parse()
        for name, value in form.multi_items():
            f"{name}{value if isinstance(value, str) else value.filename}".encode()
            values.setdefault(name, []).append(value)
    except (MultiPartException, KeyError, ValueError) as error:
        raise RequestError(f"the form is not well formed: {error}") from None
    except OSError:
        raise RequestError(DISK_FULL, 507) from None
    return {name: of_name if len(of_name) > 1 else of_name[0] for name, of_name in values.items()}


def media_type(request: Request) -> str:
    """Type of the body, without parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parsed(kind: type[Body], content: bytes | dict[str, Any]) -> Body:
    """Body from JSON or from the fields of a form; raises RequestError that names the key."""
    try:
        if isinstance(content, bytes):
            return kind.model_validate_json(content.removeprefix(codecs.BOM_UTF8))
        return kind.model_validate(content)
    except ValidationError as error:
        problems = [
            ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise RequestError("; ".join(problems[:3])) from None
