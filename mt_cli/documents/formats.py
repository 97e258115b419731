"""Table of document formats by the suffix of a file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from mt_cli.documents.catalogues import read_catalogue
from mt_cli.documents.document import Document, Options
from mt_cli.documents.html import read_html
from mt_cli.documents.keyed import read_json
from mt_cli.documents.markdown import read_markdown
from mt_cli.documents.office import read_office
from mt_cli.documents.properties import read_properties
from mt_cli.documents.subtitles import read_srt, read_vtt
from mt_cli.documents.tables import read_csv, read_tsv
from mt_cli.documents.xliff import read_xliff_document

_SUFFIXES: Mapping[Callable[[Path, Options], Document], str] = {
    read_catalogue: ".po .pot",
    read_html: ".html .htm .xhtml",
    read_office: ".docx .odt",
    read_xliff_document: ".xlf .xliff",
    read_srt: ".srt",
    read_vtt: ".vtt",
    read_csv: ".csv",
    read_tsv: ".tsv",
    read_json: ".json .arb",
    read_properties: ".properties",
    read_markdown: ".md .markdown .mdx .mkd .rmd .qmd",
}
READERS = {suffix: reader for reader, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}


def is_document(path: Path) -> bool:
    return path.suffix.lower() in READERS


def is_of_other_format(output: Path, path: Path) -> bool:
    """True if the suffix of an output is that of another format than the one of a document."""
    kind, suffix = path.suffix.lower(), output.suffix.lower()
    reader = READERS.get(suffix)
    is_shared = reader is READERS[kind] and reader is not read_office  # `.docx` and `.odt` are two formats.
    return suffix != kind and not is_shared and (reader is not None or suffix == ".txt")


def read_document(path: Path, options: Options) -> Document:
    """Read a document; raises DocumentError if it is damaged or not in its encoding."""
    return READERS[path.suffix.lower()](path, options)
