"""Table of documents: files with text inside markup, tables or structures, which cannot be read line by line.

A document is recognised by the suffix of its name, or by its first lines where the name says nothing: plain text that
contains markup here and there, such as `<b>` or a tab, is plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.lines import COMPRESSIONS

MOST_LINES = 32
"""Number of first lines of a file that are examined to recognise a document."""
_MOST_CHARACTERS = 20_000
_FEWEST_ROWS = 3


class Document(NamedTuple):
    """A kind of document."""

    name: str
    """Name with an article, for messages."""
    suffixes: str
    """Suffixes of file names without their dots, separated by spaces."""
    beginning: str | None
    """Regular expression for the first lines; None if plain text may begin in the same way."""
    advice: str
    """How to get plain text, with `FILE` in place of the path."""


_DOCUMENTS = (
    Document(
        "a gettext catalogue",
        "po",
        r'(?:[ \t]*(?:#[^\n]*)?\n)*msg(?:id|ctxt) "',
        'use the program in docs/localisation.md, "Fill the gaps of a catalogue"',
    ),
    Document(
        "an XLIFF file",
        "xlf xliff sdlxliff mqxliff mxliff txlf xlz mqxlz",
        r"\s*(?:<\?xml[^>]*>\s*)?<xliff\b",
        "export its source text from your translation program, one segment a line; or convert it with xliff2po of the "
        "Translate Toolkit and follow docs/localisation.md",
    ),
    Document(
        "a translation memory",
        "tmx tbx",
        r"\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE tmx[^>]*>\s*)?<tmx\b",
        "write its source segments into a file, one a line; to train on it, use mt init --file FILE",
    ),
    Document(
        "a document with markup",
        "html htm xhtml md markdown mdx rmd qmd rst adoc asciidoc org wiki mediawiki textile tex latex docx epub mobi "
        "fb2",
        r"\s*(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?i:!doctype html|html|head|body)\b"
        r"|\s*(?:%[^\n]*\n\s*)*\\documentclass\b",
        "convert it with `pandoc --to plain --wrap none FILE -o lines.txt`",
    ),
    Document(
        "a file of texts for a program",
        "xml resx dita svg ttml dfxp sgm sgml json arb xcstrings ipynb yaml yml properties strings stringsdict ftl"
        " resw ini toml",
        r'\s*<(?:\?xml|!DOCTYPE|TS|srcset|refset)\b|\s*[\[{]\s*\n\s*["\[{]'
        r'|(?:/\*(?:[^*]|\*(?!/))*\*/|//[^\n]*\n|\s)*"(?:[^"\\\n]|\\.)*"\s*=\s*"(?:[^"\\\n]|\\.)*"\s*;',
        "write its texts into a file, one a line, and put the translations back",
    ),
    Document(
        "a file of subtitles",
        "srt vtt ass ssa sbv",
        r"\s*\d+\s*\n\s*\d+:\d\d:\d\d[,.]\d+\s*-->|WEBVTT[ \t]*\n|WEBVTT[ \t][^\n]*\n(?:[^\n]*\n)*?[^\n]*-->"
        r"|\[Script Info\]",
        "keep the text of its cues, for example with `grep -vE '^[0-9]+.?$|-->' FILE > lines.txt`",
    ),
    Document("a table", "tsv", None, "write its first column with `cut -f1 FILE > lines.txt`"),
    Document("a spreadsheet", "csv xlsx xls ods parquet", None, "write the column to translate into a file of its own"),
    Document("JSON lines", "jsonl ndjson", None, "write the texts of a key with `jq -r .KEY FILE > lines.txt`"),
    Document("a PDF", "pdf", r"%PDF-", "convert it with `pdftotext FILE lines.txt`"),
    Document(
        "an office document",
        "odt rtf doc pptx ppt odp",
        r"\{\\rtf",
        "convert it with `soffice --headless --convert-to txt FILE`",
    ),
)
_BY_SUFFIX = {f".{suffix}": document for document in _DOCUMENTS for suffix in document.suffixes.split()}
_BY_BEGINNING = [(re.compile(kind.beginning), kind) for kind in _DOCUMENTS if kind.beginning]
# `.pot` and `.ts` are not in the table: `pot` and `ts` are codes of languages, as in `train.ts`. Their content tells.
_TABLE, _JSON_LINES = _BY_SUFFIX[".tsv"], _BY_SUFFIX[".jsonl"]


def document_by_name(path: Path) -> Document | None:
    """Kind of document that the suffix of a path names, also below `.gz`; None for other names."""
    name = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
    return _BY_SUFFIX.get(name.suffix.lower())


def document_by_content(lines: Sequence[str]) -> Document | None:
    """Kind of document that begins with these lines; None if they seem to be plain text."""
    text = "\n".join(lines[:MOST_LINES])[:_MOST_CHARACTERS] + "\n"
    for pattern, document in _BY_BEGINNING:
        if pattern.match(text):
            return document
    filled = [line for line in lines[:MOST_LINES] if line.strip()]
    if filled and _is_json_object(filled[0]):
        return _JSON_LINES
    counts = {line.strip(" \r").count("\t") for line in filled}
    has_cells = all(all(cell.strip() for cell in line.split("\t")[:2]) for line in filled)
    return _TABLE if len(filled) >= _FEWEST_ROWS and len(counts) == 1 and counts != {0} and has_cells else None


def _is_json_object(line: str) -> bool:
    if not (line.lstrip().startswith("{") and line.rstrip().endswith("}")):
        return False
    try:
        value = json.loads(line[:_MOST_CHARACTERS])
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value)
