"""The Hugging Face hub: a repository at one commit, and its files in the cache of the hub's own client.

The commit of a revision is asked for once and recorded beside the files: from then on the same command needs no network
and reads the same data. Knows neither datasets nor models.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel

from mt_cli.errors import InputError, MtError, one_line
from mt_cli.machine.console import Progress, say
from mt_cli.machine.hub_requests import Kind, TruncatedError, asking, patiently, timeout
from mt_cli.machine.storage import check_free_disk, read_model, remove, write_text, writing

_MAX_RECORD_BYTES = 2**26
_SECONDS_UNTIL_NOTICE = 1.0
_ANSWERED: set[str] = set()
"""Commits of which this process has asked the hub."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class RemoteFile(BaseModel, frozen=True):
    """A file of a repository."""

    size: int
    checksum: str
    """SHA-256 of a large file, or the git blob hash (SHA-1) of a small one; the name of the file in the cache."""


class Repository(BaseModel, frozen=True):
    """A repository at one commit, as the hub described it."""

    kind: Kind
    id: str
    revision: str
    """Branch, tag or commit that was asked for."""
    commit: str
    files: dict[str, RemoteFile]
    downloaded_on: str
    """Day on which the hub was asked for the commit, `2026-01-31`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id} at commit {self.commit[:12]}"

    @property
    def folder(self) -> Path:
        """The folder of the repository in the cache of the hub's client, with `blobs` and `snapshots`."""
        return _folder(self.kind, self.id)

    def record(self, *options: object) -> Path:
        """The file for what is known of the commit with some options."""
        digest = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
        return self.folder / "mt" / f"{self.commit}-{digest}.json"

    @property
    def downloads(self) -> Path:
        """The folder with the files of this commit that were downloaded, under their names."""
        return self.folder / "snapshots" / self.commit


@cache
def find(kind: Kind, name: str, revision: str | None, note: str = "") -> Repository:
    """The repository with an id; from the record of an earlier call, or else from the hub.

    Raises InputError if there is none, or no such revision, and MtError if the hub cannot be reached; `note` is the end
    of messages that say that it was not found.
    """
    from huggingface_hub.utils import validate_repo_id

    revision = revision or "main"
    folder = _folder(kind, name)
    record = folder / "mt" / f"{quote(revision, safe='')}.json"
    found = _recorded(record)
    if found is None:
        with asking(kind, name, note):
            validate_repo_id(name)
            with locked(folder):
                found = _recorded(record) or _ask(kind, name, revision)
                write_text(record, found.model_dump_json())
    asked = "" if found.revision == found.commit else f" ({found.revision}, downloaded on {found.downloaded_on})"
    say(f"{kind} {found.id} at commit {found.commit}{asked}")
    return found


