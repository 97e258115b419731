"""Prepared data on disk, found again by what it was made from. Knows folders and fingerprints; not what is in them.

A folder below `runs/.cache` is made under another name and renamed when it is complete, with the size and checksum of
each file, which are compared at every start. What is not whole is made again, and so the cache may be deleted at any
time, also while a run trains on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.corpus.lines import refuse_devices
from mt_cli.errors import CorpusError, MtError, reason
from mt_cli.storage import check_regular, flush, read_regular

FORMAT = 3
"""Of everything in the cache; raised when the code would make something else from the same data."""

_CONTENTS = "contents.json"
_MAX_CONTENTS_BYTES = 2**20
_NUM_ATTEMPTS = 3
_STALE_AFTER_SECONDS = 24 * 3600
_CHUNK_BYTES = 1 << 22

T = TypeVar("T")


def fingerprint(*parts: Any) -> str:
    """16 hexadecimal digits of anything that JSON can spell; equal values have equal ones."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file's content; raises CorpusError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        refuse_devices(path)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise CorpusError(f"{path}: {reason(error)}") from None
    return digest.hexdigest()


class Cache:
    """A folder of entries. Each is made once, by this process or another, and verified before it is used.

    Args:
        path: of the folder; it is made with the first entry.
        say: takes a line for the user.
    """

    def __init__(self, path: Path, say: Callable[[str], object] = lambda message: None) -> None:
        self.path, self._say = path, say

    def entry(self, name: str, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        """What `load` reads from the folder `name`, which `make` fills unless it is there and whole.

        The folder may be removed as soon as `load` has returned: what is read later must be open by then.

        Raises:
            MtError: if it cannot be written; whatever `make` raises. Nothing is left behind then.
        """
        folder = self.path / name
        for _ in range(_NUM_ATTEMPTS):
            if damage := _damage_of(folder):
                if os.path.lexists(folder):
                    self._say(f"{folder}: {damage}; it is made again")
                self._make(folder, make)
            try:
                return load(folder)
            except Exception:
                if not _damage_of(folder):  # Otherwise it is being removed.
                    raise
        raise MtError(f"{folder}: was removed {_NUM_ATTEMPTS} times as soon as it was made; another program does that")

    def _make(self, folder: Path, make: Callable[[Path], object]) -> None:
        made = [path for path in (self.path, self.path.parent) if not path.is_dir()]
        unfinished = folder.with_name(f"{folder.name}.unfinished-{secrets.token_hex(8)}")
        former = unfinished.with_name(f"{unfinished.name}-former")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _remove_stale(self.path)
            unfinished.mkdir()
            make(unfinished)
            _seal(unfinished)
            if _damage_of(folder):
                with suppress(FileNotFoundError):
                    folder.rename(former)
            try:
                unfinished.rename(folder)
            except OSError:
                if _damage_of(folder):  # Otherwise another process was faster with the same.
                    raise
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not unfinished.exists():
                return  # It is being removed: there is nothing to load then.
            raise MtError(f"{folder}: cannot be written: {reason(error)}") from error
        finally:
            for path in (unfinished, former):
                _remove(path)
            for path in made:
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def _seal(folder: Path) -> None:
    """Flush all files of a folder to disk, and note the size and the checksum of each."""
    contents = {path.name: _size_and_checksum(path) for path in sorted(folder.iterdir())}
    (folder / _CONTENTS).write_text(json.dumps(contents), encoding="utf-8")
    for name in (*contents, _CONTENTS):
        flush(folder / name)


def _damage_of(folder: Path) -> str:
    """What is wrong with a folder that `_seal` has sealed; nothing if it is whole."""
    try:
        contents = json.loads(read_regular(folder / _CONTENTS, _MAX_CONTENTS_BYTES))
        changed = [name for name, expected in contents.items() if _size_and_checksum(folder / name) != expected]
    except OSError as error:
        return f"{Path(error.filename or folder).name} cannot be read ({reason(error)})"
    except (ValueError, AttributeError, RecursionError):
        return f"{_CONTENTS} is damaged"
    return f"{changed[0]} is damaged" if changed else ""


def _size_and_checksum(path: Path) -> list[int]:
    """Bytes, and a checksum that is cheap: it guards against accidents, not against people."""
    check_regular(path)
    size = checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
    return [size, checksum]


def _remove_stale(cache: Path) -> None:
    """Remove what a killed process has left, when it is too old to be still in the making."""
    for path in cache.glob("*.unfinished-*"):
        with suppress(OSError):  # Another process may be removing it.
            if time.time() - path.lstat().st_mtime > _STALE_AFTER_SECONDS:
                _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder, or whatever has its name, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
