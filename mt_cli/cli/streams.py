"""Lines in and lines out: files, pipes and terminals, whatever state they are in.

Results whose reader has gone end a command quietly; results that cannot be written end it with a message. Notices,
on standard error, never end it.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, islice
from pathlib import Path
from typing import IO, Any, NoReturn, TextIO

import typer

from mt_cli.console import harmless
from mt_cli.corpus.lines import LONGEST, decoded, foreign_kind
from mt_cli.errors import CorpusError, InputError, MtError, reason

_FIRST_BLOCK, _LARGEST_BLOCK = 32, 2048
_STEERING = re.compile(r"(?:\r|\n|\x1b\[A)*")
"""What a progress bar writes first, to come to its line."""
_WRITTEN: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "line_buffering": True}


def open_standard_streams() -> None:
    """Have the three standard streams be there and be UTF-8; to be called before anything opens a file.

    A closed one becomes the null device, so that no file takes its number. It is opened the wrong way round: reading
    standard input and writing results fail as they would without it.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    # Streams that something else has put in their place are left alone.
    if sys.stdin is sys.__stdin__:
        source: Any = io.BufferedReader(io.FileIO(0, closefd=False)) if sys.stdin is None else sys.stdin.buffer
        sys.stdin = io.TextIOWrapper(source, encoding="utf-8", errors="surrogateescape")
    if sys.stdout is sys.__stdout__:
        sys.stdout = io.TextIOWrapper(_guarded(1, sys.stdout, _end), **_WRITTEN)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _Notices(_guarded(2, sys.stderr, lambda error: None), **_WRITTEN)


class _Guarded(io.RawIOBase):
    """A file to write to, and what is done when that fails; what could not be written is lost then."""

    def __init__(self, raw: io.RawIOBase, on_error: Callable[[OSError], None]) -> None:
        self._raw, self._on_error = raw, on_error

    def write(self, content: Any) -> int:
        try:
            return self._raw.write(content) or 0  # Nothing, for now: it is tried again.
        except OSError as error:
            self._on_error(error)
            return len(content)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


def _guarded(number: int, stream: TextIO | None, on_error: Callable[[OSError], None]) -> io.BufferedWriter:
    raw: Any = io.FileIO(number, "w", closefd=False) if stream is None else stream.buffer
    return io.BufferedWriter(_Guarded(getattr(raw, "raw", raw), on_error))


class _Notices(io.TextIOWrapper):
    """Standard error, on which texts of files and users cannot steer the terminal."""

    def write(self, text: str) -> int:
        end = _STEERING.match(text).end()  # type: ignore[union-attr]
        super().write(text[:end] + "\n".join(map(harmless, text[end:].split("\n"))))
        return len(text)


def _end(error: OSError) -> NoReturn:
    """End a command whose results cannot be written to standard output; what is still to be written goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise _failure("standard output", error)


def _failure(name: str, error: OSError) -> Exception:
    """What ends a command whose results cannot be written: nothing is wrong if the reader has gone, as `head` does."""
    if isinstance(error, ConnectionError):
        return typer.Exit(0)
    return MtError(f"{name}: {reason(error)}")


def show(*lines: str) -> None:
    """Write the whole result of a command to standard output; if its reader has gone, the command goes on."""
    with suppress(typer.Exit):
        print(*lines, sep="\n", flush=True)


def input_lines(path: Path | None) -> Iterator[str]:
    """Lines without their ends, as they come; lines end at a line feed only, and are UTF-8."""
    name = "standard input" if path is None else str(path)
    try:
        with sys.stdin.buffer if path is None else path.open("rb") as stream:
            for number, line in enumerate(iter(lambda: stream.readline(LONGEST + 1), b""), start=1):
                if len(line) > LONGEST:
                    raise InputError(f"{name}, line {number:,}: longer than {LONGEST:,} bytes; that is no text")
                try:
                    yield decoded(line, number, name).removesuffix("\n").removesuffix("\r")
                except CorpusError:
                    if number == 1 and (problem := foreign_kind(line)):
                        raise InputError(f"{name}: {problem}") from None
                    raise
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def read_lines(path: Path) -> list[str]:
    """All lines of a file."""
    return list(input_lines(path))


def prompted_lines() -> Iterator[str]:
    """Lines that a person types, who is asked for each; without a terminal, lines as they come."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from input_lines(None)
        return
    with suppress(ImportError):
        import readline  # noqa: F401  (with it, `input` knows the arrow keys)
    print("One sentence a line; an empty line or Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except EOFError:
            print(file=sys.stderr)
            return
        if not line.strip():
            return
        yield as_utf8(line, "standard input", "utf-8")


def as_utf8(text: str, name: str, encoding: str) -> str:
    """A text that Python has decoded by another encoding, decoded as UTF-8 where that one did not do.

    Raises:
        InputError: if it is not UTF-8; the message begins with the name.
    """
    if not any("\udc80" <= character <= "\udcff" for character in text):
        return text
    content = text.encode(encoding, "surrogateescape")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {text!a} is not UTF-8 (0x{content[error.start]:02X})") from None


def check_distinct(files: Mapping[str, Path | int | None]) -> None:
    """Raise InputError if two options (or standard streams, given as numbers) are one file."""
    places = {name: place for name, file in files.items() if file is not None and (place := _place_of(file))}
    for first, second in combinations(places, 2):
        if places[first] == places[second]:
            raise InputError(f"{first} and {second} are one file; give another one")


def _place_of(file: Path | int) -> object:
    """What is equal for two names of one file, which may not exist yet; None of devices and pipes."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return os.path.realpath(file) if isinstance(file, Path) else None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lines in blocks to be translated together: small ones first, so that an answer comes soon, and then larger."""
    iterator, size = iter(lines), _FIRST_BLOCK
    while block := list(islice(iterator, size)):
        yield block
        size = min(2 * size, _LARGEST_BLOCK)


class Output:
    """A context that writes lines to a file, or to standard output.

    A file is opened, and what was in it is gone, when the first line is written, or when all has gone well without one.

    Raises:
        InputError: if there can be no such file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._file = path, sys.stdout if path is None else None
        if path is None:
            return
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}")
        if path.is_dir():
            raise InputError(f"{path}: is a folder")

    def __enter__(self) -> Output:
        return self

    def write(self, text: str) -> None:
        """One line, or several; they are out when this returns."""
        file = self._opened()
        try:
            print(text, file=file, flush=True)
        except OSError as error:
            raise _failure(str(self._path or "standard output"), error) from None

    def _opened(self) -> IO[str]:
        if self._file is None:
            assert self._path is not None
            try:
                self._file = self._path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise InputError(f"{self._path}: {reason(error)}") from None
        return self._file

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._opened()
        if self._file is not None and self._path is not None:
            try:
                self._file.close()
            except OSError as failure:
                if error is None:  # Else it is that one, again.
                    raise _failure(str(self._path), failure) from None
