"""Bodies of requests: their keys, types and limits."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError, WithJsonSchema
from starlette.datastructures import FormData
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request

from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import AUTO

Body = TypeVar("Body", bound=BaseModel)
_MOST_DRAINED_BYTES = 2**26
_MAX_FIELDS = 32
_PARSED_AT_ONCE = 2**14
"""Bytes of a form that are parsed without a break, which takes some milliseconds at most."""


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
    details: bool = Field(False, description="Words, their alignment and their probabilities, and tokens.")


class Upload(NamedTuple):
    """A file of a form."""

    name: str
    content: bytes


class FileBody(KeyBody):
    """Form of `/translate_file`."""

    file: Annotated[InstanceOf[Upload], WithJsonSchema({"type": "string", "format": "binary"})]
    source: str | None = Field(None, description="Code of the source language; auto or nothing detects it.")
    target: str = Field(min_length=1, description="Code of the target language.")
    model: str | None = Field(None, description="Name of a model, where several translate this direction.")
    column: str | None = Field(
        None,
        description="Of a table: the column to translate, by its name, or by its number if there is no header. "
        "Without it, the answer (400) has the names as `columns`.",
    )


async def read_body(
    request: Request, max_bytes: int, seconds: float, keep: Callable[[bytes], object] = lambda chunk: None
) -> bytes:
    """Body of a request; raises RequestError (413, 408, 415) if it is too large, too slow or compressed.

    `keep` gets each part before it is kept, and may raise RequestError. A body that is refused is read to its end and
    dropped, up to a limit, so that clients that do not listen while they send see the answer.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("compressed requests are not read; send it without Content-Encoding", 415)
    declared = request.headers.get("content-length", "")
    too_large = RequestError(f"the request has more than {max_bytes:,} bytes", 413)
    refusal = too_large if declared.isdigit() and int(declared) > max_bytes else None
    if refusal and (int(declared) > _MOST_DRAINED_BYTES or "expect" in request.headers):
        raise refusal
    parts: list[bytes] = []
    num_bytes = 0
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                num_bytes += len(chunk)
                if num_bytes > _MOST_DRAINED_BYTES:
                    raise refusal or too_large
                try:
                    if refusal is None and num_bytes > max_bytes:
                        raise too_large
                    if refusal is None:
                        keep(chunk)
                        parts.append(chunk)
                except RequestError as error:
                    refusal = error
                    parts.clear()
    except TimeoutError:
        raise RequestError("the request was not complete in time", 408) from None
    if refusal:
        raise refusal
    return b"".join(parts)


async def read_fields(request: Request, content: bytes) -> dict[str, Any]:
    """Fields of a form; files are `Upload` objects. Raises RequestError for a form that is not well formed."""

    async def stream() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(content), _PARSED_AT_ONCE):
            yield content[start : start + _PARSED_AT_ONCE]
            await asyncio.sleep(0)  # Other requests have their turn.
        yield b""

    kind = media_type(request)
    try:
        if kind == "multipart/form-data":
            parser = MultiPartParser(request.headers, stream(), max_files=1, max_fields=_MAX_FIELDS)
            form: FormData = await parser.parse()
        else:
            form = await FormParser(request.headers, stream(), max_fields=_MAX_FIELDS).parse()
    except (MultiPartException, KeyError, ValueError) as error:
        raise RequestError(f"the form is not well formed: {error}") from None
    values: dict[str, list[Any]] = {}
    for name, value in form.multi_items():
        field = value if isinstance(value, str) else Upload(value.filename or "", await value.read())
        values.setdefault(name, []).append(field)
    await form.close()
    _check_characters(values)
    return {name: of_name if len(of_name) > 1 else of_name[0] for name, of_name in values.items()}


def _check_characters(values: Mapping[str, Sequence[Any]]) -> None:
    """Raise RequestError for halves of characters, which a form in an unusual encoding can have."""
    texts = [value.name if isinstance(value, Upload) else value for of_name in values.values() for value in of_name]
    try:
        "".join([*values, *texts]).encode()
    except UnicodeEncodeError:
        raise RequestError("the form is not well formed: it has characters that are not in Unicode") from None


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
