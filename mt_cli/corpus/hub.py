"""The Hugging Face hub: repositories at one commit, and their files in the cache of the hub's client.

The client resolves a revision to a commit, also from its cache if the hub cannot be reached or must not be asked
(HF_HUB_OFFLINE). A commit in the cache needs no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mt_cli.errors import InputError, MtError, one_line
from mt_cli.runtime.console import has_bars, say
from mt_cli.runtime.files import format_bytes, writing

Kind = Literal["dataset", "model"]
_NOTICE_BYTES = 1_000_000


@dataclass(frozen=True)
class Repository:
    """A repository at one commit."""

    kind: Kind
    id: str
    folder: Path
    """Folder of the files that were downloaded, in the cache of the client."""
    files: Mapping[str, int]
    """Size in bytes of each file, downloaded or not."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id} at commit {self.commit[:12]}"

    @property
    def commit(self) -> str:
        return self.folder.name


@cache
def find_repository(kind: Kind, name: str, revision: str | None, note: str = "") -> Repository:
    """Find a repository and its commit, on the hub or in the cache.

    Raises InputError if there is no such repository or revision, and MtError if the hub cannot be reached. `note`
    is appended to messages about a repository that was not found.
    """
    start_client()
    revision = revision or "main"
    with _hub_errors(kind, name, note):
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(name, repo_type=kind, revision=revision, allow_patterns=[]))
        repository = Repository(kind, name, folder, _files_of(kind, name, folder))
    if revision != repository.commit:
        say(f"{kind} {name} at commit {repository.commit} ({revision})")
    return repository


def _files_of(kind: Kind, name: str, folder: Path) -> dict[str, int]:
    """Size of each file of a commit, as `snapshot_download` listed them, or of each downloaded file without a list."""
    from huggingface_hub import HfApi, RepoFile
    from huggingface_hub.constants import HF_HUB_OFFLINE

    try:
        from huggingface_hub._tree_cache import read_tree_cache  # There is no public function.
    except ImportError:  # In other versions of the client.
        if not HF_HUB_OFFLINE:
            tree = HfApi().list_repo_tree(name, recursive=True, revision=folder.name, repo_type=kind)
            return {file.path: file.size for file in tree if isinstance(file, RepoFile)}
    else:
        entries = read_tree_cache(str(folder.parents[1]), folder.name)
        if entries is not None:
            return {path: entry.size for path, entry in entries.items()}
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def download(repository: Repository, names: Sequence[str]) -> Path:
    """Download the files that are missing; return the folder of all files.

    Raises InputError if access is refused, and MtError if the network or the disk is at fault.
    """
    missing = [name for name in names if not (repository.folder / name).is_file()]
    if not missing:
        return repository.folder
    with writing(repository.folder.parents[1]), _hub_errors(repository.kind, repository.id):
        from huggingface_hub import hf_hub_download

        num_bytes = sum(repository.files.get(name, 0) for name in missing)
        if num_bytes >= _NOTICE_BYTES:
            say(f"downloading {format_bytes(num_bytes)} of {repository.id}")
        for name in missing:
            hf_hub_download(repository.id, name, repo_type=repository.kind, revision=repository.commit)
    return repository.folder


def start_client() -> None:
    """Import the client; raises InputError if an environment variable keeps it from starting."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import disable_progress_bars, logging

    try:
        get_session()
    except Exception as error:  # Its text may show the password of a proxy.
        settings = "HF_ENDPOINT, a proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY), SSL_CERT_FILE or SSL_CERT_DIR"
        raise InputError(f"{settings}: cannot be used ({type(error).__name__})") from None
    logging.set_verbosity(logging.CRITICAL)  # Errors are in our message.
    if not has_bars():
        disable_progress_bars()


@contextmanager
def _hub_errors(kind: Kind, name: str, note: str = "") -> Iterator[None]:
    """Context manager of calls of the client, which turns its errors into InputError or MtError with its texts.

    `note` is appended if the repository or the revision was not found.
    """
    from huggingface_hub import errors

    # The HTTP library is `httpx` or `httpx2`, depending on the version of the client.
    http_error: Any = next(base for base in errors.HfHubHTTPError.__mro__[1:] if base.__name__ == "HTTPError")
    not_found = (errors.HFValidationError, errors.OfflineModeIsEnabled, errors.RepositoryNotFoundError)
    try:
        yield
    except (*not_found, http_error, ConnectionError, errors.EntryNotFoundError, errors.FileMetadataError) as error:
        causes: list[BaseException] = [error]
        while cause := causes[-1].__cause__ or causes[-1].__context__:
            causes.append(cause)
        for cause in causes:
            if isinstance(cause, (*not_found, errors.RevisionNotFoundError)):  # A gated repository is one, too.
                raise InputError(f"{kind} {name}: {one_line(cause)}{note}") from error
        problem = f"{one_line(error)} ({one_line(causes[-1])})" if causes[1:] else one_line(error)
        raise MtError(f"{kind} {name}: {problem}; check the network, and run the command again{note}") from error
