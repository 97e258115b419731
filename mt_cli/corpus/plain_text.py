"""Lines of plain text from a file or standard input. Refuses documents, with advice on how to convert them."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from mt_cli.corpus.lines import COMPRESSIONS, decode_lines, opened
from mt_cli.errors import InputError, reason

_ADVICE = {
    "po": "mt translate --input FILE --output NEW.po translates it; for scores, write its texts into a file, one a "
    "line",
    "xlf xliff sdlxliff mqxliff mxliff txlf tmx tbx": "export the source segments from your translation program, one "
    "a line; to train on a memory (.tmx), use mt init --file FILE",
    "html htm xhtml md markdown rst adoc org wiki tex latex docx epub": "convert it with `pandoc --to plain --wrap "
    "none FILE -o lines.txt`",
    "odt rtf doc pptx ppt odp": "convert it with `soffice --headless --convert-to txt FILE`",
    "pdf": "convert it with `pdftotext FILE lines.txt`",
    "srt vtt ass ssa sbv": "keep the text of its cues, for example with `grep -vE '^[0-9]+.?$|-->' FILE > lines.txt`",
    "tsv": "write its first column with `cut -f1 FILE > lines.txt`",
    "csv xlsx xls ods parquet": "write the column to translate into a file of its own",
    "jsonl ndjson": "write the texts of a key with `jq -r .KEY FILE > lines.txt`",
    "xml resx dita svg ttml sgm sgml json arb xcstrings ipynb yaml yml properties strings stringsdict ftl ini toml": (
        "write its texts into a file, one a line, and put the translations back"
    ),
}
"""How to get plain text from a document by the suffixes of its name, with `FILE` in place of the path."""
_BY_SUFFIX = {f".{suffix}": advice for suffixes, advice in _ADVICE.items() for suffix in suffixes.split()}
# `.pot` and `.ts` are codes of languages, as in `train.ts`. Their content tells.
_MARKUP = re.compile(
    r"\s*<(?:\?xml|!doctype|html|xliff|tmx)\b|msgid \"|\d+:\d\d:\d\d[,.]\d+ -->|WEBVTT\s*$|\{\\rtf|%PDF-"
    r"|\\documentclass|\s*+\{?\s*+\"[^\"]+\"\s*[:=]\s*[\"\[{]",
    re.IGNORECASE,
)
"""Beginning of a line that only a document has."""
_NUM_EXAMINED = 32
"""Number of first lines that are examined."""


def input_lines(path: Path | None, as_lines: bool = False) -> Iterator[str]:
    r"""Lines of a UTF-8 file, or of standard input, without their ends; only `\n` and `\r\n` end a line.

    A file is decompressed if its name ends in `.gz` or `.zst`. Raises InputError for text that is not UTF-8 and, unless
    `as_lines`, for a document such as a catalogue or a table.
    """
    name = "standard input" if path is None else str(path)
    if not as_lines and path is not None and path.exists():
        inner = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
        if advice := _BY_SUFFIX.get(inner.suffix.lower()):
            raise _refusal(name, advice.replace("FILE", shlex.quote(name) if inner is path else "FILE"))
    try:
        with _open(path) as stream:
            for number, line in enumerate(decode_lines(stream, name), start=1):
                if not as_lines and number <= _NUM_EXAMINED and _MARKUP.match(line):
                    raise _refusal(f"{name}, line {number}", "write its texts into a file, one a line")
                yield line.removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def check_plain_text(*paths: Path | None, as_lines: bool = False) -> None:
    """Raise InputError if a file cannot be read or is a document. Skip pipes and, with `as_lines`, all files."""
    for path in paths if not as_lines else ():
        if path is not None and (path.is_file() or not path.exists()):
            for _ in islice(input_lines(path), _NUM_EXAMINED):
                pass


def _refusal(where: str, advice: str) -> InputError:
    return InputError(
        f"{where}: a document, not plain text with one sentence per line; {advice}; --as-lines reads it as lines all "
        "the same"
    )


def _open(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return sys.stdin.buffer
    return opened(path) if path.suffix in COMPRESSIONS else path.open("rb")
