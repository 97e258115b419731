"""Lines of plain text from a file or standard input. Refuses documents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mt_cli.corpus.lines import COMPRESSIONS, decode_lines, opened
from mt_cli.errors import InputError, reason

_DOCUMENT = re.compile(
    r"\.(?:po|xlf|xliff|\w*xliff|tmx|html?|xhtml|md|markdown|rst|tex|epub|od[tps]|rtf|docx?|pptx?|pdf|srt|vtt|ass"
    r"|[ct]sv|xlsx?|parquet|jsonl?|xml|ya?ml|properties|strings)",
    re.IGNORECASE,
)
"""Suffix of a document."""
# `.pot` and `.ts` are codes of languages, as in `train.ts`. Their content tells.
_MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|html|xliff|tmx)\b|msgid \"|\d+:\d\d:\d\d[,.]\d+ -->|WEBVTT\s*$|\{\\rtf|%PDF-"
    r"|\\documentclass|\s*+\{?\s*+\"[^\"]+\"\s*[:=]\s*[\"\[{]",
    re.IGNORECASE,
)
"""Prefix of a line that only a document has."""
_NUM_EXAMINED = 32
"""Number of first lines that are examined."""


def input_lines(path: Path | None, as_lines: bool = False) -> Iterator[str]:
    r"""Lines of a UTF-8 file, or of standard input, without their ends; only `\n` and `\r\n` end a line.

    A file is decompressed by its suffix, such as `.gz`. Raises InputError for text that is not UTF-8 and, unless
    `as_lines`, for a document such as a catalogue or a table.
    """
    name = "standard input" if path is None else str(path)
    if not as_lines and path is not None and path.exists():
        inner = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
        if _DOCUMENT.fullmatch(inner.suffix):
            raise _refusal(name)
    try:
        with _open(path) as stream:
            for number, line in enumerate(decode_lines(stream, name), start=1):
                if not as_lines and number <= _NUM_EXAMINED and _MARKUP.match(line):
                    raise _refusal(f"{name}, line {number}")
                yield line.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def check_plain_text(*paths: Path | None, as_lines: bool = False) -> None:
    """Raise InputError if a file cannot be read or is a document. Skip pipes and, with `as_lines`, all files."""
    for path in paths if not as_lines else ():
        if path is not None and (path.is_file() or not path.exists()):
            for _ in islice(input_lines(path), _NUM_EXAMINED):
                pass


def _refusal(where: str) -> InputError:
    return InputError(
        f"{where}: a document, not plain text with one sentence per line; write its sentences into a file, one a line "
        "(mt translate --input translates most documents as they are); --as-lines reads it as lines all the same"
    )


def _open(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return sys.stdin.buffer
    return opened(path) if path.suffix in COMPRESSIONS else path.open("rb")