def _recorded(record: Path) -> Repository | None:
    with suppress(InputError):  # It is not there, or damaged.
        return read_model(record, Repository, _MAX_RECORD_BYTES)
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context manager during which no other process changes the folder of a repository; it may be nested."""
    from filelock import FileLock, Timeout

    path = folder / "mt" / "lock"
    with writing(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, is_singleton=True)
        try:
            lock.acquire(timeout=_SECONDS_UNTIL_NOTICE)
        except Timeout:
            say(f"waiting for another process that uses {folder}")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _folder(kind: Kind, name: str) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"


def _ask(kind: Kind, name: str, revision: str) -> Repository:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import validate_repo_id

    api = HfApi()
    ask = api.dataset_info if kind == "dataset" else api.model_info
    try:
        info = patiently(lambda: ask(name, revision=revision, files_metadata=True, timeout=timeout()))
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        hint = "a network that asks to log in may have answered"
        raise MtError(f"{kind} {name}: the answer is not that of a hub ({one_line(error)}); {hint}") from error
    _ANSWERED.add(str(info.sha))
    if info.id:
        validate_repo_id(info.id)  # It becomes the name of a folder.
    if info.id and info.id != name:
        say(f"{kind} {name} is called {info.id} now: use this name")
    if info.gated:
        api.auth_check(name, repo_type=kind)  # Otherwise only a file would be refused, with a less clear error.
    files = {}
    for file in info.siblings or []:
        checksum = str(file.lfs.sha256 if file.lfs else file.blob_id)
        if _CHECKSUM.fullmatch(checksum) and file.size is not None:
            files[file.rfilename] = RemoteFile(size=file.size, checksum=checksum)
    if not _COMMIT.fullmatch(str(info.sha)):
        raise MtError(f"{kind} {name}: the hub names no commit for {revision}")
    day = time.strftime("%Y-%m-%d")
    return Repository(
        kind=kind, id=info.id or name, revision=revision, commit=str(info.sha), files=files, downloaded_on=day
    )


def check_reachable(repository: Repository) -> None:
    """Raise MtError if the hub does not answer, which its clients would find out after half a minute."""
    from huggingface_hub import HfApi

    if repository.commit in _ANSWERED:
        return
    with asking(repository.kind, repository.id):
        HfApi().repo_info(repository.id, repo_type=repository.kind, revision=repository.commit, timeout=timeout())


def download(repository: Repository, names: Sequence[str]) -> Path:
    """The folder with these files of a repository, which are downloaded unless they are there, with progress.

    A file that was downloaded in part is continued; each is compared with its checksum. Raises InputError if access is
    refused, and MtError if the network, the file or the disk is at fault.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    where: Any = {"repo_type": repository.kind, "revision": repository.commit}
    missing = []
    for name in names:
        path = try_to_load_from_cache(repository.id, name, **where)
        if not isinstance(path, str) or _size(Path(path)) != repository.files[name].size:
            missing.append(name)
    if not missing:
        return repository.downloads
    with locked(repository.folder), writing(repository.folder), asking(repository.kind, repository.id):
        total = sum(repository.files[name].size for name in missing)
        partials = [_partial(repository, name) for name in missing]
        partials[0].parent.mkdir(parents=True, exist_ok=True)
        done = sum(map(_size, partials))
        check_free_disk(partials[0].parent, total - done, "the download")
        with Progress(f"downloading {repository.id}", total, "byte", done) as progress:
            for name in missing:
                remove(repository.downloads / name)  # The link alone: it may lead out of the cache.
                _fetch(repository, name, progress.advance)
                hf_hub_download(repository.id, name, **where)  # Gives the file its name.
    return repository.downloads


def _partial(repository: Repository, name: str) -> Path:
    """Where a file is kept until it is complete; files with the same content share the place."""
    return repository.folder / "mt" / "partial" / repository.files[name].checksum


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _fetch(repository: Repository, name: str, advance: Callable[[int], object]) -> None:
    """Download a file to its place in the cache, whose name is the checksum."""
    expected, partial = repository.files[name], _partial(repository, name)
    blob = repository.folder / "blobs" / expected.checksum
    if blob.exists() and _size(blob) == expected.size:  # Another name has the same content.
        advance(expected.size - _size(partial))
        return
    patiently(lambda: _continue(repository, name, partial, advance), done=lambda: _size(partial))
    if _checksum(partial, expected) != expected.checksum:
        remove(partial)
        raise MtError(f"{repository}: {name} arrived damaged (its checksum differs); run the command again")
    blob.parent.mkdir(exist_ok=True)
    partial.replace(blob)


def _continue(repository: Repository, name: str, partial: Path, advance: Callable[[int], object]) -> None:
    """Append to a file what is missing at its end."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    done, size = _size(partial), repository.files[name].size
    if done > size:
        remove(partial)
        done = 0
    partial.touch()  # An empty file is complete at once.
    if done < size:
        url = hf_hub_url(repository.id, name, repo_type=repository.kind, revision=repository.commit)
        # Compressed, the range would be one of other bytes.
        headers = build_hf_headers() | {"Range": f"bytes={done}-", "Accept-Encoding": "identity"}
        with get_session().stream("GET", url, headers=headers, timeout=timeout()) as response:
            hf_raise_for_status(response)
            if response.status_code != 206:  # The server begins at the beginning.
                advance(-done)
                done = 0
            with partial.open("ab" if done else "wb") as file:
                for chunk in response.iter_bytes():
                    file.write(chunk)
                    advance(len(chunk))
    if _size(partial) < size:
        raise TruncatedError(f"{name} ended after {_size(partial):,} of {size:,} bytes")


def _checksum(path: Path, expected: RemoteFile) -> str:
    digest = hashlib.sha256()
    if len(expected.checksum) == 40:  # A git blob: its hash is that of a header and the content.
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()
