"""Documents read from content, and written back with translations."""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from mt_cli.corpus.protected_text import UNPROTECTED, Protection
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


@dataclass
class Translator:
    """A translator whose translations, and alignments for a number of words, are functions."""

    translate: Callable[[str], str]
    align: Callable[[int], list[tuple[int, int]]] = lambda number: []
    protection: Protection = UNPROTECTED
    lost: Sequence[str] = ()
    reordered: Sequence[str] = ()
    engine: object = None
    languages: tuple[str, str] = ("en", "de")
    seen: list[str] = field(default_factory=list)

    def with_engine(self, engine):
        return replace(self, engine=engine)

    def translate_fully(self, lines, **search):
        self.seen += lines
        spans = {"lost_spans": self.lost, "reordered_spans": self.reordered, "unknown_words": (), "term_uses": ()}
        return [SimpleNamespace(text=self.translate(line), plain=line, is_too_long=False, **spans) for line in lines]

    def word_alignments(self, items):
        return [self.align(len(item.text.split())) for item in items]


def new_job(*arguments, key="", **options) -> Job:
    return Job(Translator(*arguments, **options), {}, Options(("en", "de")), key=key)
