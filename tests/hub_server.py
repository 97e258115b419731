"""A hub on loopback for tests: the part of the Hugging Face hub's HTTP protocol that its clients use to read.

`HF_ENDPOINT` gives its address to unmodified clients (`datasets`, `huggingface_hub`), which read it when they are
imported. What a reply must hold is decided in `huggingface_hub`: `utils/_http.py:hf_raise_for_status` (errors),
`file_download.py:get_hf_file_metadata` and `http_get` (files), `hf_api.py` (the rest). Large and binary files come from
a second port, as from the hub's CDN: clients send their token to the first only. Xet is not spoken: without the header
`X-Xet-Hash`, clients download over HTTP. The dataset viewer is asked at `datasets-server.` before the host
(`datasets/utils/_dataset_viewer.py`), a name that does not exist for loopback, so clients do without.

`python tests/hub_server.py FOLDER` serves FOLDER/datasets/ORG/NAME and FOLDER/models/ORG/NAME until it is interrupted.
"""

import argparse
import contextlib
import json
import socket
import socketserver
import sys
import threading
import traceback
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hub_faults import Faults
from hub_repositories import Repository, files_of

_HEXADECIMAL = set("0123456789abcdef")
_OPERATIONS = {"revision", "tree", "paths-info", "refs", "auth-check"}


@dataclass
class Request:
    """A request that was made."""

    method: str
    path: str
    status: int = 0
    num_sent: int = 0
    """Bytes of the body that were sent."""
    range: str | None = None
    has_token: bool = False
    from_cdn: bool = False


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_file: bool = False
    """Whether the body is the content of a file, of which ranges can be requested."""


class Hub:
    """The server; a context manager that runs it."""

    def __init__(self, port=0):
        self.datasets: dict[str, Repository] = {}
        self.models: dict[str, Repository] = {}
        self.renamed: dict[tuple[str, str], str] = {}
        """The new id of a repository, by kind and old id."""
        self.tokens = {"hf_reader", "hf_stranger"}
        """Tokens of users; a repository's `readers` are those with access to it."""
        self.page_size = 1000
        """Entries of a listing in one reply: the hub's own number (`HfApi._iter_repo_tree_pages`)."""
        self.requests: list[Request] = []
        self.errors: list[str] = []
        """Tracebacks of errors of the server itself."""
        self.faults = Faults()
        self._ports = [port, 0]
        self._servers: list[_Server] = []

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._ports[0]}"

    @property
    def cdn(self):
        return f"http://127.0.0.1:{self._ports[1]}"

    def start(self):
        """Serve, on the ports of before if it has been stopped."""
        self.faults.resume()
        self._servers = [_Server(port, self, index == 1) for index, port in enumerate(self._ports)]
        self._ports = [server.server_address[1] for server in self._servers]

    def stop(self):
        """Close all connections and refuse new ones, as without a network."""
        self.faults.release()
        for server in self._servers:
            server.stop()
        self._servers = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()
        if self.errors and error[0] is None:
            raise AssertionError("the hub failed:\n" + "\n".join(self.errors))

    def dataset(self, name, files, revision="main"):
        """Commit files, or those of a folder, to a dataset, which is made if it is new; returns the commit's name."""
        return self._commit("datasets", self.datasets, name, files, revision)

    def model(self, name, files, revision="main"):
        """The same for a model."""
        return self._commit("models", self.models, name, files, revision)

    def _commit(self, kind, repositories, name, files, revision):
        repository = repositories.setdefault(name, Repository(kind, name))
        return repository.commit(files_of(files) if isinstance(files, str | Path) else files, revision)

    def rename(self, old, new):
        """Give a repository another id; requests for the old one are redirected."""
        for kind, repositories in (("datasets", self.datasets), ("models", self.models)):
            if old in repositories:
                repositories[new] = repositories.pop(old)
                repositories[new].id = new
                self.renamed[kind, old] = new

    def paths(self, method=None):
        """The paths that were requested, in order."""
        return [request.path for request in self.requests if method in (None, request.method)]


