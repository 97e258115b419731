"""Files of a repository of the Hugging Face hub: downloaded into the cache of the hub's own client, or read in part.

Each file is compared with its checksum, and a download that was interrupted is continued.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mt_cli.errors import MtError
from mt_cli.machine.console import Progress
from mt_cli.machine.hub import RemoteFile, Repository, locked, record_of
from mt_cli.machine.hub_requests import TruncatedError, asking, patiently, status_of, timeout
from mt_cli.machine.storage import check_free_disk, remove, writing

_INTACT: set[tuple[str, str]] = set()
"""Commit and name of the files whose checksum this process has compared."""


def download(repository: Repository, names: Sequence[str]) -> Path:
    """The folder with these files of a repository, which are downloaded unless they are there, with progress.

    A file that was downloaded in part is continued; each is compared with its checksum. Raises InputError if access is
    refused, and MtError if the network, the file or the disk is at fault.
    """
    missing = [name for name in names if not _is_intact(repository, name)]
    if not missing:
        return repository.downloads
    folder = repository.folder
    with locked(folder), writing(folder), asking(repository.kind, repository.id), _asked_again(repository):
        total = sum(repository.files[name].size for name in missing)
        partials = [_partial(repository, name) for name in missing]
        partials[0].parent.mkdir(parents=True, exist_ok=True)
        done = sum(map(_size, partials))
        check_free_disk(partials[0].parent, total - done, "the download")
        with Progress(f"downloading {repository.id}", total, "byte", done) as progress:
            for name in missing:
                _fetch(repository, name, progress.advance)
                _link(repository, name)
    return repository.downloads


def read_range(repository: Repository, name: str, start: int, end: int) -> bytes:
    """The bytes from `start` up to `end` of a file, from the hub; raises the errors of `download`."""

    def read() -> bytes:
        content = bytearray()
        with _getting(repository, name, start, end, is_checked=False) as response:
            begins_at = start if response.status_code == 206 else 0
            for chunk in response.iter_bytes():
                content += chunk
                if begins_at + len(content) >= end:
                    return bytes(content[start - begins_at : end - begins_at])
        raise TruncatedError(f"{name} ended after {len(content):,} of {end - start:,} bytes")

    with asking(repository.kind, repository.id):
        return patiently(read)


def _is_intact(repository: Repository, name: str) -> bool:
    """Whether a file is in the cache with its checksum, which is compared once by each process."""
    path, expected = repository.downloads / name, repository.files[name]
    if (repository.commit, name) not in _INTACT:
        try:
            if _size(path) != expected.size or _checksum(path, expected) != expected.checksum:
                return False
        except OSError:
            return False
        _INTACT.add((repository.commit, name))
    return path.exists()


@contextmanager
def _asked_again(repository: Repository) -> Iterator[None]:
    """Context manager; after an error of a file, the next command asks the hub again what it has."""
    try:
        yield
    except Exception as error:
        if isinstance(error, _WrongFileError) or status_of(error) in (404, 416):
            for revision in (repository.revision, repository.commit):
                remove(record_of(repository.kind, repository.id, revision))
        raise


def _partial(repository: Repository, name: str) -> Path:
    """Where a file is kept until it is complete; files with the same content share the place."""
    path = repository.folder / "mt" / "partial" / repository.files[name].checksum
    if path.is_symlink():
        remove(path)  # It may lead out of the cache.
    return path


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch(repository: Repository, name: str, advance: Callable[[int], object]) -> None:
    """Download a file to its place in the cache, whose name is the checksum."""
    expected, partial = repository.files[name], _partial(repository, name)
    blob = repository.folder / "blobs" / expected.checksum
    if blob.exists() and _checksum(blob, expected) == expected.checksum:
        advance(expected.size - _size(partial))  # Another name has the same content.
        return
    patiently(lambda: _continue(repository, name, partial, advance), done=lambda: _size(partial))
    if _checksum(partial, expected) != expected.checksum:
        remove(partial)
        raise _WrongFileError(f"{repository}: {name} arrived damaged (its checksum differs); run the command again")
    blob.parent.mkdir(exist_ok=True)
    partial.replace(blob)


def _link(repository: Repository, name: str) -> None:
    """Give a downloaded file its name, as the hub's client does."""
    path, blob = repository.downloads / name, repository.folder / "blobs" / repository.files[name].checksum
    if ".." in path.parts or not path.is_relative_to(repository.downloads):
        raise MtError(f"{repository}: the file name {name!r} leads out of its folder")
    remove(path)  # The link alone: it may lead out of the cache.
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:  # A file system without links.
        shutil.copyfile(blob, path)


def _continue(repository: Repository, name: str, partial: Path, advance: Callable[[int], object]) -> None:
    """Append to a file what is missing at its end."""
    done, size = _size(partial), repository.files[name].size
    if done > size:
        remove(partial)
        advance(-done)
        done = 0
    partial.touch()  # An empty file is complete at once.
    if done < size:
        with _getting(repository, name, done, size) as response:
            if response.status_code != 206:  # The server begins at the beginning.
                advance(-done)
                done = 0
            with partial.open("ab" if done else "wb") as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)
                    advance(len(chunk))
                    if file.tell() > size:
                        raise _WrongFileError(f"{repository}: {name} has {size:,} bytes, and the answer more")
    if _size(partial) < size:
        raise TruncatedError(f"{name} ended after {_size(partial):,} of {size:,} bytes")


@contextmanager
def _getting(repository: Repository, name: str, start: int, end: int, is_checked: bool = True) -> Iterator[Any]:
    """Context manager with the answer to a request for a part of a file; a server may send all of it (status 200).

    `is_checked` says whether the content will be compared with its checksum.

    Raises MtError if the answer is about a file of another size.
    """
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    url = hf_hub_url(repository.id, name, repo_type=repository.kind, revision=repository.commit)
    # Compressed, the range would be one of other bytes.
    headers = build_hf_headers() | {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with get_session().stream("GET", url, headers=headers, timeout=timeout()) as response:
        hf_raise_for_status(response)
        if not _is_about(response, repository.files[name].size, start, is_checked):
            hint = "a network that asks to log in may have answered; run the command again"
            raise _WrongFileError(f"{repository}: the answer to the request for {name} is another file: {hint}")
        yield response


def _is_about(response: Any, size: int, start: int, is_checked: bool) -> bool:
    """Whether an answer is, by its headers, a file of this size, or its part that begins at `start`.

    An answer that does not say so is believed only if it replaces nothing and its content is checked.
    """
    if response.status_code == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("content-range", ""))
        return found is not None and int(found[1]) == start and found[2] in ("*", str(size))
    length = response.headers.get("content-length", "")
    if length.isdigit():
        return int(length) == size
    return is_checked and start == 0 and "html" not in response.headers.get("content-type", "")


class _WrongFileError(MtError):
    """The hub sent another file than the one that it described."""


def _checksum(path: Path, expected: RemoteFile) -> str:
    digest = hashlib.sha256()
    if len(expected.checksum) == 40:  # A git blob: its hash is that of a header and the content.
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()
