"""A hub on loopback for tests: the part of the Hugging Face hub's HTTP protocol that its clients use to read.

`HF_ENDPOINT` gives its address to unmodified clients (`datasets`, `huggingface_hub`), which read it when they are
imported. Errors are known to the client by the header `X-Error-Code` (`utils/_http.py:hf_raise_for_status`), and files
in its cache by `ETag` (`file_download.py:get_hf_file_metadata`). The hub itself sends the files, without a CDN or Xet.
"""

import contextlib
import hashlib
import json
import re
import socket
import socketserver
import sys
import threading
import traceback
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from hub_faults import Faults

_PLACE = re.compile(r"(/api)?/(datasets/|models/)?([^/]+/[^/]+)/(revision|resolve)/([^/]+)/?(.*)")


@dataclass
class Request:
    """A request that was made."""

    method: str
    path: str
    has_token: bool = False
    num_sent: int = 0
    """Bytes of the body that were sent."""


@dataclass
class Repository:
    kind: str
    """`datasets` or `models`."""
    id: str
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Files by path, of each commit."""
    private: bool = False
    gated: bool = False
    readers: set[str] = field(default_factory=set)
    """Tokens with access, if the repository is private or gated."""

    def commit(self, files, revision="main"):
        """Add a commit to a branch, which begins at `main` if it is new; return its name, of 40 hexadecimal digits.

        `files` maps paths to their content; None removes a path. Other files are kept.
        """
        parent = self.find(revision) or self.find("main")
        files = {**self.commits.get(parent, {}), **files}
        files = {path: files[path] for path in sorted(files) if files[path] is not None}
        oid = hashlib.sha1(repr([parent, sorted((path, checksum(files[path])) for path in files)]).encode()).hexdigest()
        self.commits[oid] = files
        self.branches[revision] = oid
        return oid

    def find(self, revision):
        """Commit of a branch, tag or commit, or None."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        return oid if oid in self.commits else None

    def info(self, oid):
        """Description for `DatasetInfo` and `ModelInfo` in `hf_api.py`."""
        files = self.commits[oid]
        card = re.match(r"---\n(.*?)\n---", files.get("README.md", b"").decode(), re.DOTALL)
        siblings = [{"rfilename": path, **_size_and_checksum(files[path], "blobId", "sha256")} for path in files]
        about = {"id": self.id, "sha": oid, "private": self.private, "gated": "auto" if self.gated else False}
        about |= {"tags": [], "downloads": 0, "likes": 0, "cardData": (yaml.safe_load(card[1]) if card else None) or {}}
        return about | {"siblings": siblings}


def checksum(content):
    """SHA-256 of a binary file, which is an LFS file, or the git blob hash of a text."""
    if b"\0" in content[:8000]:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _size_and_checksum(content, oid, sha256):
    about = {oid: hashlib.sha1(content).hexdigest(), "size": len(content)}
    if len(checksum(content)) == 64:
        about["lfs"] = {sha256: checksum(content), "size": len(content), "pointerSize": 130}
    else:
        about[oid] = checksum(content)
    return about


class Hub:
    """The server; a context manager that runs it."""

    def __init__(self, port=0):
        self.datasets: dict[str, Repository] = {}
        self.models: dict[str, Repository] = {}
        self.renamed: dict[str, str] = {}
        """New id of a repository, by its old id."""
        self.tokens = {"hf_reader", "hf_stranger"}
        """Tokens of users; the `readers` of a repository are the tokens with access to it."""
        self.requests: list[Request] = []
        self.errors: list[str] = []
        """Tracebacks of errors of the server itself."""
        self.faults = Faults()
        self._port = port
        self._server = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """Serve, on the same port as before if it has been stopped."""
        self._server = _Server(self._port, self)
        self._port = self._server.server_address[1]

    def stop(self):
        """Close all connections and refuse new ones, as without a network."""
        self.faults.release()
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()
        if self.errors and error[0] is None:
            raise AssertionError("the hub failed:\n" + "\n".join(self.errors))

    def dataset(self, name, files, revision="main"):
        """Commit files to a dataset, which is made if it is new; return the name of the commit."""
        return self.datasets.setdefault(name, Repository("datasets", name)).commit(files, revision)

    def model(self, name, files, revision="main"):
        """Commit files to a model, as `dataset` does."""
        return self.models.setdefault(name, Repository("models", name)).commit(files, revision)

    def rename(self, old, new):
        """Give a dataset another id; requests for the old one are redirected."""
        self.datasets[new] = self.datasets.pop(old)
        self.datasets[new].id = self.renamed[old] = new

    def answer(self, path, token):
        """Reply to a request without faults: status, headers and body."""
        address = urlsplit(path)
        if token is not None and token not in self.tokens:
            return _error(401, None, "Invalid credentials in Authorization header")
        match = _PLACE.fullmatch(address.path)
        if match is None:
            return _error(404, None, "Not Found")
        _, kind, name, operation, revision, rest = match.groups()
        if name in self.renamed:
            return 307, {"Location": path.replace(name, self.renamed[name], 1)}, b""
        repository = (self.datasets if kind == "datasets/" else self.models).get(name)
        has_access = repository is not None and token in repository.readers
        if repository is None or (repository.private and not has_access):
            return _error(401 if token is None else 404, "RepoNotFound", "Repository not found")
        if repository.gated and not has_access and operation == "resolve":
            return _error(403 if token else 401, "GatedRepo", f"Access to {repository.id} is restricted.")
        oid = repository.find(unquote(revision))
        if oid is None:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if operation == "revision":
            info = repository.info(oid)
            keys = parse_qs(address.query).get("expand", info)
            return _json({key: value for key, value in info.items() if key in {"id", *keys}})
        content = repository.commits[oid].get(unquote(rest))
        if content is None:
            return _error(404, "EntryNotFound", "Entry not found")
        return 200, {"X-Repo-Commit": oid, "ETag": f'"{checksum(content)}"'}, content


def _json(value):
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _error(status, code, message):
    """Error as the client knows it: by its headers."""
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return status, headers, json.dumps({"error": message}).encode()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port, hub):
        super().__init__(("127.0.0.1", port), _Handler)
        self.hub = hub
        self._connections: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self):
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request, client_address):
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), OSError):  # Clients may close a connection at any time.
            self.hub.errors.append(traceback.format_exc())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        hub = self.server.hub
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        request = Request(self.command, self.path, bool(token))
        hub.requests.append(request)
        fault = hub.faults.meet(self.command, self.path)
        if fault is not None and fault.status is not None:
            status, headers, body = fault.status, fault.headers, fault.body
        else:
            status, headers, body = hub.answer(self.path, token)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for block in hub.faults.blocks(body, fault):
            if block is None:
                self.close_connection = True
                return
            request.num_sent += len(block)
            self.wfile.write(block)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        """Requests are in the list of the hub."""
