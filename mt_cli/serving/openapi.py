"""Description of the interface: OpenAPI 3.1, and a page made of it."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel

from mt_cli.serving.bodies import CorrectionBody, FileBody, LibreBody, LibreSuggestion, LibreText, TranslateBody
from mt_cli.serving.files import SUFFIXES
from mt_cli.serving.service import Limits

_ERRORS = {
    "400": "The request is wrong; `error` says how.",
    "403": "A key is missing or wrong, the page of another site asks, or the server saves no corrections.",
    "408": "The request was not sent in time.",
    "413": "The request is too large.",
    "415": "Files of this kind, or compressed requests, are not read.",
    "429": "Too many requests, of this client or of all; `Retry-After` says for how many seconds to wait.",
    "503": "The server has too little memory.",
    "504": "The time limit has passed.",
    "507": "The server cannot store the file or the correction.",
}
_GETS = {
    "/languages": "Languages, each with the targets that it is translated into.",
    "/health": "Tell that the server answers.",
    "/frontend/settings": "Limits and defaults, as LibreTranslate's programs read them.",
    "/v1/models": "Models with their directions and scores, languages, and limits.",
    "/metrics": "Counters for Prometheus.",
    "/download_file/{name}": "A translated file, for an hour.",
}
ANSWERS: dict[str, Any] = {
    "/languages": [{"code": "en", "name": "English", "targets": ["it"]}],
    "/health": {"status": "ok"},
    "/v1/models": {
        "models": ["…"],
        "languages": ["…"],
        "limits": {},
        "file_types": ["…"],
        "corrections": True,
        "key_required": False,
    },
    "/translate": {"translatedText": "Ciao."},
    "/detect": [{"language": "en", "confidence": 99.0, "is_reliable": True}],
    "/v1/translate": {
        "model": "NAME",
        "source": "en",
        "target": "it",
        "detected": None,
        "translations": [{"text": "Ciao.", "sentences": ["…"]}],
    },
    "/suggest": {"success": True},
    "/v1/corrections": {"success": True},
    "/translate_file": {"translatedFileUrl": "http://NAME:5000/download_file/TOKEN"},
}
"""Example of an answer, for each path whose JSON no other program defines."""
_KEYS_OF_ANSWERS = {
    "/translate": "For a list of texts, all values are lists. `detectedLanguage` (`language`, `confidence` in "
    "percent, `is_reliable` from 50 on) is there if `source` is `auto`, `alternatives` if some are asked for, `pivot` "
    "if a text was translated by way of a third language, and `lost_spans` if a translation lacks placeholders.",
    "/v1/translate": "Each sentence has `source` and `target` (`text`, with the blanks `before` and `after` it), "
    "`score`, `terms`, `unknown_words` and `is_too_long`; and, if they are asked for, `alternatives` and the details.",
    "/translate_file": "`notes` is there if texts of a document need a review.",
}
_POSTS: dict[str, tuple[str, type[BaseModel]]] = {
    "/translate": ("Translate a text or a list of texts, as LibreTranslate does.", LibreBody),
    "/detect": ("Languages of a text, the likeliest first.", LibreText),
    "/v1/translate": ("Translate texts, with scores, alternatives and alignments.", TranslateBody),
    "/suggest": ("Save a better translation, if the server takes corrections.", LibreSuggestion),
    "/v1/corrections": ("Save the correction of a translation, if the server takes corrections.", CorrectionBody),
}


def openapi(limits: Limits) -> dict[str, Any]:
    paths: dict[str, Any] = {path: {"get": _operation(path, summary)} for path, summary in _GETS.items()}
    paths["/download_file/{name}"]["get"]["parameters"] = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    for path, (summary, body) in _POSTS.items():
        schema = body.model_json_schema()
        content: dict[str, Any] = {"application/json": {"schema": schema}}
        if not path.startswith("/v1/"):
            content["application/x-www-form-urlencoded"] = {"schema": schema}
        paths[path] = {"post": _operation(path, summary) | {"requestBody": {"required": True, "content": content}}}
    form = {"required": True, "content": {"multipart/form-data": {"schema": FileBody.model_json_schema()}}}
    summary = f"Translate a file of at most {limits.max_file_bytes:,} bytes: {', '.join(SUFFIXES)}."
    paths["/translate_file"] = {"post": _operation("/translate_file", summary) | {"requestBody": form}}
    description = (
        f"A request has at most {limits.max_texts:,} texts with {limits.max_characters:,} characters in all, and "
        f"{limits.max_alternatives:,} alternatives. Where keys are needed, send one as `Authorization: Bearer KEY`, or "
        "as `api_key` in the body."
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "mt serve", "version": "1", "description": description},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _operation(path: str, summary: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _KEYS_OF_ANSWERS.get(path, "The answer.")}
    if path in ANSWERS:
        answer["content"] = {"application/json": {"example": ANSWERS[path]}}
    responses: dict[str, Any] = {"200": answer}
    responses |= {status: {"description": text} for status, text in _ERRORS.items()}
    name = path.strip("/").partition("/{")[0].replace("/", "_")
    return {"summary": summary, "operationId": name, "responses": responses}


def description_page(limits: Limits) -> str:
    loader = PackageLoader("mt_cli.serving", "")
    environment = Environment(loader=loader, trim_blocks=True, autoescape=True, undefined=StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    return environment.get_template("docs.html").render(
        description=openapi(limits), errors=_ERRORS, notes=_KEYS_OF_ANSWERS
    )
