"""Table of document formats by the suffix of a file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mt_cli.features.documents.catalogues import read_catalogue
from mt_cli.features.documents.document import Document, Options

READERS: Mapping[str, Callable[[Path, Options], Document]] = {
    ".po": read_catalogue,
    ".pot": read_catalogue,
}


def is_document(path: Path) -> bool:
    """Whether a file is a document by its name; `.pot` is a language, too."""
    if path.suffix.lower() == ".pot":
        with path.open("rb") as file:
            return b'\nmsgid "' in file.read(2**16)
    return path.suffix.lower() in READERS


def read_document(path: Path, options: Options) -> Document:
    """Read a document; raises DocumentError if it is damaged or not in its encoding."""
    return READERS[path.suffix.lower()](path, options)
