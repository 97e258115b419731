"""Lines in and lines out: files, pipes and terminals. Output that nobody reads any more ends a command quietly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO

import typer

from mt_cli.errors import InputError

_FIRST_BLOCK, _LARGEST_BLOCK = 32, 2048


def input_lines(path: Path | None) -> Iterator[str]:
    """Lines without their ends, as they come; lines end at a line feed only, and are UTF-8."""
    name = "standard input" if path is None else str(path)
    try:
        with sys.stdin.buffer if path is None else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    yield text.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    where = f"{name}, line {number:,}, byte {error.start + 1}"
                    raise InputError(f"{where}: not UTF-8 (0x{text[error.start]:02X})") from None
    except OSError as error:
        raise InputError(f"{name}: {(error.strerror or str(error)).lower()}") from None


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
        yield line


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
        InputError: if there can be no such file, or it is one of the `inputs`.
    """

    def __init__(self, path: Path | None, inputs: Iterable[Path | None] = ()) -> None:
        self._path, self._file = path, sys.stdout if path is None else None
        if path is None:
            return
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}")
        if path.is_dir():
            raise InputError(f"{path}: is a folder")
        if any(each is not None and each.exists() and path.exists() and path.samefile(each) for each in inputs):
            raise InputError(f"{path}: is read from; give the output another name")

    def __enter__(self) -> Output:
        return self

    def write(self, text: str) -> None:
        """One line, or several; they are out when this returns."""
        try:
            print(text, file=self._opened(), flush=True)
        except BrokenPipeError:  # The reader has gone, as `head` does; nothing is wrong.
            drop_output()
            raise typer.Exit(0) from None

    def _opened(self) -> IO[str]:
        if self._file is None:
            assert self._path is not None
            try:
                self._file = self._path.open("w", encoding="utf-8", newline="\n")
            except OSError as error:
                raise InputError(f"{self._path}: {(error.strerror or str(error)).lower()}") from None
        return self._file

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._opened()
        if self._file is not None and self._file is not sys.stdout:
            self._file.close()


def drop_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
