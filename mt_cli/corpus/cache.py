"""Prepared data on disk by fingerprint. Knows folders, not their content.

A folder in `runs/.cache` is written under another name and renamed when it is complete, with the size and checksum of
each file. Size and checksum are verified when a command first uses the folder, and a damaged folder is rebuilt. The
cache may be deleted at any time, even while a run trains on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.corpus.lines import refuse_devices, unreadable
from mt_cli.errors import CorpusError, InputError, MtError, reason
from mt_cli.runtime.files import check_regular, new_folder, read_regular, remove

FORMAT = 10
"""Version of the cache; increase it when the same data gives other content."""

_CONTENTS = "contents.json"
_MAX_CONTENTS_BYTES = 2**20
_STALE_AFTER_SECONDS = 24 * 3600
_CHUNK_BYTES = 1 << 22

T = TypeVar("T")


def fingerprint(*parts: Any) -> str:
    """Digest of JSON values as 16 hexadecimal digits."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    """SHA-256 of the content of a file; raises CorpusError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        refuse_devices(path)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise CorpusError(f"{path}: {unreadable(path, error)}") from None
    return digest.hexdigest()


class Cache:
    """Folder of entries. An entry is created once, by this process or another, and verified when it is first used.

    The folder is created with the first entry. `say` receives lines for the user. Loaded entries are kept in memory, so
    a command uses one `Cache`.
    """

    def __init__(self, path: Path, say: Callable[[str], object] = lambda message: None) -> None:
        self.path, self._say = path, say
        self._loaded: dict[Any, Any] = {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        """Result of `work` for a key; `work` is called once per key."""
        if key not in self._loaded:
            self._loaded[key] = work()
        result: T = self._loaded[key]
        return result

    def entry(self, name: str, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        """Load the folder `name`; `make` fills it first unless it exists and is intact.

        The folder may be deleted as soon as `load` returns, so `load` must open the files that are read later. Raises
        MtError if the folder cannot be written, and the errors of `make`. An error leaves no folder behind.
        """
        return self.once(name, lambda: self._verified(self.path / name, make, load))

    def _verified(self, folder: Path, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        if damage := _damage_of(folder):
            if os.path.lexists(folder):
                self._say(f"{folder}: {damage}; it is rebuilt")
                _remove(folder)
            self._remove_stale()
            try:
                with new_folder(folder) as unfinished:
                    make(unfinished)
                    _write_contents(unfinished)
            except InputError:
                if _damage_of(folder):  # Otherwise another process has made the same entry first.
                    raise
        try:
            return load(folder)
        except FileNotFoundError as error:
            raise MtError(
                f"{folder}: cannot be read: {reason(error)}; if it was removed, run the command again"
            ) from error

    def _remove_stale(self) -> None:
        """Remove unfinished folders that are too old to be in use; killed processes left them."""
        for path in self.path.glob("*.unfinished-*"):
            with suppress(OSError):  # Another process may be removing it.
                if time.time() - path.lstat().st_mtime > _STALE_AFTER_SECONDS:
                    _remove(path)


def _write_contents(folder: Path) -> None:
    """Write the size and checksum of each file of a folder."""
    contents = {path.name: _size_and_checksum(path) for path in sorted(folder.iterdir())}
    (folder / _CONTENTS).write_text(json.dumps(contents), encoding="utf-8")


def _damage_of(folder: Path) -> str:
    """Description of the damage to a folder since `_write_contents`; empty if the folder is intact."""
    try:
        contents = json.loads(read_regular(folder / _CONTENTS, _MAX_CONTENTS_BYTES))
        changed = [name for name, expected in contents.items() if _size_and_checksum(folder / name) != expected]
    except OSError as error:
        return f"{Path(error.filename or folder).name} cannot be read ({reason(error)})"
    except (ValueError, AttributeError, RecursionError):
        return f"{_CONTENTS} is damaged"
    return f"{changed[0]} is damaged" if changed else ""


def _size_and_checksum(path: Path) -> list[int]:
    """Size in bytes, and a fast checksum that detects accidents but not attacks."""
    check_regular(path)
    size = checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
    return [size, checksum]


def _remove(path: Path) -> None:
    """Remove a folder or file if possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        remove(path)
