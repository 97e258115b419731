"""Lines of plain text from a file or standard input. Documents are refused with advice how to convert them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mt_cli.corpus.documents import MOST_LINES, Document, document_by_content, document_by_name
from mt_cli.corpus.lines import COMPRESSIONS, decode_lines, opened
from mt_cli.errors import InputError, reason

_CHECKED_AT = (1, 2, 3, 4, 8, 16, MOST_LINES)
"""Numbers of lines after which the text so far is checked: an interactive program may wait for the first answer."""


def input_lines(path: Path | None, as_lines: bool = False) -> Iterator[str]:
    r"""Lines of a UTF-8 file, or of standard input, without their ends; only `\n` and `\r\n` end a line.

    A file is decompressed if its name ends in `.gz` or `.zst`. Raises InputError for text that is not UTF-8 and, unless
    `as_lines`, for a document such as a catalogue or a table.
    """
    name = "standard input" if path is None else str(path)
    beginning: list[str] = []
    if not as_lines and path is not None and path.exists():
        _refuse_document(path, document_by_name(path))
    try:
        with _open(path) as stream:
            for number, line in enumerate(decode_lines(stream, name), start=1):
                text = line.removesuffix("\n").removesuffix("\r")
                if not as_lines and number <= MOST_LINES:
                    beginning.append(text)
                    if number in _CHECKED_AT:
                        _refuse_document(path, document_by_content(beginning))
                yield text
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def check_plain_text(*paths: Path | None, as_lines: bool = False) -> None:
    """Raise InputError if a file cannot be read or is a document. Skip pipes and, with `as_lines`, all files."""
    for path in paths if not as_lines else ():
        if path is not None and (path.is_file() or not path.exists()):
            _refuse_document(path, document_by_content(list(islice(input_lines(path), MOST_LINES))))


def _refuse_document(path: Path | None, document: Document | None) -> None:
    """Raise InputError, with a way to get plain text, unless `document` is None."""
    if document is not None:
        has_path = path is not None and path.suffix not in COMPRESSIONS
        advice = document.advice.replace("FILE", shlex.quote(str(path)) if has_path else "FILE")
        raise InputError(
            f"{path or 'standard input'}: {document.name}, not plain text with one sentence per line; {advice}; "
            "--as-lines reads it as lines all the same"
        )


def _open(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return sys.stdin.buffer
    return opened(path) if path.suffix in COMPRESSIONS else path.open("rb")
