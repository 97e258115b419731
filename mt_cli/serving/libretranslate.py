"""LibreTranslate's interface: paths, keys and answers as its clients expect them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from mt_cli.advice.recognition import rank_languages
from mt_cli.corpus.languages import language_name
from mt_cli.serving.bodies import (
    KeyBody,
    LibreBody,
    LibreText,
    Upload,
    media_type,
    parsed,
    read_body,
    read_fields,
)
from mt_cli.serving.errors import RequestError
from mt_cli.serving.files import (
    SUFFIXES,
    FileStore,
    FileTranslation,
    suffix_of,
    translate_file,
    translate_html,
)
from mt_cli.serving.models import AUTO, Choice
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service
from mt_cli.serving.translations import translate_texts

_BYTES_BESIDE_FILE = 2**16
_LEAST_SHOWN = 0.01
"""Least probability of a language that is named, but for the likeliest."""


async def languages(request: Request) -> Response:
    """All languages, each with the targets that it is translated into; Weblate asks for those of targets, too."""
    models = service_of(request).models
    targets: dict[str, list[str]] = {code: [] for code in models.languages()}
    for source, target in models.directions:
        targets[source].append(target)
    return JSONResponse([{"code": code, "name": language_name(code), "targets": targets[code]} for code in targets])


async def translate(request: Request) -> Response:
    """Translation of one text or of a list of texts."""
    service = service_of(request)
    body = parsed(LibreBody, await content_of(request))
    texts = [body.q] if isinstance(body.q, str) else body.q
    service.check_texts(texts, 0)
    num_alternatives = min(body.alternatives, service.limits.max_alternatives)  # Its clients ask for any number.

    def work(ticket: Ticket) -> dict[str, Any]:
        parts = [service.choose(body.source, body.target, None, text) for text in texts]
        groups: dict[Choice, list[int]] = {}
        for index, (choice, _) in enumerate(parts):
            groups.setdefault(choice, []).append(index)
        answers: dict[int, tuple[str, list[str]]] = {}
        for choice, indices in groups.items():
            of_choice = [texts[index] for index in indices]
            results = translations(service, ticket, choice, of_choice, body.format, num_alternatives)
            answers.update(zip(indices, results, strict=True))
        rows: dict[str, list[Any]] = {"translatedText": [answers[index][0] for index in range(len(texts))]}
        if body.source == AUTO:
            rows["detectedLanguage"] = [
                {"confidence": confidence, "language": service.models.client_code(choice.direction.source)}
                for choice, confidence in parts
            ]
        if num_alternatives:
            rows["alternatives"] = [answers[index][1] for index in range(len(texts))]
        return rows if isinstance(body.q, list) else {key: values[0] for key, values in rows.items()}

    return JSONResponse(await service.run(request, work, service.limits.text_seconds))


def translations(
    service: Service, ticket: Ticket, choice: Choice, texts: list[str], text_format: str, num_alternatives: int
) -> list[tuple[str, list[str]]]:
    """Translation and alternatives of each text; HTML has no alternatives."""
    translator = service.translator(choice.model, ticket)
    search = {**service.search, "tag": choice.model.tag(choice.direction)}
    if text_format == "html":
        return [(translate_html(translator, choice, text, search), []) for text in texts]
    items = translate_texts(translator, choice, texts, search | {"num_best": 1 + num_alternatives})
    return [(item.text(), item.alternatives(num_alternatives)) for item in items]


async def detect(request: Request) -> Response:
    """Languages of a text, the likeliest first."""
    service = service_of(request)
    body = parsed(LibreText, await content_of(request))
    service.check_texts([body.q], 0)
    sources = list(dict.fromkeys(pair.source for pair in service.models.directions))

    def work(ticket: Ticket) -> list[dict[str, Any]]:
        ranked = rank_languages(body.q, sources) or [(sources[0], 0.0)]
        shown = [row for row in ranked if row[1] >= _LEAST_SHOWN] or ranked[:1]
        return [{"confidence": round(100 * confidence, 1), "language": code} for code, confidence in shown]

    return JSONResponse(await service.run(request, work, service.limits.text_seconds))


async def health(request: Request) -> Response:
    """Whether the server answers."""
    return JSONResponse({"status": "ok"})


async def frontend_settings(request: Request) -> Response:
    """What programs for LibreTranslate ask before they show anything."""
    service = service_of(request)
    source, target = service.models.directions[0]
    needs_key = bool(service.keys.digests)
    shown = {code: {"code": code, "name": language_name(code)} for code in (source, target)}
    return JSONResponse(
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
    service = service_of(request)
    limits = service.limits
    num_bytes = 0

    def count(number: int) -> None:
        nonlocal num_bytes
        service.reserve(number)
        num_bytes += number

    try:
        max_bytes = limits.max_file_bytes + _BYTES_BESIDE_FILE
        content = await read_body(request, max_bytes, limits.file_seconds, count)
        fields = await read_fields(request, content)
        del content
        service.admit(request, key_of(request, fields))
        upload = fields.get("file")
        if not isinstance(upload, Upload):
            raise RequestError("file: missing; send a form (multipart/form-data) with one file")
        suffix_of(upload.name)
        names = ("source", "target", "model", "column")
        values = [fields.get(name) for name in names]
        if not all(isinstance(value, str | None) for value in values):
            raise RequestError(f"{', '.join(names)}: give each once, as text")
        source, target, model, column = (value or None for value in values)
        if target is None:
            raise RequestError("target: missing; send the code of a language")

        def work(ticket: Ticket) -> FileTranslation:
            choice, _ = service.choose(source, target, model, upload.content[:10_000].decode("utf-8", "replace"))
            search = {**service.search, "tag": choice.model.tag(choice.direction)}
            translator = service.translator(choice.model, ticket)
            return translate_file(translator, choice, upload.content, upload.name, column, search)

        translation = await service.run(request, work, limits.file_seconds)
    finally:
        service.release(num_bytes)
    service.metrics.count("mt_files_total")
    token = _store_of(request).add(translation.content, translation.name)
    notes = {"notes": translation.notes} if translation.notes else {}
    return JSONResponse({"translatedFileUrl": str(request.url_for("download", token=token))} | notes)


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
    content = await read_body(request, service.limits.max_body_bytes, service.limits.body_seconds)
    if media_type(request) in ("application/x-www-form-urlencoded", "multipart/form-data"):
        fields = await read_fields(request, content)
        service.admit(request, key_of(request, fields))
        if any(isinstance(value, Upload) for value in fields.values()):
            raise RequestError("a file is sent to /translate_file; this path takes text")
        return fields
    service.admit(request, key_of(request, parsed(KeyBody, content).model_dump()))
    return content


def key_of(request: Request, fields: Mapping[str, Any] | None = None) -> str | None:
    """Key of a client: in the header `Authorization`, in the body or in the query."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    given = (fields or {}).get("api_key") or request.query_params.get("api_key")
    return given if isinstance(given, str) else None
