"""Lines of plain text from a file or standard input. Refuses documents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mt_cli.corpus.languages import is_common, is_known, primary
from mt_cli.corpus.lines import COMPRESSIONS, decode_lines, opened, suffix_inside
from mt_cli.errors import InputError, reason

_OF_LINES = ("", ".txt")
"""Suffixes of plain text, besides codes of languages, as in `train.en`."""
_MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|html|xliff|tmx)\b|msgid \"|\d+:\d\d:\d\d[,.]\d+ -->|WEBVTT\s*$|\{\\rtf|%PDF-"
    r"|\\documentclass|\s*+\{?\s*+\"[^\"]+\"\s*[:=]\s*[\"\[{]",
    re.IGNORECASE,
)
"""Prefix of a line that only a document has."""
_NUM_EXAMINED = 32


def input_lines(path: Path | None, as_lines: bool = False) -> Iterator[str]:
    r"""Lines of a UTF-8 file, or of standard input, without their ends; only `\n` and `\r\n` end a line.

    A file is decompressed by its suffix, such as `.gz`. Raises InputError for text that is not UTF-8 and, unless
    `as_lines`, for a suffix that is not known as plain text, and for a document such as a catalogue.
    """
    name = "standard input" if path is None else str(path)
    if not as_lines and path is not None and path.is_file() and not has_lines(path):
        raise InputError(f"{name}: {suffix_inside(path)} is not known as plain text; --as-lines reads it line by line")
    try:
        with _open(path) as stream:
            for number, line in enumerate(decode_lines(stream, name), start=1):
                if not as_lines and number <= _NUM_EXAMINED and _MARKUP.match(line):
                    raise InputError(f"{name}, line {number}: a document, not plain text; --as-lines reads it as lines")
                yield line.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def has_lines(path: Path) -> bool:
    """True if a name says that a file has one sentence per line: `.txt`, no suffix, or a code of a language."""
    suffix = suffix_inside(path)
    code = suffix.removeprefix(".")
    # Codes of three letters for rare languages, such as `tex` and `org`, are more often formats.
    is_format = len(primary(code)) == len(code) == 3 and not is_common(code)
    return suffix.lower() in _OF_LINES or (is_known(code) and not is_format)


def check_plain_text(*paths: Path | None, as_lines: bool = False) -> None:
    """Raise InputError if a file cannot be read or is a document. Skip pipes and, with `as_lines`, all files."""
    for path in paths if not as_lines else ():
        if path is not None and (path.is_file() or not path.exists()):
            for _ in islice(input_lines(path), _NUM_EXAMINED):
                pass


def _standard_input() -> BinaryIO:
    """Standard input as a file of its own: a thread may wait for it when Python ends, which would close `sys.stdin`."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # Not a file of the operating system.
        return sys.stdin.buffer


def _open(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return _standard_input()
    return opened(path) if path.suffix in COMPRESSIONS else path.open("rb")
