"""A hub on loopback for tests: the part of the Hugging Face hub's HTTP protocol that its clients use to read.

`HF_ENDPOINT` gives its address to unmodified clients (`datasets`, `huggingface_hub`), which read it when they are
imported. LFS files come from a second port, as from the hub's CDN: clients send their token to the first only. Xet is
not spoken: without the header `X-Xet-Hash`, clients download over HTTP. The dataset viewer is asked at
`datasets-server.` before the host (`datasets/utils/_dataset_viewer.py`); loopback has no such name, and clients do
without.

`python tests/hub_server.py FOLDER` serves FOLDER/datasets/ORG/NAME and FOLDER/models/ORG/NAME until it is interrupted.
"""

import argparse
import contextlib
import socket
import socketserver
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from hub_faults import Faults
from hub_protocol import Reply, Request, answer, ranged
from hub_repositories import Repository, files_of


class Hub:
    """The server; a context manager that runs it."""

    def __init__(self, port=0):
        self.datasets: dict[str, Repository] = {}
        self.models: dict[str, Repository] = {}
        self.renamed: dict[tuple[str, str], str] = {}
        """The new id of a repository, by kind and old id."""
        self.tokens = {"hf_reader", "hf_stranger"}
        """Tokens of users; a repository's `readers` are those with access to it."""
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
        return self._commit("datasets", name, files, revision)

    def model(self, name, files, revision="main"):
        """The same for a model."""
        return self._commit("models", name, files, revision)

    def _commit(self, kind, name, files, revision):
        repository = self.repositories(kind).setdefault(name, Repository(kind, name))
        return repository.commit(files_of(files) if isinstance(files, str | Path) else files, revision)

    def rename(self, old, new):
        """Give a repository another id; requests for the old one are redirected."""
        for kind in ("datasets", "models"):
            if repository := self.repositories(kind).pop(old, None):
                self.repositories(kind)[new] = repository
                repository.id = new
                self.renamed[kind, old] = new

    def repositories(self, kind):
        """Those of a kind, `datasets` or `models`, by id."""
        return {"datasets": self.datasets, "models": self.models}.get(kind, {})

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
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        hub = self.server.hub
        request = Request(self.command, self.path, 0, 0, self.headers.get("Range"), bool(token), self.server.is_cdn)
        hub.requests.append(request)
        fault = hub.faults.instead(request.method, request.path)
        if fault and fault.kind == "silence":
            self.close_connection = True
            hub.faults.wait()
            return
        reply = Reply(fault.status, fault.headers, fault.body) if fault else answer(hub, request, token)
        if reply.is_file:
            reply = ranged(reply, request.range)
        request.status = reply.status
        self._send(reply, request)

    do_HEAD = do_GET

    def _send(self, reply, request):
        self.send_response(reply.status)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        self.close_connection |= not headers["Content-Length"]
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if request.method == "HEAD":
            return
        faults = self.server.hub.faults
        for block in faults.blocks(reply.body, faults.during(request.method, request.path) if reply.is_file else None):
            if block is None:
                self.close_connection = True
                return
            request.num_sent += len(block)
            self.wfile.write(block)

    def log_message(self, *arguments):
        """Requests are in the list of the hub."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    hub = Hub(arguments.port)
    for kind, commit in (("datasets", hub.dataset), ("models", hub.model)):
        for folder in sorted((arguments.folder / kind).glob("*/*/")):
            name = f"{folder.parent.name}/{folder.name}"
            print(kind, name, commit(name, folder))
    with hub, contextlib.suppress(KeyboardInterrupt):
        print(f"HF_ENDPOINT={hub.endpoint}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
