"""Prepared data on disk by fingerprint.

A folder in `runs/.cache` is written under another name and renamed when it is complete. A folder whose files do not
have the sizes that were written is rebuilt. The cache may be deleted at any time, even while a run trains on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.corpus.lines import refuse_devices, unreadable
from mt_cli.errors import CorpusError, InputError, MtError, reason
from mt_cli.runtime.files import new_folder, remove, writing

FORMAT = 10
"""Version of the cache; increase it when the same data gives other content."""

_CONTENTS = "contents.json"
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
        if not _is_complete(folder):
            if os.path.lexists(folder):
                self._say(f"{folder}: is damaged; it is rebuilt")
                _remove(folder)
            for path in self.path.glob("*.unfinished-*"):  # Killed processes left the old ones.
                with suppress(OSError):  # Another process may be removing it.
                    if time.time() - path.lstat().st_mtime > _STALE_AFTER_SECONDS:
                        _remove(path)
            try:
                with new_folder(folder) as unfinished, writing(folder):
                    make(unfinished)
                    (unfinished / _CONTENTS).write_text(json.dumps(_sizes_in(unfinished)), encoding="utf-8")
            except InputError:
                if not _is_complete(folder):  # Otherwise another process has made the same entry first.
                    raise
        try:
            return load(folder)
        except FileNotFoundError as error:
            problem = f"cannot be read: {reason(error)}; if it was removed, run the command again"
            raise MtError(f"{folder}: {problem}") from error


def _sizes_in(folder: Path) -> dict[str, int]:
    """Size in bytes of each file of a folder, except the list of contents."""
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.name != _CONTENTS}


def _is_complete(folder: Path) -> bool:
    """True if a folder has the files that were written, in their sizes."""
    try:
        contents = json.loads((folder / _CONTENTS).read_bytes())
        return bool(contents == _sizes_in(folder))
    except (OSError, ValueError, RecursionError):
        return False


def _remove(path: Path) -> None:
    """Remove a folder or file if possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        remove(path)
