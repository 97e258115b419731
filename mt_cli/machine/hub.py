"""The Hugging Face hub: a repository at one commit, in the cache of the hub's own client.

The commit of a revision is asked for once and recorded beside the files: from then on the same command needs no network
and reads the same data. Knows neither datasets nor models; `hub_files.py` has the files.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import BaseModel

from mt_cli.errors import InputError, MtError, one_line
from mt_cli.machine.console import say
from mt_cli.machine.hub_requests import (
    Kind,
    asking,
    import_clients,
    patiently,
    timeout,
)
from mt_cli.machine.storage import read_model, write_text, writing

_MAX_RECORD_BYTES = 2**26
_SECONDS_UNTIL_NOTICE = 1.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SAID: set[str] = set()
"""The commits that this process has named."""
_REVISION = re.compile(r"(?!.*\.\.)[\w.+@-][\w./+@-]*")
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
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
    import_clients()
    from huggingface_hub.utils import validate_repo_id

    revision = revision or "main"
    if "://" in name:
        of_page = "/".join(urlsplit(name).path.removeprefix("/datasets").strip("/").split("/")[:2])
        raise InputError(f"{kind} {name}: is the address of a page; give the id of the {kind}, {of_page}")
    if not _REVISION.fullmatch(revision):
        raise InputError(f"{kind} {name}: revision {revision!r} is not the name of a branch, a tag or a commit")
    record = record_of(kind, name, revision)
    found = _recorded(record)
    if found is None:
        with asking(kind, name, note):
            validate_repo_id(name)
            with locked(_folder(kind, name)):
                found = _recorded(record) or _ask(kind, name, revision)
                write_text(record, found.model_dump_json())
                # The config of a run names the commit, which so needs no network either.
                write_text(record_of(kind, name, found.commit), found.model_dump_json())
    if found.commit not in _SAID:
        _SAID.add(found.commit)
        asked = "" if revision == found.commit else f" ({revision}, downloaded on {found.downloaded_on})"
        say(f"{kind} {found.id} at commit {found.commit}{asked}")
    return found


def is_known(kind: Kind, name: str) -> bool:
    """Whether a repository with this id was found before, and is in the cache."""
    return (_folder(kind, name) / "mt").is_dir()


def record_of(kind: Kind, name: str, revision: str) -> Path:
    """The file for what the hub said about a revision."""
    return _folder(kind, name) / "mt" / f"{quote(revision, safe='')}.json"


def _recorded(record: Path) -> Repository | None:
    with suppress(InputError):  # It is not there, or damaged.
        found = read_model(record, Repository, _MAX_RECORD_BYTES)
        return found if _COMMIT.fullmatch(found.commit) and _ID.fullmatch(found.id) and found.files else None
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
