"""Files and folders on disk: safe reading, atomic writing, sizes.

A run directory may come from an untrusted source. Only regular files of limited size are read from it, because a pipe
or a device can block for ever.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError

from mt_cli.errors import InputError, MtError, reason

T = TypeVar("T")


def is_out_of_room(error: OSError) -> bool:
    """True if a disk is full, read-only or broken: the work fails, and no other command line would help."""
    return error.errno in (errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EIO, errno.EDQUOT)


def is_wrong_path(error: OSError) -> bool:
    """True if the system rejects the path itself: too long, a loop of links, or no permission."""
    return error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM)


def refusal(path: Path, error: Exception, advice: str = "") -> MtError:
    """Error for an output that a user has named: MtError if the disk is full, read-only or broken, else InputError."""
    is_of_work = isinstance(error, OSError) and is_out_of_room(error)
    return (MtError if is_of_work else InputError)(f"{path}: cannot be written: {reason(error)}{advice}")


def real_path(path: Path) -> Path:
    """Absolute path without links; a loop of links is kept, and is no error."""
    return Path(os.path.realpath(path))


@contextmanager
def reading(path: Path, error_class: type[MtError] = InputError) -> Iterator[None]:
    """Context manager that turns an OSError about `path`, or a file below it, into an `error_class` with the reason.

    Other errors of the body pass.
    """
    try:
        yield
    except OSError as error:
        if not _is_about(error, path):
            raise
        raise error_class(f"{error.filename or path}: {reason(error)}") from None


@contextmanager
def writing(path: Path, note: str = "") -> Iterator[None]:
    """Context manager that turns an OSError about `path` into an MtError with the file, the reason and a note.

    So does one about a file below it, or with a longer name. Other errors of the body pass, such as a missing file
    elsewhere that it reads.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not (_is_about(error, path) if isinstance(error, OSError) else "I/O error" in str(error)):
            raise
        raise MtError(f"{path}: cannot be written: {reason(error)}{note}") from error


def _is_about(error: OSError, path: Path) -> bool:
    return error.filename is None or os.path.realpath(error.filename).startswith(os.path.realpath(path))


def check_regular(path: Path) -> int:
    """Size of a regular file in bytes; raises OSError for anything else."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"not a file but {kind}", str(path))
    return status.st_size


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Content of a regular file; raises OSError for anything else and for a file above `max_bytes`."""
    size = check_regular(path)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    with path.open("rb") as file:
        return file.read(size)  # Some files of the system have more bytes than their size, or no end.


def read_model(path: Path, kind: type[T], max_bytes: int = 2**24) -> T:
    """Read a JSON file, which may be untrusted, as a value of a type that pydantic can check.

    Raises InputError, which names the file, if it cannot be read, is too large, or does not have this type.
    """
    from pydantic import TypeAdapter  # Slow to import, and `mt --help` does not need it.

    with reading(path):
        content = read_regular(path, max_bytes)
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValueError as error:
        raise InputError(f"{path}: cannot be used: {reason(error)}") from None


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically; lone surrogates, as in names that are not UTF-8, become escapes."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def json_text(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def write_bytes(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: Path(temporary).write_bytes(content))


def append_row(path: Path, row: bytes) -> None:
    """Add a line to a record, so that it survives a crash of the machine; threads and processes take turns.

    Raises MtError, with the record unchanged, if the line cannot be written.
    """
    with writing(path), path.open("a+b", buffering=0) as file:
        with suppress(OSError):  # Not every file system has locks.
            fcntl.flock(file, fcntl.LOCK_EX)
        size, rest = file.seek(0, os.SEEK_END), row + b"\n"
        if size and file.seek(size - 1) >= 0 and file.read(1) != b"\n":  # Written by hand, or cut off by a crash.
            rest = b"\n" + rest
        try:
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user has named: through links, and atomically unless it is a pipe or a device."""
    if path.exists() and not path.is_file():
        with writing(path):
            path.write_bytes(content)
        return
    write_bytes(real_path(path), content)


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Have `write` fill a temporary file, flush it to disk and rename it: a crash leaves the old file or the new one.

    An existing file keeps its mode. Raises MtError if the file cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    with writing(path, "; the previous file is unchanged" if path.exists() else ""):
        temporary.unlink(missing_ok=True)  # Left by a process that was killed.
        temporary.touch()
        mode = (path if path.is_file() else temporary).stat().st_mode
        try:
            write(str(temporary))
            temporary.chmod(mode)  # safetensors creates files that only the owner may read.
            flush(temporary)
            os.replace(temporary, path)
        except BaseException:
            remove(temporary)
            raise
    with suppress(OSError):  # Not every file system can flush a folder.
        flush(path.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Context manager that yields a new empty folder; renames it to `folder` at the end, or removes it after an error.

    Only an empty folder of this name is replaced. A killed process leaves `NAME.unfinished-XXXXXXXX`, which does not
    prevent a second attempt. Raises InputError if the name is taken or the folder cannot be made.
    """
    if folder.name in ("", "..") or not is_free(folder):
        raise InputError(f"{folder}: exists already; give a new folder")
    unfinished = folder.with_name(f"{folder.name}.unfinished-{os.urandom(4).hex()}")
    try:
        unfinished.mkdir(parents=True)
    except (OSError, ValueError) as error:
        raise refusal(folder, error) from None
    try:
        yield unfinished
        mode = unfinished.stat().st_mode & 0o666
        with writing(folder):
            for path in [*unfinished.rglob("*"), unfinished]:
                if path.is_file():
                    path.chmod(mode)  # As in `write_atomically`.
                flush(path)
        try:
            unfinished.rename(folder)
        except OSError as error:
            raise refusal(folder, error, "; another process may have made it") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    with suppress(OSError):  # Not every file system can flush a folder.
        flush(folder.parent)


def first_free(path: Path, kind: str) -> Path:
    """First path `NAME.KIND-N` that nothing has, counted from 1."""
    return next(
        free
        for number in itertools.count(1)
        if not os.path.lexists(free := path.with_name(f"{path.name}.{kind}-{number}"))
    )


def is_free(folder: Path) -> bool:
    """True if nothing, or an empty folder, is at this path."""
    if not os.path.lexists(folder):
        return True
    with suppress(OSError):
        return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    return False


def remove(path: Path) -> None:
    """Remove a file that is no longer needed; errors are ignored."""
    with suppress(OSError):
        path.unlink()


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a folder, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_free_disk(folder: Path, num_bytes: float, what: str) -> None:
    """Raise MtError if fewer than `num_bytes` are free on the disk of `folder`."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        needs = f"{what} needs about {format_bytes(num_bytes)} there"
        raise MtError(f"{folder.parent}: {needs}, and only {format_bytes(free)} are free; make room")


def size_of(paths: Iterable[Path]) -> int:
    """Total bytes of files, and of all files in folders."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def format_bytes(num_bytes: float) -> str:
    """A size for display: `1.3 GB`."""
    if num_bytes < 1000:
        return f"{num_bytes:,.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        num_bytes /= 1000
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1000:,.1f} TB"
