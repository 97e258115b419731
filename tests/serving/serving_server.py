"""A server in this process, and a client for it."""

import asyncio
import io
import json
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from contextlib import contextmanager

import uvicorn

from mt_cli.serving.server import bound, server_config


class Running:
    """A server that answers, and a client for it."""

    def __init__(self, service, port):
        self.service, self.url = service, f"http://127.0.0.1:{port}"

    def ask(self, path, body=None, headers=None, method=None):
        """Status, headers and content, which is parsed if it is JSON; a dict is sent as JSON."""
        data, sent = body, dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} | sent
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=900) as answer:
                status, received, content = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, received, content = error.code, error.headers, error.read()
        is_json = received.get_content_type() == "application/json"
        return status, received, json.loads(content) if is_json else content

    def json(self, path, body=None, headers=None):
        """Content of an answer with status 200."""
        status, _, content = self.ask(path, body, headers)
        assert status == 200, content
        return content


@contextmanager
def running(service):
    server, listener = uvicorn.Server(server_config(service)), bound("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield Running(service, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def form(**fields):
    """Body and header of a form with a file."""
    boundary, parts = uuid.uuid4().hex, []
    for name, value in fields.items():
        head = f'Content-Disposition: form-data; name="{name}"'
        head += f'; filename="{value[0]}"\r\nContent-Type: application/octet-stream' if isinstance(value, tuple) else ""
        content = value[1] if isinstance(value, tuple) else value.encode()
        parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n")
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def file_form(name, content, **fields):
    """Body and header of a form that asks for the translation of a file."""
    return form(**({"source": "en", "target": "xx"} | fields), file=(name, content))


def archive_of(content):
    """A Word document with this content of its main part."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", content)
    return file.getvalue()


def raw_socket(server):
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=30)


def block_search(service):
    """Let the scheduler wait; returns the function that ends this."""
    gate = threading.Event()
    compute = service.scheduler._compute
    service.scheduler._compute = lambda batch: (gate.wait(), compute(batch))
    return gate.set


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)