class _Server(socketserver.ThreadingTCPServer):
    """A port of the hub, with a thread for each connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port, hub, is_cdn):
        super().__init__(("127.0.0.1", port), _Handler)
        self.hub, self.is_cdn = hub, is_cdn
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
        length = int(self.headers.get("Content-Length", 0))
        form = parse_qs(self.rfile.read(length).decode())
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        hub = self.server.hub
        request = Request(self.command, self.path, 0, 0, self.headers.get("Range"), bool(token), self.server.is_cdn)
        hub.requests.append(request)
        fault = hub.faults.instead(request.method, request.path)
        if fault and fault.kind == "silence":
            self.close_connection = True
            hub.faults.wait()
            return
        reply = Reply(fault.status, fault.headers) if fault else answer(hub, request, token, form)
        if reply.is_file:
            reply = ranged(reply, request.range)
        request.status = reply.status
        self._send(reply, request)

    do_HEAD = do_POST = do_GET

    def _send(self, reply, request):
        self.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if request.method == "HEAD":
            return
        faults = self.server.hub.faults
        for block in faults.blocks(reply.body, faults.during(request.method, request.path) if reply.is_file else []):
            if block is None:
                self.close_connection = True
                return
            request.num_sent += len(block)
            self.wfile.write(block)

    def log_message(self, *arguments):
        """Requests are in the list of the hub."""


def answer(hub, request, token, form):
    """The reply to a request without faults."""
    if request.from_cdn:
        _, kind, oid, *_ = map(unquote, urlsplit(request.path).path.split("/"))
        blobs = [b for r in _repositories(hub, kind).values() for c in r.commits.values() for b in c.files.values()]
        blob = next((blob for blob in blobs if blob.sha256 == oid), None)
        return Reply(200, {"ETag": f'"{oid}"'}, blob.content, True) if blob else error(403, None, "AccessDenied")
    if token is not None and token not in hub.tokens:
        return error(401, None, "Invalid credentials in Authorization header")
    if request.path == "/api/whoami-v2":
        return to_json({"type": "user", "name": token}) if token else error(401, None, "Invalid username or password.")
    if request.path == "/api/agent-harnesses":  # For the name in `User-Agent`; the client keeps the reply for a day.
        return to_json({"standardEnvVars": [], "harnesses": {}})
    place = parse_path(request.path)
    if place is None:
        return error(404, None, "Not Found")
    kind, name, operation, rest = place
    if (kind, name) in hub.renamed:
        moved = request.path.replace(f"/{name}", "/" + hub.renamed[kind, name], 1)
        return Reply(307, {"Location": moved}, f"Temporary Redirect. Redirecting to {moved}".encode())
    repository = _repositories(hub, kind).get(name)
    if repository is None or (repository.private and token not in repository.readers):
        # The hub does not say whether it exists. Over HTTP, the client only knows the 401 by its code.
        status, message = (404, "Repository not found") if token else (401, "Invalid username or password.")
        return error(status, "RepoNotFound", message)
    if operation in ("resolve", "resolve-cache", "auth-check") and repository.gated and token not in repository.readers:
        return error(403 if token else 401, "GatedRepo", f"Access to {name} is restricted.")
    revision, path = (rest[0] if rest else "main"), "/".join(rest[1:])
    commit = repository.find(revision)
    if commit is None:
        return error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    query = parse_qs(urlsplit(request.path).query)
    if operation in ("resolve", "resolve-cache"):
        return resolve(hub, repository, commit, path, operation == "resolve-cache")
    if operation == "tree":
        return tree(hub, request, repository, commit, path, query)
    if operation == "paths-info":
        expand = form.get("expand", ["false"])[0].lower() == "true"
        entries = [repository.entry(commit, each, expand) for each in form.get("paths", [])]
        return to_json([entry for entry in entries if entry])
    if operation == "refs":
        return to_json(repository.refs())
    if operation == "auth-check":
        return Reply()
    info = repository.info(commit, "blobs" in query)
    expanded = {"_id", "id", *query.get("expand", info)}
    return to_json({key: value for key, value in info.items() if key in expanded})


def _repositories(hub, kind):
    return hub.datasets if kind == "datasets" else hub.models


def resolve(hub, repository, commit, path, is_cached):
    """The reply for a file: a redirect first, whose headers say what the client's cache needs to know."""
    blob = commit.files.get(path)
    headers = {"X-Repo-Commit": commit.oid}
    if blob is None:
        missing = error(404, "EntryNotFound", "Entry not found")
        return Reply(404, headers | missing.headers, missing.body)
    if is_cached:
        return Reply(200, headers | {"ETag": f'"{blob.etag}"'}, blob.content, True)
    headers |= {"X-Linked-Etag": f'"{blob.etag}"', "X-Linked-Size": str(len(blob.content))}
    quoted = quote(path)
    if blob.is_lfs:
        location = f"{hub.cdn}/{repository.kind}/{blob.sha256}/{repository.id}/{quoted}"
        return Reply(302, headers | {"Location": location})
    location = f"/api/resolve-cache/{repository.kind}/{repository.id}/{commit.oid}/{quoted}"
    return Reply(307, headers | {"Location": location})


