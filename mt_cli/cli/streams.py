"""Standard streams, results and output files of commands."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TextIO

import typer

from mt_cli.errors import InputError, MtError, reason
from mt_cli.runtime.files import refusal


def use_utf8() -> None:
    """Make the standard streams use UTF-8 in every locale. Streams that another program has replaced are kept."""
    if sys.stdin is sys.__stdin__ and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Notices(sys.stderr.buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class _Notices(io.TextIOWrapper):
    """Standard error. A notice that cannot be written, as after a terminal was closed, ends no training."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def show(*lines: str) -> None:
    """Write the result of a command to standard output. The command continues if the reader has gone."""
    with suppress(typer.Exit):
        if lines:
            _print("\n".join(lines), sys.stdout)


def _print(text: str, file: TextIO, path: Path | None = None) -> None:
    """Write and flush lines; raises MtError or, if the reader has gone, as `head` does, Exit."""
    try:
        print(text, file=file, flush=True)
    except OSError as error:
        if path is None:  # Prevents a second attempt to write at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit from None
        raise MtError(f"{path or 'standard output'}: {reason(error)}") from None


class Output:
    """Context manager that writes lines to a file or, if the path is None, to standard output.

    The file is opened, and its old content lost but for the first `num_kept` bytes, when the first line is written or
    the context ends without an error. `check_output` says beforehand whether the path can be a file.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.num_kept, self._file = path, 0, sys.stdout if path is None else None

    def __enter__(self) -> Output:
        return self

    def write(self, text: str) -> None:
        _print(text, self._opened(), self.path)

    def _opened(self) -> TextIO:
        if self._file is None:
            assert self.path is not None
            try:
                self._file = self.path.open("a" if self.num_kept else "w", encoding="utf-8", newline="\n")
                if self.num_kept:
                    self._file.truncate(self.num_kept)
            except OSError as error:
                raise refusal(self.path, error) from None
        return self._file

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            self._opened()
        if self._file is not None and self.path is not None:
            try:
                self._file.close()
            except OSError as failure:
                raise MtError(f"{self.path}: {reason(failure)}") from None


def check_output(path: Path | None) -> None:
    """Raise InputError if a file cannot be written at this path; OSError if it is no path at all."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{path}: is a folder")
    if path.suffix.lower() in (".gz", ".zst", ".bz2", ".xz"):
        raise InputError(f"{path}: output is not compressed; give a name without {path.suffix}")


def check_distinct(files: Mapping[str, Path | int | None]) -> None:
    """Raise InputError if two options name one file; standard streams are given by their numbers."""
    for (first, one), (second, two) in combinations(files.items(), 2):
        if one is not None and two is not None and _is_same_file(one, two):
            raise InputError(f"{first} and {second} are one file; give another one")


def _is_same_file(one: Path | int, two: Path | int) -> bool:
    """True if both are the same regular file, which need not exist yet."""
    try:
        return os.path.samefile(one, two) and os.path.isfile(one)
    except (OSError, ValueError):
        return isinstance(one, Path) and isinstance(two, Path) and os.path.realpath(one) == os.path.realpath(two)
