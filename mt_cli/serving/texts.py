"""Texts of a request, plain or HTML, and their translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mt_cli.documents.document import Document
from mt_cli.documents.html import html_document
from mt_cli.documents.translate import Job, TranslatedDocument, translate_texts, translated_documents
from mt_cli.errors import InputError
from mt_cli.serving.errors import RequestError
from mt_cli.serving.scheduling import Ticket
from mt_cli.translation.inline_tags import LIKE_TAG
from mt_cli.translation.texts import TextTranslation


def read_texts(texts: Sequence[str], kind: str) -> Sequence[str | Document]:
    """Texts, or pages if they are `html`; raises RequestError if a tag is cut off."""
    try:
        return [html_document(text) if kind == "html" else text for text in texts]
    except InputError as error:
        raise RequestError(str(error)) from None


def plain_text(text: str | Document) -> str:
    """A text, or the texts of a document without tags."""
    if isinstance(text, str):
        return text
    return LIKE_TAG.sub(" ", "\n".join(text for unit in text.units for text in unit.texts))


def translations(
    job: Job | None, texts: Sequence[str | Document], ticket: Ticket
) -> Sequence[TextTranslation] | Sequence[TranslatedDocument]:
    """Translations of texts or of pages, all in one search. Without a job, they stay as they are."""

    def unless_cancelled() -> Iterator[str]:
        for text in plain:
            ticket.check()
            yield text

    plain = [text for text in texts if isinstance(text, str)]
    pages = [text for text in texts if isinstance(text, Document)]
    if not pages:
        return translate_texts(job, unless_cancelled())
    kept = [TranslatedDocument(page.content.encode()) for page in pages]
    return translated_documents(pages, "html", job) if job else kept
