"""Files and folders on disk: read if they are regular, written whole or not at all. Knows nothing of their content.

A run directory may come from elsewhere. What is read of it is a regular file of limited size, behind a link too: a
pipe or a device could keep the reader for ever. What is written into it stays in it: a link that has the name of a file
is replaced by the file, and a link that has the name of a folder is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from mt_cli.errors import InputError, MtError, RunError, reason


@contextmanager
def reading(path: Path, error_class: type[MtError] = InputError) -> Iterator[None]:
    """Context manager that turns an OSError into an `error_class` that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise error_class(f"{path}: {reason(error)}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context manager that turns an error of the file system into an MtError that names the path and the reason."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise MtError(f"{path}: cannot be written: {reason(error)}") from error


def check_regular(path: Path) -> int:
    """The size of a file in bytes; raises OSError for what is no regular file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise OSError(errno.EINVAL, f"not a file but {kind}", str(path))
    return status.st_size


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The content of a file; raises OSError for what is no regular file, or a larger one."""
    size = check_regular(path)
    if size > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", str(path))
    with path.open("rb") as file:
        return file.read(size)  # Some files of the system are longer than they say, and without end.


def check_plain(folder: Path) -> None:
    """Raise RunError if there is anything but files and folders in the folder of a run.

    Files that grow are written in place, so that a link would lead out of the folder and a pipe would block.
    """
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Another process has renamed it meanwhile.
            if stat.S_IFMT(path.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                raise RunError(
                    f"{path}: a link, a pipe or a device; training writes only into a run directory that has nothing "
                    "but files and folders in it: remove it, or put the file itself there"
                )


def make_folder(folder: Path) -> None:
    """Make a folder in a run directory unless it is there.

    Raises:
        RunError: if it is a link, through which nothing is written.
        OSError: if it cannot be made.
    """
    if folder.is_symlink():
        raise RunError(f"{folder}: is a link; nothing is written through a link in a run directory: remove it")
    folder.mkdir(exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically; lone surrogates, as in names that are not UTF-8, become escapes."""
    content = text.encode("utf-8", "backslashreplace")
    write_atomically(path, lambda temporary: Path(temporary).write_bytes(content))


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Let `write` fill a temporary file, flush it to disk and rename it: a crash leaves the old file or the new one.

    A link that has the name of either is replaced; where it leads to nothing changes.

    Raises:
        MtError: if the disk is full or cannot be written; the old file is untouched.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        _refuse_device(path)
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        mode = temporary.stat().st_mode
        try:
            write(str(temporary))
            temporary.chmod(mode)  # safetensors makes a file of its own, which only its owner may read.
            flush(temporary)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, SafetensorError) as error:
        raise MtError(f"{path}: cannot be written: {reason(error)}; what was there before is untouched") from error
    _flush_names(path.parent)


def _refuse_device(path: Path) -> None:
    """Raise OSError for a device, which must not be replaced by a file."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise OSError(errno.EINVAL, "a device", str(path))


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside `folder` that gets its name when all has gone well inside, and else is removed.

    What has the name already, or gets it meanwhile, stays as it is, unless it is an empty folder. A process that is
    killed leaves `NAME.unfinished-XXXXXXXX`, which does not stand in the way of a second attempt.

    Raises:
        InputError: if something else has the name, or a folder of this name cannot be made.
        MtError: if the disk is full or cannot be written.
    """
    if folder.name in ("", "..") or (os.path.lexists(folder) and not _is_empty_folder(folder)):
        raise InputError(f"{folder}: is there already; give a new folder")
    unfinished = folder.with_name(f"{folder.name}.unfinished-{secrets.token_hex(4)}")
    made: list[Path] = []
    try:
        try:
            _make_with_parents(unfinished, made)
        except (OSError, ValueError) as error:
            raise InputError(f"{folder}: cannot be made: {reason(error)}; give another folder") from None
        yield unfinished
        mode = unfinished.stat().st_mode & 0o666
        for path in [*unfinished.rglob("*"), unfinished]:
            if path.is_file():
                path.chmod(mode)  # As in `write_atomically`.
            flush(path)
        _rename_new(unfinished, folder)
    except FileExistsError:
        raise InputError(f"{folder}: somebody else has made it meanwhile; give a new folder") from None
    except (OSError, SafetensorError) as error:
        raise MtError(f"{folder}: cannot be written: {reason(error)}") from error
    finally:
        if unfinished in made:
            shutil.rmtree(unfinished, ignore_errors=True)
        for path in made:
            with suppress(OSError):  # It is gone, or not empty.
                path.rmdir()
    _flush_names(folder.parent)


def _make_with_parents(folder: Path, made: list[Path]) -> None:
    """Make a folder and the parents that it lacks; `made` gets them, the innermost first."""
    for parent in reversed([parent for parent in folder.parents if not parent.exists()]):
        with suppress(FileExistsError):  # Another process was faster.
            parent.mkdir()
            made.insert(0, parent)
    folder.mkdir()
    made.insert(0, folder)


def _rename_new(source: Path, target: Path) -> None:
    """Rename a folder; raises FileExistsError if anything but an empty folder has the new name, which then stays."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None


def _is_empty_folder(path: Path) -> bool:
    try:
        return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    except OSError:
        return False


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush_names(folder: Path) -> None:
    """The same for a folder, where the system can."""
    with suppress(OSError):
        flush(folder)


def check_free_disk(folder: Path, num_bytes: float, what: str) -> None:
    """Raise MtError if fewer than `num_bytes` are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise MtError(
            f"{folder.parent}: {what} needs about {format_bytes(num_bytes)} there, and only {format_bytes(free)} are "
            "free; make room, or set `streaming: true` for the corpora of train"
        )


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of some files, and of all files in some folders."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def format_bytes(num_bytes: float) -> str:
    """A size for people: `1.3 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:,.0f} bytes" if unit == "bytes" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"
