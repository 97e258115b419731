"""LibreTranslate's interface: paths, keys and answers as its clients expect them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from mt_cli.corpus.corrections import Correction, append_corrections
from mt_cli.corpus.languages import language_name
from mt_cli.documents.translate import TranslatedDocument
from mt_cli.errors import MtError
from mt_cli.runtime.console import say
from mt_cli.serving import bodies
from mt_cli.serving.bodies import CorrectionBody, FileBody, KeyBody, LibreBody, LibreSuggestion, LibreText, parsed
from mt_cli.serving.errors import Answer, RequestError
from mt_cli.serving.files import SUFFIXES, translate_file
from mt_cli.serving.models import AUTO, Route, detection
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service, plain_text, read_texts, translations
from mt_cli.translation.texts import TextTranslation

_BYTES_BESIDE_FILE = 2**16
_BYTES_WITHOUT_KEY = 2**16
"""Bytes of a form in which its key is found, before more of it is kept."""
_LEAST_SHOWN = 0.01
"""Least probability of a language that is named, but for the likeliest."""


async def languages(request: Request) -> Response:
    """All languages, each with the targets that it is translated into; Weblate asks for those of targets, too."""
    targets = service_of(request).models.targets
    return Answer([{"code": code, "name": language_name(code), "targets": targets[code]} for code in targets])


async def translate(request: Request) -> Response:
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
            groups.setdefault(routes[-1]._replace(detected_share=None), []).append(index)
        by_index: dict[int, TextTranslation | TranslatedDocument] = {}
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
    rows: dict[str, Sequence[Any]] = {}
    if source == AUTO:
        rows["detectedLanguage"] = [detection(route.direction.source, route.detected_share or 0.0) for route in routes]
    if any(route.pivot for route in routes):
        rows["pivot"] = [route.pivot for route in routes]
    return rows


async def detect(request: Request) -> Response:
    service = service_of(request)
    body = parsed(LibreText, await content_of(request))
    service.check_texts([body.q], 0)

    def work(ticket: Ticket) -> list[dict[str, Any]]:
        ranked = service.rank_languages(body.q)
        shown = [row for row in ranked if row[1] >= _LEAST_SHOWN] or ranked[:1]
        return [detection(code, share) for code, share in shown]

    return Answer(await service.run(request, work, service.limits.text_seconds))


async def health(request: Request) -> Response:
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
            "suggestions": service.corrections is not None,
            "supportedFilesFormat": SUFFIXES,
        }
    )


async def suggest(request: Request) -> Response:
    service = service_of(request)
    if service.corrections is None:
        raise RequestError("suggestions are disabled on this server", 403)
    body = parsed(LibreSuggestion, await content_of(request))
    languages = {"source_language": body.source, "target_language": body.target}
    await save(service, request, CorrectionBody(source=body.q, target=body.s, **languages))
    return Answer({"success": True})


async def save(service: Service, request: Request, body: CorrectionBody) -> None:
    """Add a correction to the file of the server, with the languages and the name of the run.

    Raises RequestError if a text is blank or too long, if no model has the direction, or (507) if the file cannot be
    written, which leaves it as it was.
    """
    if not (body.source.strip() and body.target.strip()):
        raise RequestError("a correction has a source and a target that are not blank")
    for text in (body.source, body.target, body.draft):
        service.check_length(text)

    def work(ticket: Ticket) -> None:
        choices = service.choose(body.source_language, body.target_language, body.model, body.source).choices
        if not choices or service.corrections is None:
            raise RequestError("this text was not translated")
        languages = choices[0].direction.source, choices[-1].direction.target
        model = " + ".join(choice.model.name for choice in choices)
        correction = Correction.of(body.source, body.target, body.draft, languages, model)
        try:
            append_corrections(service.corrections, [correction])
        except MtError as error:
            say(f"note: a correction was not saved: {error}")
            raise RequestError("the correction cannot be stored; the disk of the server may be full", 507) from None

    await service.run(request, work, service.limits.text_seconds)


async def translate_upload(request: Request) -> Response:
    """Address of the translation of a file."""
    service, store = service_of(request), request.app.state.files
    limits = service.limits
    if bodies.media_type(request) != "multipart/form-data":
        raise RequestError("send a form with a file (Content-Type: multipart/form-data)", 415)
    body = parsed(FileBody, await content_of(request, limits.max_file_bytes + _BYTES_BESIDE_FILE, limits.file_seconds))
    translation = await service.run(request, partial(translate_file, service, store, body), limits.file_seconds)
    service.metrics.files.inc()
    token = store.add(translation.path, translation.name)
    answer: dict[str, Any] = {"translatedFileUrl": str(request.url_for("download", token=token))}
    answer |= {key: values[0] for key, values in _routed([translation.route], body.source or AUTO).items()}
    return Answer(answer | ({"notes": translation.notes} if translation.notes else {}))


async def download(request: Request) -> Response:
    path, name = request.app.state.files.get(request.path_params["token"])
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return FileResponse(path, media_type="application/octet-stream", headers=headers)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def content_of(request: Request, max_bytes: int = 0, seconds: float = 0.0) -> bytes | dict[str, Any]:
    """Body of a request, as JSON or as the fields of a form, by default with the limits of texts.

    The client is admitted by the key in the header `Authorization` or in the query, before it sends more, or else by
    the key in the body. Raises RequestError for a wrong key.
    """
    service = service_of(request)
    limits, is_admitted = service.limits, False

    def admit(key: str | None) -> None:
        nonlocal is_admitted
        if not is_admitted:
            service.admit(request, key)
            is_admitted = True

    def check(num_bytes: int, fields: Mapping[str, Any]) -> None:
        if num_bytes > _BYTES_WITHOUT_KEY and service.keys.digests:
            admit(_key_of(fields))

    async def parse(parts: AsyncGenerator[bytes, None]) -> bytes | dict[str, Any]:
        is_form = bodies.media_type(request) in ("application/x-www-form-urlencoded", "multipart/form-data")
        content = (
            await bodies.read_fields(request, parts, check) if is_form else b"".join([part async for part in parts])
        )
        admit(_key_of(content if isinstance(content, dict) else parsed(KeyBody, content).model_dump()))
        return content

    if (key := key_of(request)) is not None:
        admit(key)
    return await bodies.read_body(request, max_bytes or limits.max_body_bytes, seconds or limits.body_seconds, parse)


def key_of(request: Request) -> str | None:
    """Key of a client in the header `Authorization` or in the query."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return (key.strip() if scheme.lower() == "bearer" else "") or request.query_params.get("api_key") or None


def _key_of(fields: Mapping[str, Any]) -> str | None:
    key = fields.get("api_key")
    return key if isinstance(key, str) else None
