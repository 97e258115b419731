"""Prepared data on disk, found again by what it was made from. Knows folders and fingerprints; not what is in them.

A folder below `runs/.cache` is made under another name and renamed when it is complete, so that what is there is whole.
Everything in it can be made again: the whole cache may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mt_cli.errors import CorpusError, MtError

FORMAT = 2
"""Of everything in the cache; raised when the code would make something else from the same data."""

_STALE_AFTER_SECONDS = 24 * 3600
_DIGEST_CHUNK_BYTES = 1 << 22


def fingerprint(*parts: Any) -> str:
    """16 hexadecimal digits of anything that JSON can spell; equal values have equal ones."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's content; raises CorpusError if it cannot be read."""
    digest = hashlib.sha256()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise CorpusError(f"{path}: not a file but a device or a pipe; corpora are read more than once")
    try:
        with path.open("rb") as file:
            while chunk := file.read(_DIGEST_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise CorpusError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return digest.hexdigest()


def cached(cache: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` of a cache, filled by `make` unless it is there already.

    Raises:
        MtError: if it cannot be written; whatever `make` raises. Nothing is left behind then.
    """
    folder = cache / name
    if folder.is_dir():
        return folder
    cache_was_there, root_was_there = cache.is_dir(), cache.parent.is_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}.unfinished-", dir=cache))
    except OSError as error:
        raise MtError(f"{cache}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    try:
        make(unfinished)
        for path in unfinished.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # A machine that crashes must not leave a whole name for half a content.
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():  # Otherwise another process was faster with the same.
                raise
    except OSError as error:
        raise MtError(f"{folder}: cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        for path, was_there in ((cache, cache_was_there), (cache.parent, root_was_there)):
            if not was_there and path.is_dir() and not any(path.iterdir()):
                path.rmdir()
    return folder


def _remove_stale(cache: Path) -> None:
    """Remove what a killed process has left, when it is too old to be still in the making."""
    for path in cache.glob("*.unfinished-*"):
        with suppress(OSError):  # Another process may be removing it.
            if time.time() - path.stat().st_mtime > _STALE_AFTER_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


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
