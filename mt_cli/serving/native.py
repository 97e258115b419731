"""Interface `/v1`: models, and translations with scores, alignments, tokens and lost spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mt_cli.corpus.languages import language_name
from mt_cli.documents.document import Document
from mt_cli.serving.bodies import TranslateBody, media_type, parsed
from mt_cli.serving.described import described
from mt_cli.serving.errors import Answer, RequestError
from mt_cli.serving.files import SUFFIXES
from mt_cli.serving.libretranslate import content_of, service_of
from mt_cli.serving.models import Route, ServedModel, SplitScore, is_right_to_left
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service
from mt_cli.serving.texts import plain_text, read_texts, translations
from mt_cli.translation.texts import TextTranslation


async def models(request: Request) -> Response:
    """Models with their directions and scores, languages, and limits."""
    service = service_of(request)
    limits = service.limits
    return Answer(
        {
            "models": [_described(service, model) for model in service.models.models],
            "languages": [
                {"code": code, "name": language_name(code), "right_to_left": is_right_to_left(code)}
                for code in service.models.languages()
            ],
            "limits": {
                name: getattr(limits, name)
                for name in ("max_characters", "max_texts", "max_alternatives", "max_file_bytes")
            },
            "file_types": SUFFIXES,
            "key_required": bool(service.keys.digests),
        }
    )


def _described(service: Service, model: ServedModel) -> dict[str, Any]:
    directions = service.models.directions_of(model)
    return {
        "name": model.name,
        "engine": model.source.engine,
        "directions": [direction._asdict() for direction in directions],
        "updated_at": model.updated_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "scores": [_score(service, part) for part in model.scores],
    }


def _score(service: Service, part: SplitScore) -> dict[str, Any]:
    languages = {} if part.direction is None else service.models.for_clients(part.direction)._asdict()
    return {"split": part.split, **languages, **part.scores, "num_sentences": part.num_sentences}


async def translate(request: Request) -> Response:
    """Translation of each text, sentence by sentence; see `TranslateBody`."""
    service = service_of(request)
    if media_type(request) not in ("application/json", ""):
        raise RequestError("send JSON (Content-Type: application/json)", 415)
    body = parsed(TranslateBody, await content_of(request))
    texts = [body.text] if isinstance(body.text, str) else body.text
    service.check_texts(texts, body.alternatives)

    def work(ticket: Ticket) -> dict[str, Any]:
        given = read_texts(texts, body.format)
        route = service.choose(body.source, body.target, body.model, "\n".join(map(plain_text, given)))
        source, target = route.direction
        return {
            "model": " + ".join(choice.model.name for choice in route.choices) or None,
            "source": source,
            "target": target,
            "detected": None if route.confidence is None else {"language": source, "confidence": route.confidence},
            **({"pivot": route.pivot} if route.pivot else {}),
            "translations": _translations(service, ticket, route, body, given),
        }

    return Answer(await service.run(request, work, service.limits.text_seconds))


def _translations(
    service: Service, ticket: Ticket, route: Route, body: TranslateBody, texts: Sequence[str | Document]
) -> list[dict[str, Any]]:
    is_text = body.format == "text"
    options = {"num_best": 1 + body.alternatives, "with_details": body.details} if is_text else {}
    job = service.job(route, ticket, **options)
    items = translations(job, texts, ticket)
    split = [item for item in items if isinstance(item, TextTranslation)]
    if not is_text:
        return [{"text": item.text(), "lost_spans": item.lost_spans} for item in items]
    sentences = described(split, job, body.alternatives, body.details)
    return [{"text": item.text(), "sentences": of_text} for item, of_text in zip(split, sentences, strict=True)]
