"""LibreTranslate's interface: paths, keys and answers as its clients expect them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from mt_cli.corpus.languages import language_name
from mt_cli.serving.bodies import (
    FileBody,
    KeyBody,
    LibreBody,
    LibreText,
    Upload,
    media_type,
    parsed,
    read_body,
    read_fields,
)
from mt_cli.serving.errors import Answer, RequestError
from mt_cli.serving.files import SUFFIXES, FileStore, FileTranslation, translate_file
from mt_cli.serving.models import AUTO, Route
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service
from mt_cli.serving.texts import Page, plain_text, read_texts, translations
from mt_cli.translation.texts import TextTranslation

_BYTES_BESIDE_FILE = 2**16
_BYTES_WITHOUT_KEY = 2**16
"""Bytes of a form in which its key is found, before more of it is kept."""
_KEY_FIELD = re.compile(
    rb'; ?name="?api_key"?[^\r\n;]{0,100}+\r\n(?:[^\r\n]{1,200}+\r\n){0,4}+\r\n([^\r\n]{0,1000}+)\r\n'
)
_LEAST_SHOWN = 0.01
"""Least probability of a language that is named, but for the likeliest."""


async def languages(request: Request) -> Response:
    """All languages, each with the targets that it is translated into; Weblate asks for those of targets, too."""
    targets = service_of(request).models.targets
    return Answer([{"code": code, "name": language_name(code), "targets": targets[code]} for code in targets])


async def translate(request: Request) -> Response:
    """Translation of one text or of a list of texts."""
    service = service_of(request)
    body = parsed(LibreBody, await content_of(request))
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts, 0)
    num_alternatives = min(body.alternatives, service.limits.max_alternatives)  # Its clients ask for any number.

    def work(ticket: Ticket) -> dict[str, Any]:
        given = read_texts(texts, body.format)
        routes: list[Route] = []
        groups: dict[Route, list[int]] = {}
        for index, text in enumerate(given):
            ticket.check()
            routes.append(service.choose(body.source, body.target, None, plain_text(text)))
            groups.setdefault(routes[-1]._replace(confidence=None), []).append(index)
        by_index: dict[int, TextTranslation | Page] = {}
        for route, indices in groups.items():
            job = service.job(route, ticket, num_best=1 + num_alternatives * (body.format == "text"))
            of_route = translations(job, [given[index] for index in indices], ticket)
            by_index.update(zip(indices, of_route, strict=True))
        items = [by_index[index] for index in range(len(texts))]
        rows = {"translatedText": [item.text() for item in items], **_routed(routes, body.source)}
        if num_alternatives:
            rows["alternatives"] = [item.alternatives(num_alternatives) for item in items]
        if any(item.lost_spans for item in items):
            rows["lost_spans"] = [item.lost_spans for item in items]
        return rows if isinstance(body.q, list) else {key: values[0] for key, values in rows.items()}

    return Answer(await service.run(request, work, service.limits.text_seconds))


def _routed(routes: Sequence[Route], source: str | None) -> dict[str, Sequence[Any]]:
    """Detected languages, and languages between two models, as far as there are some."""
    rows: dict[str, Sequence[Any]] = {}
    if source == AUTO:
        rows["detectedLanguage"] = [
            {"confidence": route.confidence, "language": route.direction.source} for route in routes
        ]
    if any(route.pivot for route in routes):
        rows["pivot"] = [route.pivot for route in routes]
    return rows


async def detect(request: Request) -> Response:
    """Languages of a text, the likeliest first."""
    service = service_of(request)
    body = parsed(LibreText, await content_of(request))
    service.check_texts([body.q], 0)

    def work(ticket: Ticket) -> list[dict[str, Any]]:
        ranked = service.rank_languages(body.q)
        shown = [row for row in ranked if row[1] >= _LEAST_SHOWN] or ranked[:1]
        return [{"confidence": round(100 * share, 1), "language": code} for code, share in shown]

    return Answer(await service.run(request, work, service.limits.text_seconds))


async def health(request: Request) -> Response:
    """Tell that the server answers."""
    return Answer({"status": "ok"})


async def frontend_settings(request: Request) -> Response:
    """What programs for LibreTranslate ask before they show anything."""
    service = service_of(request)
    source, target = service.models.directions[0]
    needs_key = bool(service.keys.digests)
    shown = {code: {"code": code, "name": language_name(code)} for code in (source, target)}
    return Answer(
        {
            "apiKeys": needs_key,
            "charLimit": service.limits.max_characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": needs_key,
            "language": {"source": shown[source], "target": shown[target]},
            "suggestions": False,
            "supportedFilesFormat": SUFFIXES,
        }
    )


async def suggest(request: Request) -> Response:
    """Refuse suggestions of better translations, as LibreTranslate does where they are off."""
    raise RequestError("suggestions are disabled on this server", 403)


async def translate_upload(request: Request) -> Response:
    """Address of the translation of a file."""
    service, store = service_of(request), _store_of(request)
    limits = service.limits
    is_admitted = _admit_by_header(request)
    head = b""
    with service.upload_memory.opened() as reserve:

        def keep(chunk: bytes) -> None:
            nonlocal head, is_admitted
            if not is_admitted and service.keys.digests:
                head += chunk
                if len(head) > _BYTES_WITHOUT_KEY:
                    field = _KEY_FIELD.search(head)
                    service.admit(request, field[1].decode("utf-8", "replace") if field else None)
                    is_admitted, head = True, b""
            reserve(len(chunk))

        max_bytes = limits.max_file_bytes + _BYTES_BESIDE_FILE
        content = await read_body(request, max_bytes, limits.file_seconds, keep)
        async with service.upload_memory.parsing:
            fields = await read_fields(request, content)
        del content
        if not is_admitted:
            service.admit(request, _key_of(fields))
        body = parsed(FileBody, fields)

        def work(ticket: Ticket) -> FileTranslation:
            return translate_file(service, store, body, ticket)

        translation = await service.run(request, work, limits.file_seconds)
    service.metrics.files.inc()
    token = store.add(translation.path, translation.name)
    answer: dict[str, Any] = {"translatedFileUrl": str(request.url_for("download", token=token))}
    answer |= {key: values[0] for key, values in _routed([translation.route], body.source or AUTO).items()}
    return Answer(answer | ({"notes": translation.notes} if translation.notes else {}))


async def download(request: Request) -> Response:
    """A translated file."""
    stored = _store_of(request).get(request.path_params["token"])
    disposition = f"attachment; filename*=UTF-8''{quote(stored.name, safe='')}"
    headers = {"Content-Disposition": disposition}
    return FileResponse(stored.path, media_type="application/octet-stream", headers=headers)


def service_of(request: Request) -> Service:
    """Service of the application."""
    service: Service = request.app.state.service
    return service


def _store_of(request: Request) -> FileStore:
    store: FileStore = request.app.state.files
    return store


async def content_of(request: Request) -> bytes | dict[str, Any]:
    """Body of a request with texts, as JSON or as the fields of a form, after the key was checked."""
    service = service_of(request)
    is_admitted = _admit_by_header(request)
    content = await read_body(request, service.limits.max_body_bytes, service.limits.body_seconds)
    is_form = media_type(request) in ("application/x-www-form-urlencoded", "multipart/form-data")
    fields = await read_fields(request, content) if is_form else parsed(KeyBody, content).model_dump()
    if not is_admitted:
        service.admit(request, _key_of(fields))
    if any(isinstance(value, Upload) for value in fields.values()):
        raise RequestError("a file is sent to /translate_file; this path takes text")
    return fields if is_form else content


def _admit_by_header(request: Request) -> bool:
    """Admit a client by the key in the header `Authorization` or in the query, if there is one, before it sends more.

    Returns False if the key may be in the body. Raises RequestError for a wrong key.
    """
    key = key_of(request)
    if key is None:
        return False
    service_of(request).admit(request, key)
    return True


def key_of(request: Request) -> str | None:
    """Key of a client in the header `Authorization` or in the query."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return (key.strip() if scheme.lower() == "bearer" else "") or request.query_params.get("api_key") or None


def _key_of(fields: Mapping[str, Any]) -> str | None:
    key = fields.get("api_key")
    return key if isinstance(key, str) else None
