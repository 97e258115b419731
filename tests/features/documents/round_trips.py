"""Documents read from content, and written back with translations."""

from pathlib import Path

from mt_cli.features.documents.document import Document, Options
from mt_cli.features.documents.formats import READERS


def read(folder: Path, suffix: str, content: str | bytes, column: str | None = None) -> Document:
    path = folder / f"document{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return READERS[suffix](path, Options(("en", "de"), column))


def texts_of(document: Document) -> list[tuple[str, ...]]:
    return [unit.texts for unit in document.units]


def translated(document: Document, translate=lambda text: text) -> bytes:
    """Bytes of a document whose texts are all translated by a function."""
    places = [0, *(place for unit in document.units for place in (unit.start, unit.end)), len(document.content)]
    assert places == sorted(places)
    return document.replaced(
        {index: unit.write([*map(translate, unit.texts)], False) for index, unit in enumerate(document.units)}
    )
