"""Corrections that clients send, added to the file of a server."""

from __future__ import annotations

from starlette.requests import Request

from mt_cli.corpus.corrections import Correction, append_corrections
from mt_cli.errors import MtError
from mt_cli.runtime.console import say
from mt_cli.serving.bodies import CorrectionBody
from mt_cli.serving.errors import RequestError
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service


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
