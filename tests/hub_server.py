"""A hub on loopback for tests: the part of the Hugging Face hub's HTTP protocol that its clients use to read.

`HF_ENDPOINT` gives its address to unmodified clients (`datasets`, `huggingface_hub`), which read it when they are
imported. Errors are known to the client by the header `X-Error-Code` (`utils/_http.py:hf_raise_for_status`), and files
in its cache by `ETag` (`file_download.py:get_hf_file_metadata`). The hub itself sends the files, without a CDN or Xet.
"""

import fnmatch
import hashlib
import json
import re
import socketserver
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

import yaml

_PATH = re.compile(r"(/api)?/(datasets/|models/)?([^/]+/[^/]+)/(revision|tree|resolve)/([^/]+)/?(.*)")


@dataclass
class Request:
    """A request that was made."""

    method: str
    path: str


@dataclass
class Fault:
    """A fault of the requests whose path matches a pattern, for a number of times, or always."""

    pattern: str
    times: int | None = None
    status: int | None = None
    """Status of the reply, instead of the right one."""
    headers: dict[str, str] = field(default_factory=dict)
    after: int | None = None
    """Bytes of a file that are sent before the connection closes."""

    def meets(self, method, path):
        """True if the fault happens to a request, which is counted."""
        is_meant = self.after is None or method == "GET"
        if not is_meant or self.times == 0 or not fnmatch.fnmatchcase(path.split("?")[0], self.pattern):
            return False
        self.times = None if self.times is None else self.times - 1
        return True


@dataclass
class Repository:
    id: str
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files by path, of each commit."""
    gated: bool = False
    readers: set[str] = field(default_factory=set)
    """Tokens with access if the repository is gated."""

    def commit(self, files):
        """Add files to the branch `main`; return the name of the commit, forty hexadecimal digits."""
        parent = self.branches.get("main")
        files = {**self.commits.get(parent, {}), **files}
        checksums = sorted((path, checksum(content)) for path, content in files.items())
        commit = hashlib.sha1(repr([parent, checksums]).encode()).hexdigest()
        self.commits[commit] = dict(sorted(files.items()))
        self.branches["main"] = commit
        return commit

    def find(self, revision):
        """Commit of a branch, tag or commit, or None."""
        commit = self.branches.get(revision) or self.tags.get(revision) or revision
        return commit if commit in self.commits else None

    def info(self, commit):
        """Description for `DatasetInfo` and `ModelInfo` in `hf_api.py`."""
        files = self.commits[commit]
        card = re.match(r"---\n(.*?)\n---", files.get("README.md", b"").decode(), re.DOTALL)
        siblings = [{"rfilename": path, **_size_and_checksum(content)} for path, content in files.items()]
        about = {"id": self.id, "sha": commit, "private": False, "gated": "auto" if self.gated else False}
        about |= {"tags": [], "downloads": 0, "likes": 0, "cardData": (yaml.safe_load(card[1]) if card else None) or {}}
        return about | {"siblings": siblings}

    def tree(self, commit):
        """Files for `RepoFile` in `hf_api.py`."""
        files = ((path, _size_and_checksum(content)) for path, content in self.commits[commit].items())
        return [{"type": "file", "path": path, "oid": about.pop("blobId"), **_with_oid(about)} for path, about in files]


def _with_oid(about):
    lfs = about.get("lfs")
    return about | ({"lfs": {"oid": lfs["sha256"], **lfs}} if lfs else {})


def checksum(content):
    """SHA-256 of a binary file, which is an LFS file, or the git blob hash of a text."""
    if b"\0" in content[:8000]:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _size_and_checksum(content):
    size, digest = len(content), checksum(content)
    if len(digest) == 40:
        return {"blobId": digest, "size": size}
    return {"blobId": digest[:40], "size": size, "lfs": {"sha256": digest, "size": size, "pointerSize": 130}}


class Hub:
    """The server; a context manager that runs it."""

    def __init__(self):
        self.datasets: dict[str, Repository] = {}
        self.models: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self._port = 0
        self._server = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """Serve, on the same port as before if it has been stopped."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.hub = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        """Refuse connections, as without a network."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def dataset(self, name, files):
        """Commit files to a dataset, which is made if it is new; return the name of the commit."""
        return self.datasets.setdefault(name, Repository(name)).commit(files)

    def model(self, name, files):
        """Commit files to a model, as `dataset` does."""
        return self.models.setdefault(name, Repository(name)).commit(files)

    def answer(self, path, token):
        """Reply to a request without faults: status, headers and body."""
        match = _PATH.fullmatch(urlsplit(path).path)
        if match is None:
            return _error(404, None)
        _, kind, name, operation, revision, file = match.groups()
        repository = (self.datasets if kind == "datasets/" else self.models).get(name)
        if repository is None:
            return _error(404 if token else 401, "RepoNotFound")
        if repository.gated and token not in repository.readers and operation == "resolve":
            return _error(403 if token else 401, "GatedRepo")
        commit = repository.find(unquote(revision))
        if commit is None:
            return _error(404, "RevisionNotFound")
        if operation == "tree":
            return 200, {"Content-Type": "application/json"}, json.dumps(repository.tree(commit)).encode()
        if operation == "revision":
            return 200, {"Content-Type": "application/json"}, json.dumps(repository.info(commit)).encode()
        content = repository.commits[commit].get(unquote(file))
        if content is None:
            return _error(404, "EntryNotFound")
        return 200, {"X-Repo-Commit": commit, "ETag": f'"{checksum(content)}"'}, content


def _error(status, code):
    """Error as the client knows it: by its headers."""
    return status, {"X-Error-Message": str(code)} | ({"X-Error-Code": code} if code else {}), b"{}"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        """Clients may close a connection at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        hub = self.server.hub
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        hub.requests.append(Request(self.command, self.path))
        fault = next((fault for fault in hub.faults if fault.meets(self.command, self.path)), Fault(""))
        status, headers, body = hub.answer(self.path, token)
        if fault.status is not None:
            status, headers, body = fault.status, fault.headers, b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: fault.after])
        self.close_connection = fault.after is not None

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *arguments):
        """Requests are in the list of the hub."""
