"""Interface `/v1`: models, and translations with scores, alignments, tokens and lost spans."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from mt_cli.corpus.languages import language_name
from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.documents.document import Document
from mt_cli.documents.translate import Job
from mt_cli.serving.bodies import Body, CorrectionBody, TranslateBody, media_type, parsed
from mt_cli.serving.errors import Answer, RequestError
from mt_cli.serving.files import SUFFIXES
from mt_cli.serving.libretranslate import content_of, save, service_of
from mt_cli.serving.models import Route, ServedModel, detection, is_right_to_left
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service, plain_text, read_texts, translations
from mt_cli.translation.drafts import Draft, lost_spans
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks
from mt_cli.translation.lines import Translation
from mt_cli.translation.sentences import units
from mt_cli.translation.texts import Sentence, TextTranslation


async def models(request: Request) -> Response:
    service = service_of(request)
    limits = service.limits
    return Answer(
        {
            "models": [_description(service, model) for model in service.models.models],
            "languages": [
                {"code": code, "name": language_name(code), "right_to_left": is_right_to_left(code)}
                for code in service.models.languages()
            ],
            "limits": {
                name: getattr(limits, name)
                for name in ("max_characters", "max_texts", "max_alternatives", "max_file_bytes")
            },
            "file_types": SUFFIXES,
            "corrections": service.corrections is not None,
            "key_required": bool(service.keys.digests),
        }
    )


def _description(service: Service, model: ServedModel) -> dict[str, Any]:
    directions = service.models.directions_of(model)
    return {
        "name": model.name,
        "engine": model.engine,
        "directions": [direction._asdict() for direction in directions],
        "terms": model.translator.takes_terms,
        "updated_at": model.updated_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "scores": list(_scores(service, model)),
    }


def _scores(service: Service, model: ServedModel) -> Iterator[dict[str, Any]]:
    """Scores on each test set, one by one for several directions, whose numbers of sentences are not known."""
    languages = {"-".join(pair): service.models.for_clients(pair)._asdict() for pair in model.directions}
    for test in model.tests:
        for direction, scores in (test.directions or {"": test.scores}).items():
            values = {name: round(score.score, 2) for name, score in scores.items()}
            number = None if direction else test.num_sentences
            yield {"split": test.split, **languages.get(direction, {}), **values, "num_sentences": number}


async def translate(request: Request) -> Response:
    service, body = service_of(request), await _json(request, TranslateBody)
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
            "detected": None if route.detected_share is None else detection(source, route.detected_share),
            **({"pivot": route.pivot} if route.pivot else {}),
            "translations": _translations(service, ticket, route, body, given),
        }

    return Answer(await service.run(request, work, service.limits.text_seconds))


async def corrections(request: Request) -> Response:
    service = service_of(request)
    if service.corrections is None:
        raise RequestError("this server saves no corrections; start it with --corrections", 403)
    await save(service, request, await _json(request, CorrectionBody))
    return Answer({"success": True})


async def _json(request: Request, kind: type[Body]) -> Body:
    if media_type(request) not in ("application/json", ""):
        raise RequestError("send JSON (Content-Type: application/json)", 415)
    return parsed(kind, await content_of(request))


def _translations(
    service: Service, ticket: Ticket, route: Route, body: TranslateBody, texts: Sequence[str | Document]
) -> list[dict[str, Any]]:
    is_text = body.format == "text"
    options = {"num_best": 1 + body.alternatives, "with_details": body.details} if is_text else {}
    job = service.job(route, ticket, body.term_pairs, **options)
    items = translations(job, texts, ticket)
    split = [item for item in items if isinstance(item, TextTranslation)]
    if not is_text:
        return [{"text": item.text(), "lost_spans": item.lost_spans} for item in items]
    sentences = described(split, job, body.details)
    return [{"text": item.text(), "sentences": of_text} for item, of_text in zip(split, sentences, strict=True)]


def described(texts: Sequence[TextTranslation], job: Job | None, with_details: bool) -> list[list[dict[str, Any]]]:
    """Sentences of each text, with their other translations."""
    distinct = {
        row.text: draft for text in texts for row, draft in zip(text.source.sentences, text.drafts, strict=True)
    }
    others = {source: _others(draft) for source, draft in distinct.items()}
    if with_details and job:
        items = iter(job.translator.add_details([item for rows in others.values() for _, item in rows]))
        others = {source: [(text, next(items)) for text, _ in rows] for source, rows in others.items()}
    marks = InlineMarks(PLACEHOLDERS, job.translator.protection if job else UNPROTECTED)

    def sentence(row: Sentence, after: str) -> dict[str, Any]:
        draft = distinct[row.text]
        return {
            "source": {"text": row.text, "before": row.before, "after": after},
            "target": {"text": draft.text, "before": row.target_before, "after": after},
            "is_too_long": draft.item is not None and draft.item.is_too_long,
            "unknown_words": list(dict.fromkeys(draft.item.unknown_words if draft.item else ())),
            **_translation(row.text, draft, marks),
            "alternatives": [
                {"text": text} | _translation(row.text, Draft(text, item=item), marks)
                for text, item in others[row.text]
            ],
        }

    return [
        [sentence(row, text.source.after if row is text.source.sentences[-1] else "") for row in text.source.sentences]
        for text in texts
    ]


def _others(draft: Draft) -> list[tuple[str, Translation]]:
    """Other translations of a sentence, best first, each with one hypothesis."""
    if draft.item is None:
        return []
    ranks = {text: draft.item.at_rank(rank) for rank, text in reversed([*enumerate(draft.others, start=1)])}
    return [(text, ranks[text]) for text in dict.fromkeys(draft.others) if text != draft.text]


def _translation(source: str, draft: Draft, marks: InlineMarks) -> dict[str, Any]:
    item = draft.item
    described = {
        "score": round(item.score, 4) if item else None,
        "lost_spans": lost_spans(source, draft, marks),
        "reordered_spans": list(item.reordered_spans) if item else [],
        "terms": [use._asdict() for use in item.term_uses] if item else [],
    }
    return described | (_details(source, draft.text, item) if item and item.details else {})


def _details(source: str, target: str, item: Translation) -> dict[str, Any]:
    assert item.details is not None
    source_words, target_words = _words(source, item.plain), _words(target, item.text)
    return {
        "source_words": source_words,
        "target_words": target_words,
        "alignment": [
            (source, target)
            for source, target in item.details.word_alignment
            if source < len(source_words) and target < len(target_words)
        ],
        "confidence": [round(math.exp(score), 4) for score in item.details.word_scores[: len(target_words)]],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": [round(score, 4) for score in item.details.token_scores],
        "expected_chrf": item.estimate.shown if item.estimate else None,
    }


def _words(text: str, plain: str) -> list[tuple[int, int]]:
    """Start and end in a text of each word of the same text without marks, up to the first one that a mark divides."""
    if text == plain:
        return units(text)
    words, place = [], 0
    for start, end in units(plain):
        first = text.find(plain[start:end], place)
        if first < 0:
            break
        place = first + end - start
        words.append((first, place))
    return words
