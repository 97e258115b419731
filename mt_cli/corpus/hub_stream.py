"""Files of the hub that are read over the network while training, and never kept on disk."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from mt_cli.machine.hub import Repository
from mt_cli.machine.hub_files import read_range

_PROTOCOL = "mt-hub"
_REPOSITORIES: dict[str, Repository] = {}
"""By the folder in their addresses."""


def address_of(repository: Repository, name: str) -> str:
    """The address under which `datasets` can open a file of a repository."""
    fsspec.register_implementation(_PROTOCOL, _Repositories, clobber=True)
    folder = f"{repository.commit}-{repository.id.replace('/', '--')}"
    _REPOSITORIES[folder] = repository
    return f"{_PROTOCOL}://{folder}/{name}"


class _Repositories(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types.
    """Repositories as folders; reads what `address_of` was asked for."""

    protocol = _PROTOCOL

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        folder, _, name = path.removeprefix(f"{_PROTOCOL}://").partition("/")
        return {"name": path, "size": _REPOSITORIES[folder].files[name].size, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> _RemoteFile:
        return _RemoteFile(self, path, mode, **options)


class _RemoteFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is read in blocks, each with one request."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        folder, _, name = self.path.partition("/")
        return read_range(_REPOSITORIES[folder], name, start, end)
