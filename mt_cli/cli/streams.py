"""Lines from and to files, pipes and terminals, in any state.

A command ends quietly if the reader of its results has gone, and with a message if results cannot be written. Notices
on standard error never end a command.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import combinations, islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, TextIO

import typer

from mt_cli.corpus.documents import MOST_LINES, Document, document_by_content, document_by_name
from mt_cli.corpus.lines import COMPRESSIONS, decode_lines, opened
from mt_cli.errors import InputError, MtError, reason
from mt_cli.machine.console import harmless, say
from mt_cli.machine.storage import refusal

_CURSOR_MOVES = re.compile(r"(?:\r|\n|\x1b\[A)*")
"""The characters with which a progress bar moves to its line."""
_LINES_THAT_TELL = (1, 2, 3, 4, 8, 16, MOST_LINES)
"""Numbers of the lines at which the beginning of a stream is looked at: a program may wait for the first answer."""
_TEXT_OPTIONS: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "line_buffering": True}


def open_standard_streams() -> None:
    """Make the three standard streams exist and use UTF-8; must be called before any file is opened.

    A closed stream becomes the null device, so that no file gets its number. The null device is opened in the wrong
    direction, so that reading standard input and writing results fail as they would without it.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)
    # Streams that another program has replaced are kept.
    if sys.stdin is sys.__stdin__:
        source: Any = io.BufferedReader(io.FileIO(0, closefd=False)) if sys.stdin is None else sys.stdin.buffer
        sys.stdin = io.TextIOWrapper(source, encoding="utf-8", errors="surrogateescape")
    if sys.stdout is sys.__stdout__:
        sys.stdout = io.TextIOWrapper(_guarded(1, sys.stdout, _end), **_TEXT_OPTIONS)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _Notices(_guarded(2, sys.stderr, lambda error: None), **_TEXT_OPTIONS)


class _Guarded(io.RawIOBase):
    """A file that calls `on_error` when writing fails; what could not be written is lost."""

    def __init__(self, raw: io.RawIOBase, on_error: Callable[[OSError], None]) -> None:
        self._raw, self._on_error = raw, on_error
        self.fileno, self.isatty = raw.fileno, raw.isatty  # type: ignore[method-assign]

    def write(self, content: Any) -> int:
        try:
            return self._raw.write(content) or 0  # None means 0 for now: it is tried again.
        except OSError as error:
            self._on_error(error)
            return len(content)

    def writable(self) -> bool:
        return True


def _guarded(number: int, stream: TextIO | None, on_error: Callable[[OSError], None]) -> io.BufferedWriter:
    raw: Any = io.FileIO(number, "w", closefd=False) if stream is None else stream.buffer
    return io.BufferedWriter(_Guarded(getattr(raw, "raw", raw), on_error))


class _Notices(io.TextIOWrapper):
    """Standard error; control characters in texts of files and users cannot reach the terminal."""

    def write(self, text: str) -> int:
        end = _CURSOR_MOVES.match(text).end()  # type: ignore[union-attr]
        super().write(text[:end] + "\n".join(map(harmless, text[end:].split("\n"))))
        return len(text)


