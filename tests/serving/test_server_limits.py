"""Limits of the server: who may ask for what and how much, and its start and its end."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving_server import block_search, file_form, raw_socket, wait_for

from mt_cli.errors import InputError
from mt_cli.serving.access import Keys, Rates, allowed_hosts, client_of
from mt_cli.serving.errors import RequestError
from mt_cli.serving.server import bound

KEY, OTHER_KEY = "a-key-of-people-1234", "a-second-key-9876543"
TEXT = {"q": "one.", "source": "en", "target": "xx"}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# people\n{KEY}\n\n{OTHER_KEY}\n", encoding="utf-8")
    return Keys.read(path)


def test_keys_open_all_that_works_and_nothing_else(serve, keys):
    with serve(keys=keys) as server:
        for given in ({}, {"api_key": ""}, {"api_key": KEY[:-1]}, {"api_key": f"{KEY}x"}, {"api_key": "# people"}):
            assert server.ask("/translate", TEXT | given)[0] == 403
        for key in (KEY, OTHER_KEY):
            assert server.ask("/translate", TEXT | {"api_key": key})[0] == 200
            assert server.ask("/translate", TEXT, {"Authorization": f"Bearer {key}"})[0] == 200
        assert server.ask("/v1/translate", {"text": "one."})[0] == 403
        assert server.ask("/v1/translate", {"text": "one.", "api_key": KEY})[0] == 200
        assert server.ask("/detect", {"q": "one"})[0] == 403 and server.ask("/metrics")[0] == 403
        for fields, status in (({}, 403), ({"api_key": KEY}, 200)):
            assert server.ask("/translate_file", *file_form("a.txt", b"one.", **fields))[0] == status
        assert server.ask("/health")[0] == server.ask("/languages")[0] == server.ask("/")[0] == 200
        assert server.json("/frontend/settings")["keyRequired"] is True


@pytest.mark.parametrize("content", ["# none\n", "short\n", "with a space in the key\n", "schlüssel-1234567890\n"])
def test_a_file_without_good_keys_is_refused(tmp_path, content):
    (tmp_path / "keys.txt").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"keys\.txt"):
        Keys.read(tmp_path / "keys.txt")


def test_clients_that_ask_too_often_must_wait(serve, keys):
    with serve(keys=keys, rates=Rates(2)) as server:
        guesses = [server.ask("/detect", {"q": "one", "api_key": f"{number:020}"}) for number in range(4)]
        assert [status for status, _, _ in guesses] == [403, 403, 429, 429]
        assert 1 <= int(guesses[-1][1]["Retry-After"]) <= 30
        assert server.ask("/detect", {"q": "one", "api_key": KEY})[0] == 200


def test_rates_are_counted_by_client_and_recover():
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])
    for client in ("a", "a", "b"):
        rates.check(client)
    with pytest.raises(RequestError):
        rates.check("a")
    now[0] += 30
    rates.check("a")
    assert client_of("::ffff:192.0.2.1", None) == client_of("192.0.2.1", None) != client_of("::ffff:192.0.2.2", None)
    assert client_of("2001:db8::1", None) == client_of("2001:db8::2", None) != client_of("2001:db8:0:1::1", None)


def test_pages_of_other_sites_cannot_use_this_server(serve):
    names = {"allowed_hosts": allowed_hosts("127.0.0.1", ["name.example"]), "origins": ["https://good.example"]}
    with serve(**names) as server:
        for host in ("evil.example", "127.0.0.1.evil.example", "user@localhost", "localhost:5600, evil", "[::2]"):
            assert server.ask("/detect", {"q": "one"}, {"Host": host})[0] == 400, host
        for host in ("localhost:1", "LOCALHOST", "[::1]:5000", "127.0.0.1", "name.example"):
            headers = {"Host": host, "Origin": f"http://{host}"}
            assert server.ask("/detect", {"q": "one"}, headers)[0] == 200, host
        for origin in ("http://evil.example", "null", "http://[::1"):
            assert server.ask("/detect", {"q": "one"}, {"Origin": origin})[0] == 403


def test_only_sites_named_by_cors_may_read_an_answer(serve):
    with serve(origins=["https://good.example"]) as server:
        for origin, status in {"https://good.example": 200, "https://evil.example": 403}.items():
            received, headers, _ = server.ask("/detect", {"q": "one"}, {"Origin": origin})
            assert received == status
            assert headers.get("Access-Control-Allow-Origin") == (origin if status == 200 else None)
    with serve() as server:
        for method in ("GET", "OPTIONS"):
            asked = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
            _, headers, _ = server.ask("/languages", headers=asked, method=method)
            assert not [name for name in headers if name.lower().startswith("access-control")]


def test_every_answer_has_the_headers_that_browsers_need(server):
    for path in ("/", "/languages", "/nothing", "/page/style.css", "/docs"):
        _, headers, _ = server.ask(path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"] is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--set", "decoding.beam=3"),
        ("--timeout", "inf"),
        ("--cors", "*"),
        ("--cors", "https://example.org/page"),
        ("--allow-host", "*"),
        ("--allow-host", "example.org:8080"),
        ("--keys", "none.txt"),
    ],
)
def test_options_that_cannot_work_are_refused_at_the_start(mt, trained, option, value):
    status, _, err = mt("serve", "--run", trained, "--port", "0", option, value)
    assert status == 2 and "Serving" not in err
    assert option in err or "none.txt" in err or "beam" in err


def test_a_taken_address_is_refused_before_models_are_loaded(mt):
    with bound("127.0.0.1", 0) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # Otherwise asyncio lets small answers wait for 40 ms.
        status, out, err = mt("serve", "--run", "nothing", "--port", taken.getsockname()[1])
    assert (status, out) == (2, "") and "--port" in err


def test_a_full_server_refuses_and_recovers(serve):
    with serve({"max_requests": 2}) as server:
        release = block_search(server.service)
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(server.ask, "/v1/translate", {"text": "one."}) for _ in range(2)]
            wait_for(lambda: server.service.num_running == 2)
            status, headers, _ = server.ask("/v1/translate", {"text": "one."})
            assert status == 429 and int(headers["Retry-After"]) >= 1
            assert server.ask("/health")[0] == 200
            release()
            assert [call.result()[0] for call in waiting] == [200, 200]
        assert server.ask("/v1/translate", {"text": "one."})[0] == 200


def test_a_request_that_takes_too_long_leaves_nothing(serve):
    with serve({"text_seconds": 0.2}) as server:
        release = block_search(server.service)
        assert server.ask("/v1/translate", {"text": "one."})[0] == 504
        wait_for(lambda: server.service.num_running == 0)
        release()


def test_work_for_a_client_that_has_gone_is_dropped(serve):
    body = json.dumps({"text": "one. two. three."}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serve() as server:
        release = block_search(server.service)
        with raw_socket(server) as client:
            client.sendall(head + body)
            wait_for(lambda: server.service.num_running == 1)
        wait_for(lambda: server.service.num_running == 0)
        release()
        assert server.json("/v1/translate", {"text": "one."})["translations"][0]["text"] == "ONE."


def test_clients_that_send_slowly_hold_nobody_up(serve):
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"
    with serve({"body_seconds": 1.0}) as server:
        clients = [raw_socket(server) for _ in range(12)]
        for client in clients:
            client.sendall(head.encode())
        assert server.ask("/languages")[0] == 200
        for client in clients:
            with client:
                assert client.recv(1000).startswith(b"HTTP/1.1 408")


def test_requests_that_are_too_large_or_compressed_are_refused(serve):
    with serve({"max_file_bytes": 1_000}) as server:
        assert server.ask("/translate_file", *file_form("a.txt", b"one " * 30_000))[0] == 413
        for size in (200_000, 10_000_000):
            assert server.ask("/translate", b"a" * size)[0] == 413
        for path in ("/translate", "/v1/translate", "/translate_file"):
            assert server.ask(path, b"\x1f\x8b", {"Content-Encoding": "gzip"})[0] == 415


def test_a_full_disk_is_reported_and_keeps_no_parts(server, monkeypatch):
    def fail(content, file):
        file.write(content.read(3))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    assert server.ask("/translate_file", *file_form("a.txt", b"one two."))[0] == 507
    assert not list(Path(tempfile.gettempdir()).glob(f"mt-serve-{os.getpid()}-*/*"))


def test_too_little_memory_is_reported_as_temporary(serve, monkeypatch):
    import torch

    def lacking(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("mt_cli.decoding.transformer_engine.search", lacking)
    with serve() as server:
        status, headers, _ = server.ask("/translate", TEXT)
    assert status == 503 and int(headers["Retry-After"]) >= 1


def long_request(url, **options):
    text = json.dumps({"text": "One two three. " * 600, **options}).encode()
    return urllib.request.Request(f"{url}/v1/translate", text, {"Content-Type": "application/json"})


def is_running(url):
    with OPENER.open(f"{url}/metrics", timeout=60) as answer:
        return b"mt_requests_running 1.0\n" in answer.read()


def test_a_stop_finishes_accepted_requests_and_logs_no_text(mt, trained, monkeypatch):
    urls = []

    def listen(host, port):
        listener = bound(host, port)
        urls.append(f"http://127.0.0.1:{listener.getsockname()[1]}")
        return listener

    def use():
        try:
            wait_for(lambda: urls)
            OPENER.open(f"{urls[0]}/detect?secret", b"q=secret", timeout=60).close()
            with pytest.raises(urllib.error.HTTPError, match="404"):
                OPENER.open(f"{urls[0]}/secret", timeout=60)
            answer = pool.submit(lambda: json.load(OPENER.open(long_request(urls[0], alternatives=5), timeout=300)))
            wait_for(lambda: answer.done() or is_running(urls[0]))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
        return answer.result()["translations"][0]["sentences"]

    monkeypatch.setattr("mt_cli.serving.server.bound", listen)
    with ThreadPoolExecutor(2) as pool:
        sentences = pool.submit(use)
        command = "serve", "--run", trained, "--port", "0", "--host", "0.0.0.0", "--device", "cpu", "--log-requests"
        status, out, err = mt(*command)
        assert len(sentences.result()) == 600
    assert (status, out) == (0, "") and f"http://{socket.gethostname()}:" in err
    assert "Stopped" in err and "--keys" in err
    assert "POST /detect 200" in err and "GET other 404" in err and "secret" not in err


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGHUP,)], ids=["twice", "hangup"])
def test_signals_end_the_server_without_a_traceback(start, trained, signals):
    command = [sys.executable, "-m", "mt_cli", "serve", "--port", "0", "--device", "cpu", "--run", str(trained)]
    process = start(command, stderr=subprocess.PIPE, text=True)
    url = next(match[0] for line in process.stderr if (match := re.search(r"http://\S+:\d+", line)))
    with ThreadPoolExecutor(1) as pool:
        request = long_request(url, alternatives=10, details=True)
        answer = pool.submit(lambda: OPENER.open(request, timeout=300).read())
        wait_for(lambda: answer.done() or is_running(url))
        for number in signals:
            process.send_signal(number)
            time.sleep(0.1)
        assert process.wait(300) in (0, 130)  # 0 if the request was done before.
        answer.exception()
    log = process.stderr.read()
    assert "Traceback" not in log and "terminate" not in log
