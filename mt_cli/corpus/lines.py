"""Files as bytes and as lines of UTF-8 text.

A line ends at a line feed, or at a carriage return and line feed, and nowhere else.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from mt_cli.errors import CorpusError, reason
from mt_cli.runtime.files import check_regular

LONGEST = 10_000_000
"""Maximum size in bytes of a line, a cell of a table or a translation unit; each is held in memory."""
CHUNK_BYTES = 1 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}

_BEGINNINGS = {
    b"\x1f\x8b": "it is compressed with gzip; end its name in .gz, or decompress it",
    b"PK\x03\x04": "it is a ZIP archive, as .xlsx and .ods files are; unpack it, or save the text in it as UTF-8",
    b"PAR1\x15": "it is a Parquet file; end its name in .parquet",
}
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
"""Byte order marks of UTF-16 and UTF-32."""
_FEWEST_NULS = 8
"""Every eighth byte or more is NUL in UTF-16 and UTF-32, whose spaces and line ends have NUL bytes."""


def suffix_inside(path: Path) -> str:
    """Suffix of a name without that of its compression: `.tsv` for `a.tsv.gz`."""
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Context manager that opens a file for reading, decompressed by the suffix of its name.

    Raises CorpusError if it is not a file, or cannot be opened or decompressed.
    """
    name = COMPRESSIONS.get(path.suffix)
    try:
        check_regular(path)  # A corpus is read more than once, and a pipe cannot be.
        with path.open("rb") as file:
            if name is None:
                yield file
                return
            if not file.peek(1):  # Not even the content of an empty file.
                raise EOFError
            yield io.BufferedReader(cast(io.RawIOBase, _decompressed(file, name)), CHUNK_BYTES)
    except (OSError, lzma.LZMAError, EOFError) as error:
        problem = f"cannot be decompressed: it is no {name} file, or it is damaged or cut off; get it again"
        if isinstance(error, OSError) and error.errno is not None:
            problem = unreadable(path, error)
        raise CorpusError(f"{path}: {problem}") from None


def _decompressed(file: BinaryIO, name: str) -> Any:
    if name == "xz":
        return lzma.LZMAFile(file)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, "r"), name)


def unreadable(path: Path, error: OSError) -> str:
    """Reason why a file cannot be read, as the end of a message."""
    return reason(error) + (folder_note(path) if isinstance(error, FileNotFoundError) else "")


def folder_note(path: Path) -> str:
    """End of a message about a missing file: the folder where a relative path starts; empty for an absolute path."""
    return "" if path.is_absolute() else f"; relative paths are read from {Path.cwd()}"


def read_lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file without their ends; a byte order mark at the start is skipped.

    Raises CorpusError if the file cannot be read or is not UTF-8, with line and byte.
    """
    return (line.removesuffix("\n").removesuffix("\r") for line in read_whole_lines(path))


def read_whole_lines(path: Path) -> Iterator[str]:
    with opened(path) as file:
        yield from decode_lines(file, str(path))


def decode_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Lines of UTF-8 text with their ends, the first one without byte order mark.

    Raises CorpusError, whose message begins with `name`, for anything but lines of UTF-8 of limited length.
    """
    for number, line in enumerate(iter(partial(file.readline, LONGEST + 1), b""), start=1):
        if number == 1 and (problem := other_kind(line)):
            raise CorpusError(f"{name}: {problem}")
        if number == 1 and not line.endswith(b"\n") and b"\r" in line[:-1]:
            raise CorpusError(f"{name}: its lines end at carriage returns alone; convert them to line feeds")
        if len(line) > LONGEST:
            raise CorpusError(f"{name}, line {number:,}: longer than {LONGEST:,} bytes; write a sentence per line")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            place = error.start + len(line) - len(error.object)  # `error.object` has no byte order mark.
            raise CorpusError(f"{name}, line {number:,}, byte {place + 1:,}: {not_utf8(line, place)}") from None


def count_lines(path: Path) -> int:
    with opened(path) as file:
        return sum(1 for _ in file)


def other_kind(prefix: bytes) -> str | None:
    """Problem of a file whose first bytes are not UTF-8 text, such as a compressed one, and advice."""
    problem = next((problem for magic, problem in _BEGINNINGS.items() if prefix.startswith(magic)), None)
    if problem is None and (prefix.startswith(_WIDE) or prefix.count(b"\0") > len(prefix) // _FEWEST_NULS):
        return "not UTF-8 but UTF-16 or UTF-32; convert the file to UTF-8"
    return problem


def not_utf8(piece: bytes, place: int) -> str:
    """Problem of a piece of a file whose byte at `place` is not UTF-8."""
    advice = "convert the file to UTF-8, from windows-1252, windows-1251 (Cyrillic) or another encoding"
    return f"not UTF-8 (found 0x{piece[place]:02X}); {advice}"