def _end(error: OSError) -> NoReturn:
    """End a command whose results cannot be written to standard output; buffered output is discarded."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise _failure("standard output", error)


def _failure(name: str, error: OSError) -> Exception:
    """The exception for results that cannot be written; a reader that has gone, such as `head`, is no error."""
    return typer.Exit(0) if isinstance(error, ConnectionError) else MtError(f"{name}: {reason(error)}")


def show(*lines: str) -> None:
    """Write the whole result of a command to standard output; the command continues if the reader has gone."""
    with suppress(typer.Exit):
        print(*lines, sep="\n", flush=True)


def input_lines(path: Path | None, as_lines: bool = False) -> Iterator[str]:
    """The lines of a file or of standard input, UTF-8, without their ends; only a line feed ends a line.

    A file is decompressed if its name ends in `.gz` or `.zst`. Raises InputError for a document, such as a catalogue or
    a table, unless `as_lines`.
    """
    name = "standard input" if path is None else str(path)
    beginning: list[str] = []
    if not as_lines:
        _refuse_document(path, document_by_name(path) if path is not None and path.exists() else None)
    try:
        with _open_input(path) as stream:
            for number, line in enumerate(decode_lines(stream, name), start=1):
                text = line.removesuffix("\n").removesuffix("\r")
                if not as_lines and number <= MOST_LINES:
                    beginning.append(text)
                    if number in _LINES_THAT_TELL:
                        _refuse_document(path, document_by_content(beginning))
                yield text
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None


def check_lines(*paths: Path | None, as_lines: bool = False) -> None:
    """Raise InputError if a file cannot be read, or is a document; streams, which can be read only once, are not read.

    Nothing is checked with `as_lines`.
    """
    for path in paths if not as_lines else ():
        if path is None or (path.exists() and not path.is_file()):
            continue
        lines = list(islice(input_lines(path), MOST_LINES))
        _refuse_document(path, document_by_content(lines))


def _refuse_document(path: Path | None, document: Document | None) -> None:
    """Raise InputError, with a way to get plain text, if a file or stream is a document."""
    if document is not None:
        is_whole = path is not None and path.suffix not in COMPRESSIONS
        advice = document.advice.replace("FILE", shlex.quote(str(path)) if is_whole else "FILE")
        raise InputError(
            f"{path or 'standard input'}: {document.name}, not plain text with one sentence per line; {advice}; "
            "--as-lines reads it as lines all the same"
        )


def _open_input(path: Path | None) -> AbstractContextManager[BinaryIO]:
    if path is None:
        return sys.stdin.buffer
    return opened(path) if path.suffix in COMPRESSIONS else path.open("rb")


def prompted_lines(as_lines: bool = False) -> Iterator[str]:
    """Lines that a user types after a prompt, which those that are not UTF-8 do not end.

    Without a terminal, the lines of standard input.
    """
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
    """The text; if Python could not decode it with `encoding`, decoded as UTF-8.

    Raises InputError if it is not UTF-8; the message begins with the name.
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
    ids = {name: found for name, file in files.items() if file is not None and (found := _file_id(file))}
    for first, second in combinations(ids, 2):
        if ids[first] == ids[second]:
            raise InputError(f"{first} and {second} are one file; give another one")


def _file_id(file: Path | int) -> object:
    """A value that is equal for two names of one file, which may not exist yet; None for devices and pipes."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return os.path.realpath(file) if isinstance(file, Path) else None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def check_output(path: Path | None) -> None:
    """Raise InputError if a path that will be written to cannot be a file; OSError if it cannot be a path."""
    if path is not None and not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise InputError(f"{path}: is a folder")


def check_outputs(
    source: Path | int | None, output: Path | None, alignment: Path | None, attention: Path | None
) -> None:
    """Raise InputError if an output cannot be a file, or is that of another option or the source of the lines."""
    for path in (output, alignment, attention):
        check_output(path)
    read = {"standard input" if source == 0 else "--input": source}
    written = {"--output": output} if output else {"standard output": 1}
    check_distinct({**read, **written, "--alignment": alignment, "--attention": attention})


def check_shared(sentences: list[str] | None, path: Path | None) -> None:
    """Raise InputError unless several processes can read the same lines."""
    if not sentences and (path is None or _is_stream(path)):
        raise InputError("several processes cannot share a stream; give a file with --input")
    if path is not None:
        next(input_lines(path, as_lines=True), None)  # Raises if it cannot be read.


def _is_stream(path: Path) -> bool:
    """Whether a path is that of a pipe or device, or of one that only the launcher can open, such as `<(...)`."""
    if path.exists():
        return not (path.is_file() or path.is_dir())
    return path.is_relative_to("/dev") or path.is_relative_to("/proc")


class Output:
    """Context manager that writes lines to a file or, for None, to standard output.

    The file is opened, and its old content lost, when the first line is written or the context ends without an error.
    Raises InputError if the path cannot be a file.
    """

    def __init__(self, path: Path | None) -> None:
        check_output(path)
        self._path, self._file = path, sys.stdout if path is None else None

    def __enter__(self) -> Output:
        return self

    def write(self, text: str) -> None:
        """Write and flush one or several lines."""
        file = self._opened()
        try:
            print(text, file=file, flush=True)
        except OSError as error:
            raise _failure(str(self._path or "standard output"), error) from None

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
                if error is None:  # Otherwise it is the same failure again.
                    raise _failure(str(self._path), failure) from None
