"""Standard streams, results and output files of commands."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import typer

from mt_cli.corpus.plain_text import input_lines
from mt_cli.errors import InputError, MtError, reason
from mt_cli.machine.console import sanitize, say
from mt_cli.machine.storage import refusal

_CURSOR_MOVES = re.compile(r"(?:\r|\n|\x1b\[A)*")
"""Characters with which a progress bar moves to its line."""
_UTF8: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "line_buffering": True}


def use_utf8() -> None:
    """Make the standard streams use UTF-8 in every locale. Streams that another program has replaced are kept.

    What is written to a closed standard error goes nowhere: Python would write it to standard output.
    """
    for number in range(3):  # A file that is opened later must not take the number of a standard stream.
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = _ClosedInput()
    elif sys.stdin is sys.__stdin__:
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    if sys.stdout and sys.stdout is sys.__stdout__:
        sys.stdout = _Results(sys.stdout.buffer, **_UTF8)  # type: ignore[union-attr]
    if sys.stderr and sys.stderr is sys.__stderr__:
        sys.stderr = _Notices(sys.stderr.buffer, **_UTF8)  # type: ignore[union-attr]
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # Open until the end.


class _ClosedInput(io.StringIO):
    """Standard input that was closed before the start; reading it raises InputError."""

    @property
    def buffer(self) -> BinaryIO:
        raise InputError("standard input is closed; give sentences or a file")


class _Results(io.TextIOWrapper):
    """Standard output. A command ends with status 0 if the reader, such as `head`, has gone.

    Raises MtError if the results cannot be written.
    """

    def write(self, text: str) -> int:
        with self._failures():
            return super().write(text)

    def flush(self) -> None:
        with self._failures():
            super().flush()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # Prevents a second attempt to write at exit.
            raise _failure(None, error) from None


class _Notices(io.TextIOWrapper):
    """Standard error. Control characters cannot reach the terminal, and a failed write does not end a command."""

    def write(self, text: str) -> int:
        end = _CURSOR_MOVES.match(text).end()  # type: ignore[union-attr]
        with suppress(OSError):
            super().write(text[:end] + "\n".join(map(sanitize, text[end:].split("\n"))))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def show(*lines: str, is_result: bool = True) -> None:
    """Write the result of a command to standard output. The command continues if the reader has gone.

    If standard output is closed, raises MtError, unless the result is in a file, of which the lines are the name.
    """
    if sys.stdout is None and is_result:
        raise MtError("standard output is closed, so the result cannot be written")
    with suppress(typer.Exit):
        print(*lines, sep="\n", flush=True)


class Output:
    """Context manager that writes lines to a file or, if the path is None, to standard output.

    The file is opened, and its old content lost, when the first line is written or the context ends without an error.
    Raises InputError if the path cannot be a file.
    """

    def __init__(self, path: Path | None) -> None:
        check_output(path)
        if path is None and sys.stdout is None:
            raise InputError("standard output is closed; write to a file with --output FILE")
        self._path, self._file = path, sys.stdout if path is None else None

    def __enter__(self) -> Output:
        return self

    def write(self, text: str) -> None:
        """Write and flush one or several lines."""
        file = self._opened()
        try:
            print(text, file=file, flush=True)
        except OSError as error:
            raise _failure(self._path, error) from None

    def _opened(self) -> TextIO:
        if self._file is None:
            assert self._path is not None
            try:
                self._file = self._path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise refusal(self._path, error) from None
        return self._file

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._opened()
        if self._file is not None and self._path is not None:
            try:
                self._file.close()
            except OSError as failure:
                if error is None:  # After an error, closing fails in the same way again.
                    raise _failure(self._path, failure) from None


def _failure(path: Path | None, error: OSError) -> Exception:
    """Exception for results that cannot be written. It is not an error if a reader such as `head` has gone."""
    if isinstance(error, BrokenPipeError):
        return typer.Exit(0)
    return MtError(f"{path or 'standard output'}: {reason(error)}")


def check_output(path: Path | None) -> None:
    """Raise InputError if a file cannot be written at this path; OSError if it is no path at all."""
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise InputError(f"{path}: is a folder")
    if path is not None and path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz"):
        raise InputError(f"{path}: output is not compressed; give a name without {path.suffix}")


def check_distinct(files: Mapping[str, Path | int | None]) -> None:
    """Raise InputError if two options name one file; standard streams are given by their numbers."""
    for (first, one), (second, two) in combinations(files.items(), 2):
        if one is not None and two is not None and _is_same_file(one, two):
            raise InputError(f"{first} and {second} are one file; give another one")


def _is_same_file(one: Path | int, two: Path | int) -> bool:
    """Whether both are the same regular file, which need not exist yet."""
    try:
        return os.path.samefile(one, two) and os.path.isfile(one)
    except (OSError, ValueError):
        return isinstance(one, Path) and isinstance(two, Path) and os.path.realpath(one) == os.path.realpath(two)


def prompted_lines(as_lines: bool = False) -> Iterator[str]:
    """Lines that a user types after a prompt; without a terminal, the lines of standard input."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from input_lines(None, as_lines)
        return
    with suppress(ImportError):
        import readline  # noqa: F401  (makes `input` handle the arrow keys)
    say("One sentence per line; an empty line or Ctrl-D ends.")
    with suppress(EOFError):
        while (line := input("> ")).strip():
            try:
                text = as_utf8(line, "standard input", "utf-8")
            except InputError as error:
                say(f"mt: {error}; set the terminal to UTF-8, and give the line again")
                continue
            yield text
        return
    say()


def as_utf8(text: str, name: str, encoding: str) -> str:
    """Text that Python may have failed to decode with `encoding`, decoded as UTF-8.

    Raises InputError, whose message begins with `name`, if it is not UTF-8.
    """
    if not any("\udc80" <= character <= "\udcff" for character in text):
        return text
    content = text.encode(encoding, "surrogateescape")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {text!a} is not UTF-8 (0x{content[error.start]:02X})") from None
