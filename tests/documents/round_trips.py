"""Documents read from content, and written back with translations."""

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace

from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.documents.document import Document, Options
from mt_cli.documents.formats import read_document
from mt_cli.documents.translate import Job


def archive(part: str, content: str | bytes) -> bytes:
    """Document of a word processor with one part that has text, and two others."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for name, data in (("[Content_Types].xml", "<Types/>"), (part, content), ("media/a.png", b"\0\xff" * 20)):
            file.writestr(name, data, zipfile.ZIP_DEFLATED if name == part else zipfile.ZIP_STORED)
    return packed.getvalue()


def read(folder: Path, suffix: str, content: str | bytes, column: str | None = None, target: str = "it") -> Document:
    path = folder / f"a{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_document(path, Options(("en", target), column))


def texts_of(document: Document) -> list[tuple[str, ...]]:
    return [unit.texts for unit in document.units]


def translated(document: Document, translate=lambda text: text, has_all=False, needs_review=False) -> bytes:
    """Bytes of a document whose texts without a translation, or all texts, are translated by a function."""
    places = [0, *(place for unit in document.units for place in (unit.start, unit.end)), len(document.content)]
    assert places == sorted(places)
    texts = {
        index: [*map(translate, unit.texts)]
        for index, unit in enumerate(document.units)
        if has_all or not unit.is_translated
    }
    return document.written(texts, texts if needs_review else ())


class Translator:
    """A translator whose translations, and alignments for a number of words, are functions."""

    languages = ("en", "de")

    def __init__(self, translate, align=lambda number: [], protection=UNPROTECTED, lost=(), reordered=()):
        self.translate, self.align, self.protection = translate, align, protection
        self.spans = {"lost_spans": lost, "reordered_spans": reordered}
        self.seen: list[str] = []

    def translate_fully(self, lines, **search):
        self.seen += lines
        return [
            SimpleNamespace(text=self.translate(line), plain=line, is_too_long=False, unknown_words=(), **self.spans)
            for line in lines
        ]

    def word_alignments(self, items):
        return [self.align(len(item.text.split())) for item in items]


def new_job(*arguments, key="", **options) -> Job:
    return Job(Translator(*arguments, **options), {}, Options(("en", "de")), key=key)