def tree(hub, request, repository, commit, folder, query):
    """A page of a listing, with the address of the next page (`utils/_pagination.py`)."""
    recursive, expand = (query.get(key, ["false"])[0].lower() == "true" for key in ("recursive", "expand"))
    entries = repository.tree(commit, folder, recursive, expand)
    if entries is None:
        return error(404, "EntryNotFound", f"{folder} does not exist on this revision")
    first = int(query.get("cursor", ["0"])[0])
    size = min(hub.page_size, 50) if expand else hub.page_size
    reply = to_json(entries[first : first + size])
    if first + size < len(entries):
        address = hub.endpoint + urlsplit(request.path).path
        options = f"recursive={str(recursive).lower()}&expand={str(expand).lower()}&cursor={first + size}"
        reply.headers["Link"] = f'<{address}?{options}>; rel="next"'
    return reply


def parse_path(path):
    """Kind, id, operation and what follows it of a request for a repository, or None.

    Ids have one or two parts, so what comes after them says where they end.
    """
    parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
    if parts[:2] == ["api", "resolve-cache"]:
        kind, parts = parts[2], parts[3:]
        end = 1 if len(parts[1]) == 40 and set(parts[1]) <= _HEXADECIMAL else 2
        return kind, "/".join(parts[:end]), "resolve-cache", parts[end:]
    if parts[0] == "api" and len(parts) > 2 and parts[1] in ("datasets", "models"):
        kind, parts = parts[1], parts[2:]
        end = 1 if len(parts) == 1 or parts[1] in _OPERATIONS else 2
        operation = parts[end] if len(parts) > end else "revision"
        return (kind, "/".join(parts[:end]), operation, parts[end + 1 :]) if operation in _OPERATIONS else None
    kind, parts = ("datasets", parts[1:]) if parts[0] == "datasets" else ("models", parts)
    if "resolve" not in parts[1:3]:
        return None
    end = parts.index("resolve", 1)
    return kind, "/".join(parts[:end]), "resolve", parts[end + 1 :]


def ranged(reply, text):
    """The part of a file that a request asks for."""
    size = len(reply.body)
    headers = {**reply.headers, "Accept-Ranges": "bytes"}
    if not text or not text.startswith("bytes="):
        return Reply(200, headers, reply.body, True)
    first, last = text.removeprefix("bytes=").split("-")
    begin = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if begin >= end:
        return Reply(416, {**headers, "Content-Range": f"bytes */{size}"})
    return Reply(206, {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{size}"}, reply.body[begin:end], True)


def to_json(value):
    return Reply(200, {"Content-Type": "application/json; charset=utf-8"}, json.dumps(value).encode())


def error(status, code, message):
    """An error as the client knows it: by its headers."""
    headers = {"X-Error-Message": message, "Content-Type": "application/json; charset=utf-8"}
    return Reply(status, headers | ({"X-Error-Code": code} if code else {}), json.dumps({"error": message}).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    hub = Hub(arguments.port)
    for kind, commit in (("datasets", hub.dataset), ("models", hub.model)):
        for folder in sorted((arguments.folder / kind).glob("*/*/")):
            print(
                kind, folder.relative_to(arguments.folder / kind), commit(f"{folder.parent.name}/{folder.name}", folder)
            )
    with hub, contextlib.suppress(KeyboardInterrupt):
        print(f"HF_ENDPOINT={hub.endpoint}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
