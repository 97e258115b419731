"""The Hugging Face hub: repositories at one commit, and their files in the cache of the hub's client.

The hub is asked once for the commit of a revision, which is recorded beside the files. From then on the same command
reads the same data, and needs no network. Knows neither datasets nor models; `hub_errors.py` has the messages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field

from mt_cli.corpus.hub_errors import LOGIN_HINT, Kind, hub_errors
from mt_cli.errors import InputError, MtError
from mt_cli.runtime.console import has_bars, say
from mt_cli.runtime.files import check_free_disk, format_bytes, read_model, remove, write_text, writing

_MAX_RECORD_BYTES = 2**26
_NOTICE_BYTES = 1_000_000


class RemoteFile(BaseModel, frozen=True):
    """A file of a repository."""

    size: int
    checksum: str
    """SHA-256 of a large file, or the git blob hash (SHA-1) of a small one."""


class Repository(BaseModel, frozen=True):
    """A repository at one commit, as the hub described it."""

    kind: Kind
    id: str = Field(pattern=r"^[\w.-]+(/[\w.-]+)?$")
    revision: str
    """Branch, tag or commit that was asked for."""
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    files: dict[str, RemoteFile]
    downloaded_on: str
    """Day on which the hub was asked for the commit, `2026-01-31`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id} at commit {self.commit[:12]}"

    @property
    def downloads(self) -> Path:
        """Folder with the downloaded files of this commit, under their names."""
        return _folder(self.kind, self.id) / "snapshots" / self.commit


@cache
def find_repository(kind: Kind, name: str, revision: str | None, note: str = "") -> Repository:
    """Look up a repository in the records of earlier commands or, without a record, on the hub.

    Raises InputError if there is no such repository or revision, and MtError if the hub cannot be reached. `note`
    is appended to messages about a repository that was not found.
    """
    start_client()
    revision = revision or "main"
    with hub_errors(kind, name, note):
        from huggingface_hub.utils import validate_repo_id

        validate_repo_id(name)
        repository: Repository | None = None
        with suppress(InputError):  # The record may be missing or damaged.
            repository = read_model(_record_of(kind, name, revision), Repository, _MAX_RECORD_BYTES)
        if repository is None:
            repository = _cached_repository(kind, name, revision) or _request_repository(kind, name, revision)
            with suppress(MtError):  # The cache may be read-only.
                _write_record(repository, name)
    if revision != repository.commit:
        origin = f"{revision}, downloaded on {repository.downloaded_on}"
        say(f"{kind} {repository.id} at commit {repository.commit} ({origin})")
    return repository


def is_recorded(kind: Kind, name: str) -> bool:
    """True if the repository with this id has been used on this machine."""
    return (_folder(kind, name) / "mt").is_dir()


def download(repository: Repository, names: Sequence[str]) -> Path:
    """Download the files that are missing or have a wrong size; return the folder of all files.

    Raises InputError if access is refused, and MtError if the network, a file or the disk is at fault.
    """
    missing = [name for name in names if _size(repository.downloads / name) != repository.files[name].size]
    if not missing:
        return repository.downloads
    folder = _folder(repository.kind, repository.id)
    with writing(folder), hub_errors(repository.kind, repository.id):
        from huggingface_hub import hf_hub_download

        num_bytes = sum(repository.files[name].size for name in missing)
        folder.mkdir(parents=True, exist_ok=True)
        check_free_disk(folder, num_bytes, "the download")
        if num_bytes >= _NOTICE_BYTES:
            say(f"downloading {format_bytes(num_bytes)} of {repository.id}")
        for name in missing:
            path = repository.downloads / name
            options: dict[str, Any] = {"revision": repository.commit, "force_download": path.exists()}
            remove(path)  # The client would keep a link, and a link may lead to any file.
            hf_hub_download(repository.id, name, repo_type=repository.kind, **options)
            if _size(path) != repository.files[name].size:
                raise MtError(f"{repository}: {name} arrived with another size than the hub says; {LOGIN_HINT}")
    return repository.downloads


