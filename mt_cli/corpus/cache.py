"""Prepared data on disk by fingerprint.

A folder in `runs/.cache` is written under another name and renamed when it is complete. It may be deleted at any time,
even while a run trains on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.corpus.lines import unreadable
from mt_cli.errors import CorpusError, InputError
from mt_cli.runtime.files import check_regular, new_folder, remove, writing

FORMAT = 12
"""Version of the cache; increase it when the same data gives other content or other problems."""

T = TypeVar("T")


def fingerprint(*parts: Any) -> str:
    """Digest of JSON values as 16 hexadecimal digits."""
    text = json.dumps([FORMAT, *parts], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def digest_of_file(path: Path) -> str:
    try:
        check_regular(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CorpusError(f"{path}: {unreadable(path, error)}") from None


class Cache:
    """Folder of entries. An entry is created once, by this process or another.

    The folder is created with the first entry. `say` receives lines for the user. Loaded entries are kept in memory, so
    a command uses one `Cache`.
    """

    def __init__(self, path: Path, say: Callable[[str], object] = lambda message: None) -> None:
        self.path, self._say = path, say
        self._loaded: dict[Any, Any] = {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        if key not in self._loaded:
            self._loaded[key] = work()
        result: T = self._loaded[key]
        return result

    def entry(self, name: str, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        """Load the folder `name`; `make` fills it first unless it exists and can be loaded.

        The folder may be deleted as soon as `load` returns, so `load` must open the files that are read later. Raises
        MtError if the folder cannot be written, and the errors of `make`. An error leaves no folder behind.
        """
        return self.once(name, lambda: self._loaded_or_made(self.path / name, make, load))

    def _loaded_or_made(self, folder: Path, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        if os.path.lexists(folder):
            try:
                return load(folder)
            except Exception:  # If it is not the folder that is damaged, `load` raises it again below.
                self._say(f"{folder}: is damaged; it is rebuilt")
                shutil.rmtree(folder, ignore_errors=True)
                remove(folder)
        try:
            with new_folder(folder) as unfinished, writing(folder):
                make(unfinished)
        except InputError:
            if not folder.is_dir():  # Otherwise another process has made the same entry first.
                raise
        return load(folder)
