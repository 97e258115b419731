"""Prepared data on disk by fingerprint.

A folder in `runs/.cache` is written under another name and renamed when it is complete. It may be deleted at any time,
even while a run trains on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

from mt_cli.corpus.lines import unreadable
from mt_cli.errors import CorpusError, InputError
from mt_cli.runtime.files import check_regular, new_folder, writing

FORMAT = 14
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
    """Folder of entries, which are created once, by this process or another.

    The folder is created with the first entry. Loaded entries are kept in memory, so a command uses one `Cache`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loaded: dict[Any, Any] = {}

    def once(self, key: Hashable, work: Callable[[], T]) -> T:
        if key not in self._loaded:
            self._loaded[key] = work()
        result: T = self._loaded[key]
        return result

    def entry(self, name: str, make: Callable[[Path], object], load: Callable[[Path], T]) -> T:
        """Load the folder `name`; `make` fills it first unless it exists.

        The folder may be deleted as soon as `load` returns, so `load` must open the files that are read later. Raises
        MtError if the folder cannot be written, and the errors of `make`. An error leaves no folder behind.
        """
        folder = self.path / name

        def work() -> T:
            if not folder.is_dir():
                try:
                    with new_folder(folder) as unfinished, writing(folder):
                        make(unfinished)
                except InputError:
                    if not folder.is_dir():  # Otherwise another process has made the same entry first.
                        raise
            return load(folder)

        return self.once(name, work)