def start_client() -> None:
    """Import the client and limit its requests: each waits at most `HF_HUB_DOWNLOAD_TIMEOUT` seconds, by default 10.

    Raises InputError if an environment variable keeps the client from starting.
    """
    try:
        from huggingface_hub import get_session
        from huggingface_hub.utils import disable_progress_bars, logging

        session = get_session()
    except ImportError:
        raise
    except Exception as error:  # Its text may show the password of a proxy.
        settings = "HF_ENDPOINT, a number in HF_*, a proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY), SSL_CERT_FILE or _DIR"
        raise InputError(f"{settings}: cannot be used ({type(error).__name__})") from None
    logging.set_verbosity(logging.CRITICAL)  # Errors are in our message.
    if not has_bars():
        disable_progress_bars()
    if _limit_time not in session.event_hooks["request"]:
        session.event_hooks["request"].append(_limit_time)


def _limit_time(request: Any) -> None:
    """Set the timeouts of a request, some of which have none."""
    from huggingface_hub.constants import HF_HUB_DOWNLOAD_TIMEOUT

    request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), HF_HUB_DOWNLOAD_TIMEOUT)


def _cached_repository(kind: Kind, name: str, revision: str) -> Repository | None:
    """Repository as the client has it in its cache, such as after `hf download`; None unless HF_HUB_OFFLINE is set."""
    from huggingface_hub.constants import HF_HUB_OFFLINE

    folder = _folder(kind, name)
    reference = folder / "refs" / revision
    commit = reference.read_text(encoding="ascii").strip() if reference.is_file() else revision
    snapshot = folder / "snapshots" / commit
    if not (HF_HUB_OFFLINE and snapshot.is_dir()):
        return None
    files = {
        path.relative_to(snapshot).as_posix(): RemoteFile(size=path.stat().st_size, checksum=path.resolve().name)
        for path in snapshot.rglob("*")  # Links to files whose names are their checksums.
        if path.is_file()
    }
    day = time.strftime("%Y-%m-%d", time.localtime(snapshot.stat().st_mtime))
    return Repository(kind=kind, id=name, revision=revision, commit=commit, files=files, downloaded_on=day)


def _request_repository(kind: Kind, name: str, revision: str) -> Repository:
    from huggingface_hub import HfApi

    api = HfApi()
    request = api.dataset_info if kind == "dataset" else api.model_info
    try:
        info = request(name, revision=revision, files_metadata=True)
        files = {
            file.rfilename: RemoteFile(size=file.size, checksum=str(file.lfs.sha256 if file.lfs else file.blob_id))
            for file in info.siblings or []
            if file.size is not None
        }
        fields = {"id": info.id or name, "commit": str(info.sha), "downloaded_on": time.strftime("%Y-%m-%d")}
        repository = Repository(kind=kind, revision=revision, files=files, **fields)
    except (TypeError, KeyError, ValueError) as error:
        raise MtError(f"{kind} {name}: the answer is not that of a hub; {LOGIN_HINT}") from error
    if repository.id != name:
        say(f"{kind} {name} is called {repository.id} now: use this name")
    return repository


def _write_record(repository: Repository, name: str) -> None:
    """Record a repository under its revision and its commit, so that configs with the commit need no network either."""
    from filelock import FileLock

    folder = _folder(repository.kind, name) / "mt"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            for revision in (repository.revision, repository.commit):
                write_text(_record_of(repository.kind, name, revision), repository.model_dump_json())


def _record_of(kind: Kind, name: str, revision: str) -> Path:
    """File with the hub's description of a revision."""
    return _folder(kind, name) / "mt" / f"{quote(revision, safe='')}.json"


def _folder(kind: Kind, name: str) -> Path:
    """Folder of a repository in the cache of the client, with `blobs` and `snapshots`."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"


def _size(path: Path) -> int | None:
    """Bytes of a file; None if there is no such file."""
    return path.stat().st_size if path.is_file() else None
