"""Limits of the server, its start and its end, and how a request chooses a model."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving_server import form, raw_socket, serving

from mt_cli.errors import InputError
from mt_cli.features.serving.access import Hosts, Keys, _digest
from mt_cli.features.serving.app import reload
from mt_cli.features.serving.errors import RequestError
from mt_cli.features.serving.files import FileStore
from mt_cli.features.serving.models import Direction, Models, ServedModel, Source
from mt_cli.features.serving.server import _Server, bound, server_config
from mt_cli.features.serving.service import Limits, Service

KEY = "a-key-of-people-1234"


def directions_of(*pairs):
    """Models with names by their directions, such as `en-pt_BR`."""
    return Models(
        tuple(
            ServedModel("-".join(pair), Source(Path("x")), None, (Direction(*pair),), (), None)  # type: ignore[arg-type]
            for pair in pairs
        )
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("en", "pt-BR", ["en-pt_BR"]),
        ("en", "pt", ["en-pt_BR"]),
        ("de", "pt-BR", ["de-pt"]),
        ("de", "pt", ["de-pt"]),
        (None, "pt", ["en-pt_BR", "de-pt"]),
        (None, "pt-BR", ["en-pt_BR", "de-pt"]),
        ("en", None, ["en-pt_BR", "en-fr"]),
        ("en-GB", "fr", ["en-fr"]),
    ],
)
def test_a_model_of_another_variety_takes_no_answer_away(source, target, expected):
    models = directions_of(("en", "pt_BR"), ("de", "pt"), ("en", "fr"))
    assert sorted(choice.model.name for choice in models.choose(source, target)) == sorted(expected)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [("de", "fr", "de to fr is"), ("ja", "fr", "ja is"), ("en", "ja", "ja is"), ("fr", "en", "fr to en is")],
)
def test_a_refusal_names_what_is_missing(source, target, message):
    models = directions_of(("en", "pt_BR"), ("de", "pt"), ("en", "fr"))
    with pytest.raises(RequestError, match=f"^{message} not supported"):
        models.choose(source, target)


def test_languages_of_a_reloaded_model_are_known_at_once(trained, tmp_path, monkeypatch):
    for name in "ab":
        shutil.copytree(trained, tmp_path / name)
    models = Models.load([Source(tmp_path / name, device="cpu", precision="fp32") for name in "ab"])
    config = tmp_path / "a" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("target: xx", "target: fr"), encoding="utf-8")
    known, load = [], Source.load

    def load_and_look(source, name):
        known.append(models.directions)
        return load(source, name)

    monkeypatch.setattr(Source, "load", load_and_look)
    for name in "ab":
        os.utime(tmp_path / name / "checkpoints" / "best.safetensors")
    assert models.reload() == ["a", "b"]
    assert known == [[("en", "xx")], [("en", "fr"), ("en", "xx")]]


def test_weights_that_are_gone_are_named(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "a")
    models = Models.load([Source(tmp_path / "a", device="cpu", precision="fp32")])
    shutil.rmtree(tmp_path / "a")
    assert models.reload() == []
    assert capsys.readouterr().err == "mt: a is served as before: its weights are gone\n"


@pytest.mark.parametrize("path", ["/translate_file", "/translate"])
def test_clients_that_send_slowly_keep_no_files_away(models, serve, path):
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"
    limits = Limits(body_seconds=2)
    with serve(Service(models, limits, Keys((_digest(KEY),)))) as server:
        clients = [raw_socket(server) for _ in range(12)]
        for client in clients:
            client.sendall(head.format(path).encode())
        body, headers = form(file=("a.txt", b"one."), source="en", target="xx", api_key=KEY)
        assert server.ask("/translate_file", body, headers)[0] == 200
        for client in clients:
            with client:
                assert client.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_file_that_arrives_slowly_but_steadily_is_read(models, serve, monkeypatch):
    monkeypatch.setattr("mt_cli.features.serving.bodies._SLOWEST_BYTES_PER_SECOND", 100)
    body, headers = form(file=("a.txt", b"one. " * 40), source="en", target="xx")
    with serve(Service(models, Limits(body_seconds=0.5))) as server, raw_socket(server) as client:
        lines = [f"{name}: {value}" for name, value in {**headers, "Content-Length": str(len(body))}.items()]
        client.sendall("\r\n".join(["POST /translate_file HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
        for start in range(0, len(body), 60):
            time.sleep(0.2)
            client.sendall(body[start : start + 60])
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_second_signal_stops_at_once_and_without_a_traceback(start, trained):
    process, url, _ = serving(start, "--run", trained)
    text = json.dumps({"text": "One two three. " * 900, "alternatives": 10, "details": True}).encode()
    request = urllib.request.Request(f"{url}/v1/translate", text, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: opener.open(request, timeout=60).read())
        time.sleep(0.5)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        assert process.wait(30) in (0, 130)  # 0 if the request was done before.
        answer.exception()
    log = process.stderr.read()
    assert "Traceback" not in log and "Stopped" in log and "terminate" not in log


def test_a_hangup_while_models_load_changes_nothing(start, trained):
    command = [sys.executable, "-m", "mt_cli", "serve", "--port", "0", "--device", "cpu", "--run", str(trained)]
    process = start(command, stderr=subprocess.PIPE, text=True)
    is_over = threading.Event()

    def hang_up():
        while not is_over.wait(0.02):
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            is_caught = int(re.search(r"SigCgt:\s+(\w+)", status)[1], 16) >> (signal.SIGHUP - 1) & 1
            if is_caught and b"torch" in Path(f"/proc/{process.pid}/maps").read_bytes():
                process.send_signal(signal.SIGHUP)

    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    thread = threading.Thread(target=hang_up)
    thread.start()
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if "Serving on" in line:
                break
    finally:
        is_over.set()
        thread.join()
    assert "Serving on" in lines[-1], lines
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_keys_are_read_again_when_models_are(models, tmp_path, capsys):
    path = tmp_path / "keys.txt"
    path.write_text(f"{KEY}\n", encoding="utf-8")
    service = Service(models, keys=Keys.read(path))
    try:
        path.write_text("a-new-key-of-people\n", encoding="utf-8")
        asyncio.run(reload(service))
        assert service.keys.knows("a-new-key-of-people") and not service.keys.knows(KEY)
        path.write_text("short\n", encoding="utf-8")
        asyncio.run(reload(service))
        assert service.keys.knows("a-new-key-of-people") and "the keys stay as they are" in capsys.readouterr().err
        service.keys = Keys((_digest(KEY),))
        asyncio.run(reload(service))
        assert service.keys.digests  # They do not come from a file.
    finally:
        service.close()


@pytest.mark.parametrize(
    ("number", "message"), [(0, ""), (1, "Stopping after 1 request ..."), (2, "Stopping after 2 requests ...")]
)
def test_a_stop_tells_what_it_waits_for(models, capsys, number, message):
    service = Service(models)
    try:
        server = _Server(server_config(service), service)
        service.num_running = number
        server.handle_exit(signal.SIGTERM, None)
        assert server.should_exit and capsys.readouterr().err.startswith(message)
        server.handle_exit(signal.SIGTERM, None)
        assert capsys.readouterr().err == ""
    finally:
        service.close()


def test_two_servers_do_not_share_an_address():
    with bound("127.0.0.1", 0) as first, pytest.raises(InputError, match="choose another address or port"):
        bound("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "decoding.beam=3"), "beam"),
        (("--set", "decoding.beam_size=0"), "beam_size"),
        (("--timeout", "inf"), "--timeout"),
        (("--cors", "https://[::1"), "--cors"),
        (("--cors", "https://example.org/page"), "--cors"),
        (("--allow-host", "*"), "--allow-host"),
        (("--allow-host", "example.org:8080"), "--allow-host"),
        (("--allow-host", ""), "--allow-host"),
    ],
)
def test_options_that_cannot_work_are_refused_at_the_start(mt, trained, options, message):
    status, _, err = mt("serve", "--run", trained, "--port", "0", *options)
    assert status == 2 and message in err and "Serving" not in err


@pytest.mark.parametrize(
    "host", ["user@localhost", "localhost/evil", "localhost#evil", "localhost:abc", "localhost:5600, evil", "[::1", ""]
)
def test_names_that_are_not_well_formed_are_not_ours(host):
    with pytest.raises(RequestError):
        Hosts.of("127.0.0.1", (), ()).check({"host": host}, False)
    for good in ("localhost", "LOCALHOST:80", "127.0.0.1:5000", "[::1]:5000"):
        Hosts.of("127.0.0.1", (), ()).check({"host": good}, False)


def test_a_part_of_a_file_is_not_left_on_a_full_disk(monkeypatch):
    store, write = FileStore(), Path.write_bytes

    def fail(path, content):
        write(path, content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(RequestError, match="disk"):
        store.add(b"content", "a.txt")
    assert not list(Path(store._folder.name).iterdir())
    store.close()


def test_a_folder_for_temporary_files_that_is_gone_is_told_to_the_client(server, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    body, headers = form(file=("a.txt", b"one."), source="en", target="xx")
    assert server.ask("/translate_file", body, headers)[0] == 507


def test_json_may_begin_with_a_byte_order_mark(server):
    body = b"\xef\xbb\xbf" + json.dumps({"q": "one two.", "source": "en", "target": "xx"}).encode()
    assert server.json("/translate", body, headers={"Content-Type": "application/json"})["translatedText"] == "ONE TWO."


def test_empty_codes_are_those_that_are_left_out(server):
    assert server.json("/v1/translate", {"text": "one two.", "source": "", "target": ""})["target"] == "xx"
