"""Table of document formats by the suffix of a file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mt_cli.documents.catalogues import read_catalogue
from mt_cli.documents.document import MAX_BYTES, Document, Options, check_size
from mt_cli.documents.html import read_html
from mt_cli.documents.keyed import read_json
from mt_cli.documents.markdown import read_markdown
from mt_cli.documents.office import MAX_ARCHIVE_BYTES, read_office
from mt_cli.documents.properties import read_properties
from mt_cli.documents.subtitles import read_srt, read_vtt
from mt_cli.documents.tables import read_csv, read_tsv
from mt_cli.documents.xliff import read_xliff_document

READERS: Mapping[str, Callable[[Path, Options], Document]] = {
    ".po": read_catalogue,
    ".pot": read_catalogue,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
    ".docx": read_office,
    ".odt": read_office,
    ".xlf": read_xliff_document,
    ".xliff": read_xliff_document,
    ".srt": read_srt,
    ".vtt": read_vtt,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".json": read_json,
    ".arb": read_json,
    ".properties": read_properties,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".mdx": read_markdown,
    ".mkd": read_markdown,
    ".rmd": read_markdown,
    ".qmd": read_markdown,
}


def is_document(path: Path) -> bool:
    """Whether a file is a document by its name; `.pot` is a language, too."""
    if path.suffix.lower() == ".pot":
        with path.open("rb") as file:
            return b'\nmsgid "' in file.read(2**16)
    return path.suffix.lower() in READERS


def check_document_size(path: Path) -> None:
    """Raise DocumentError if a document is too large to be read."""
    check_size(path, MAX_ARCHIVE_BYTES if READERS[path.suffix.lower()] is read_office else MAX_BYTES)


def read_document(path: Path, options: Options) -> Document:
    """Read a document; raises DocumentError if it is damaged or not in its encoding."""
    return READERS[path.suffix.lower()](path, options)
