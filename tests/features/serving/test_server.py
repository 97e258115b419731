import errno
import html
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from serving_server import form, raw_socket, serving

from mt_cli.config.directions import Tagging
from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.features.serving.access import Hosts, Keys, Rates, _digest, client_of
from mt_cli.features.serving.errors import RequestError
from mt_cli.features.serving.files import FileStore
from mt_cli.features.serving.models import Direction, Models, Source, tag_of_direction
from mt_cli.features.serving.openapi import ANSWERS
from mt_cli.features.serving.service import Limits, Service
from mt_cli.features.serving.translations import SplitText
from mt_cli.translation.translator import Translator

KEY, OTHER_KEY = "a-key-of-people-1234", "a-second-key-9876543"


def test_a_text_is_translated_as_its_sentences_are_by_the_command(server, trained):
    translator = Translator.load(trained, "cpu", "fp32")
    one, two = translator.translate(["one two.", "three four five."])
    text = " one two. three four five.\r\n\n\tone two.\n"
    answer = server.json("/v1/translate", {"text": text})
    (translation,) = answer["translations"]
    assert translation["text"] == f" {one} {two}\r\n\n\t{one}\n"
    assert (answer["source"], answer["target"], answer["detected"]) == ("en", "xx", None)
    for side, whole in (("source", text), ("target", translation["text"])):
        parts = [sentence[side] for sentence in translation["sentences"]]
        assert "".join(part["before"] + part["text"] for part in parts) + parts[-1]["after"] == whole


def test_details_name_words_by_their_places(server):
    body = {"text": "one  two three.", "details": True, "alternatives": 2}
    (sentence,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
    source, target = sentence["source"]["text"], sentence["target"]["text"]
    assert [source[start:end] for start, end in sentence["source_words"]] == ["one", "two", "three."]
    assert [target[start:end] for start, end in sentence["target_words"]] == target.split()
    assert len(sentence["confidence"]) == len(target.split()) and all(0 <= p <= 1 for p in sentence["confidence"])
    assert [0, 0] in sentence["alignment"] and sentence["tokens"][-1] == "[EOS]"
    scores = [alternative["score"] for alternative in sentence["alternatives"]]
    assert len(scores) == 2 and sentence["score"] >= scores[0] >= scores[1]
    for alternative in sentence["alternatives"]:
        assert len(alternative["target_words"]) == len(alternative["confidence"])
        assert alternative["tokens"] != sentence["tokens"] and len(alternative["tokens"]) == len(
            alternative["token_scores"]
        )
        assert max(place for _, place in alternative["alignment"]) < len(alternative["target_words"])


def test_details_of_an_alternative_are_those_of_its_own_words(server, trained):
    body = {"text": "one two three.", "details": True, "alternatives": 3}
    (sentence,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
    translator = Translator.load(trained, "cpu", "fp32")
    for alternative in sentence["alternatives"]:
        (expected,) = translator.score(["one two three."], [alternative["text"]])
        assert alternative["tokens"] == expected.tokens
        assert alternative["token_scores"] == pytest.approx(expected.token_scores, abs=1e-3)


def test_an_export_is_served_with_words_that_belong_together(trained, mt, serve, server, tmp_path):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    command = "export", "--run", trained, "--format", "ctranslate2", "--output", tmp_path / "served"
    assert mt(*map(str, command))[0] == 0
    body = {"text": "one two three.", "details": True, "alternatives": 1}
    (expected,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
    with serve(Service(Models.load([Source(tmp_path / "served", "ctranslate2")]))) as exported:
        (sentence,) = exported.json("/v1/translate", body)["translations"][0]["sentences"]
        assert exported.json("/v1/models")["models"][0]["engine"] == "ctranslate2"
    assert sentence["target"] == expected["target"] and sentence["target_words"] == expected["target_words"]
    assert sentence["token_scores"] == pytest.approx(expected["token_scores"], abs=1e-3)
    assert sentence["alignment"] and sentence["alternatives"][0]["alignment"]


@pytest.mark.parametrize("between", ["\t", "\t\t", "\u2028", "\v", "\u00a0", "\u3000", " \u00a0 "])
def test_blanks_of_all_kinds_separate_sentences_and_stay(server, between):
    answer = server.json("/v1/translate", {"text": f"One two.{between}Three.", "source": "en", "target": "xx"})
    (translation,) = answer["translations"]
    parts = server.json("/v1/translate", {"text": ["One two.", "Three."], "source": "en", "target": "xx"})
    assert translation["text"] == between.join(part["text"] for part in parts["translations"])
    assert [sentence["source"]["text"] for sentence in translation["sentences"]] == ["One two.", "Three."]


def test_a_sentence_tells_what_the_model_cannot_read_well(server):
    long = "one two three " * 40
    answer = server.json("/v1/translate", {"text": [long, "one 漢."], "source": "en", "target": "xx"})
    (first,), (second,) = (translation["sentences"] for translation in answer["translations"])
    assert (first["is_too_long"], second["is_too_long"]) == (True, False)
    assert (first["unknown_words"], second["unknown_words"]) == ([], ["漢"])


@pytest.mark.parametrize("text", ["", " ", "\n\n", "...", "😀", "one", "\u0000", "a\u2028b", "<b>one</b> & two"])
def test_blank_characters_and_symbols_come_back(server, text):
    answer = server.json("/translate", {"q": text, "source": "en", "target": "xx"})["translatedText"]
    if not any(map(str.isalnum, text)):
        assert answer == text


def test_libretranslate_answers_lists_and_single_texts(server):
    one = server.json("/translate", {"q": "one two.", "source": "en", "target": "xx"})
    assert one == {"translatedText": "ONE TWO."}
    many = server.json(
        "/translate", {"q": ["one two.", "", "ten."], "source": "auto", "target": "xx", "alternatives": 2}
    )
    assert many["translatedText"] == ["ONE TWO.", "", "TEN."]
    assert [len(rows) for rows in many["alternatives"]] == [2, 0, 2]
    assert [row["language"] for row in many["detectedLanguage"]] == ["en"] * 3


def test_a_form_is_read_as_json_is(server):
    body = b"q=one+two.&source=en&target=xx&alternatives=1"
    answer = server.json("/translate", body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer["translatedText"] == "ONE TWO." and len(answer["alternatives"]) == 1


def test_html_keeps_its_tags(server):
    body = {"q": "<p class=x>one two.</p><p>ten.</p>", "source": "en", "target": "xx", "format": "html"}
    assert server.json("/translate", body)["translatedText"] == "<p class=x>ONE TWO.</p><p>TEN.</p>"


def test_libretranslatepy_works_unchanged(server):
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"{server.url}/")
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["xx"]},
        {"code": "xx", "name": "xx", "targets": []},
    ]
    assert client.translate("one two.", "en", "xx") == "ONE TWO."
    assert client.detect("This is one of the sentences.")[0]["language"] == "en"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/translate", b"", 400, "JSON"),
        ("/translate", b"[]", 400, "object"),
        ("/translate", b'{"q": "one"}', 400, "target"),
        ("/translate", b'{"q": 1, "target": "xx"}', 400, "q"),
        ("/translate", b'{"q": {"a": 1}, "target": "xx"}', 400, "q"),
        ("/translate", b'{"q": ["one", null], "target": "xx"}', 400, "q"),
        ("/translate", b'{"q": "one", "source": "de", "target": "xx"}', 400, "de"),
        ("/translate", b'{"q": "one", "source": "en", "target": "en"}', 400, "en to en is not supported"),
        ("/translate", b'{"q": "one", "source": "xx", "target": "en"}', 400, "xx to en is not supported"),
        ("/translate", b'{"q": "one", "source": "xx", "target": "ja"}', 400, "ja is not supported"),
        ("/translate", b'{"q": "one", "target": "xx", "alternatives": -1}', 400, "alternatives"),
        ("/translate", b'{"q": "one", "target": "xx", "format": "pdf"}', 400, "format"),
        ("/translate", b'{"q": "\\ud800", "target": "xx"}', 400, "JSON"),
        ("/translate", b'{"q": "\xff", "target": "xx"}', 400, "JSON"),
        ("/translate", b'{"q": ' + b"[" * 50_000, 400, "JSON"),
        ("/translate", b'{"q": "a", "target": "xx", "alternatives": ' + b"9" * 5_000 + b"}", 400, "number"),
        ("/translate", json.dumps({"q": "a" * 20_001, "target": "xx"}).encode(), 413, "20,001"),
        ("/translate", json.dumps({"q": ["a"] * 1_001, "target": "xx"}).encode(), 413, "1,001"),
        ("/translate", b"a" * 200_000, 413, "bytes"),
        ("/translate", b"a" * 10_000_000, 413, "bytes"),
        ("/v1/translate", b'{"text": "one", "txt": "two"}', 400, "txt"),
        ("/v1/translate", b'{"text": "one", "alternatives": 11}', 400, "11"),
        ("/v1/translate", b'{"text": "one", "alternatives": "1"}', 400, "alternatives"),
        ("/v1/translate", b'{"text": "one", "model": "other"}', 400, "other"),
        ("/v1/translate", b'{"text": "<b", "format": "html"}', 400, "line 1"),
        ("/detect", b"{}", 400, "q"),
        ("/suggest", b"{}", 403, "disabled"),
        ("/nothing", b"{}", 404, "path"),
        ("/languages", b"{}", 405, "method"),
        ("/translate_file", b"{}", 400, "file"),
        ("/page/../app.py", None, 404, "path"),
        ("/page/%2e%2e/app.py", None, 404, "path"),
        ("/download_file/..%2f..%2fetc%2fpasswd", None, 404, "path"),
        ("/download_file/none.txt", None, 404, "file"),
    ],
)
def test_wrong_requests_get_one_message_in_json(server, path, body, status, message):
    received, headers, content = server.ask(path, body, {"Content-Type": "application/json"})
    assert received == status and set(content) == {"error"} and message in content["error"]
    assert "Traceback" not in content["error"] and "/mt_cli" not in content["error"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_a_file_comes_back_translated_under_a_name_that_nobody_can_guess(server):
    body, headers = form(file=("a b.txt", b"one two.\r\n\r\nten."), source="en", target="xx")
    address = server.json("/translate_file", body, headers=headers)["translatedFileUrl"]
    assert address.startswith(f"{server.url}/download_file/") and len(address.rpartition("/")[2]) > 30
    status, received, content = server.ask(address.removeprefix(server.url))
    assert (status, content) == (200, b"ONE TWO.\r\n\r\nTEN.")
    assert received["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b.xx.txt"


def test_texts_of_a_file_that_need_a_review_are_named(server):
    content = b'msgid "one two."\nmsgstr ""\n\nmsgid "one %s two."\nmsgstr ""\n'
    body, headers = form(file=("a.po", content), source="en", target="xx")
    answer = server.json("/translate_file", body, headers=headers)
    assert answer["notes"] == ["review line 4: the place of a tag or another mark is a guess"]
    content = server.ask(answer["translatedFileUrl"].removeprefix(server.url))[2].decode()
    assert content.count("%s") == 2 and "#, fuzzy" in content
    body, headers = form(file=("a.md", b"one two.\n"), source="en", target="xx")
    assert "notes" not in server.json("/translate_file", body, headers=headers)


def test_the_oldest_files_make_room_for_new_ones(monkeypatch):
    monkeypatch.setattr("mt_cli.features.serving.files._MOST_FILES", 3)
    store = FileStore()
    tokens = [store.add(b"text", "a.txt") for _ in range(5)]
    for token in tokens[:2]:
        with pytest.raises(RequestError, match="no such file"):
            store.get(token)
    paths = [store.get(token).path for token in tokens[2:]]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)
    store.close()
    assert not paths[0].parent.exists()


def test_a_table_is_translated_in_the_column_that_the_client_chooses(server):
    def ask(**fields):
        body, headers = form(file=("a.csv", b"id,text\none,one two.\n2,ten.\n"), source="en", target="xx", **fields)
        status, _, answer = server.ask("/translate_file", body, headers)
        if status != 200:
            return status, answer
        return status, server.ask(answer["translatedFileUrl"].removeprefix(server.url))[2]

    for fields in ({}, {"column": "txt"}):
        status, answer = ask(**fields)
        assert (status, answer["columns"]) == (400, ["id", "text"])
        assert "--" not in answer["error"] and answer["error"].startswith("a.csv: ")
    assert ask(column="text") == (200, b"id,text\none,ONE TWO.\n2,TEN.\n")
    status, content = ask(column="1")
    assert status == 200 and [line.split(b",")[1] for line in content.splitlines()] == [b"text", b"one two.", b"ten."]
    assert content.splitlines()[1].startswith(b"ONE")


@pytest.mark.parametrize(
    ("name", "content", "status", "message"),
    [
        ("a.pdf", b"", 415, ".pdf"),
        ("a", b"", 415, "without a suffix"),
        ("../../a.po", b'msgid "a\n', 400, "a.po"),
        ("a.docx", b"PK\x03\x04", 400, "a.docx"),
        ("a.txt", b"\xff\xfe\x00", 400, "a.txt"),
        ("a.html", b"<p", 400, "a.html"),
    ],
)
def test_damaged_files_are_refused_under_their_own_names(server, name, content, status, message):
    body, headers = form(file=(name, content), source="en", target="xx")
    received, _, answer = server.ask("/translate_file", body, headers)
    assert received == status and message in answer["error"] and "document." not in answer["error"]
    assert "/" not in answer["error"].replace(", ", "")


@pytest.mark.parametrize(
    "body", [b"", b"--x\r\n", b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\nq\r\n--x--\r\n", b"\xff" * 100]
)
def test_damaged_forms_are_refused(server, body):
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    status, _, answer = server.ask("/translate_file", body, headers)
    assert status == 400 and answer["error"]
    assert server.ask("/translate_file", body, {"Content-Type": "multipart/form-data"})[0] == 400


def test_a_file_that_is_too_large_is_refused(models, serve):
    with serve(Service(models, Limits(max_file_bytes=1_000))) as server:
        body, headers = form(file=("a.txt", b"one " * 30_000), source="en", target="xx")
        assert server.ask("/translate_file", body, headers)[0] == 413


def test_keys_open_all_that_works_and_nothing_else(models, serve, tmp_path):
    (tmp_path / "keys.txt").write_text(f"# people\n{KEY}\n\n{OTHER_KEY}\n", encoding="utf-8")
    text = {"q": "one.", "source": "en", "target": "xx"}
    with serve(Service(models, keys=Keys.read(tmp_path / "keys.txt"))) as server:
        for given in ({}, {"api_key": ""}, {"api_key": KEY[:-1]}, {"api_key": f"{KEY}x"}, {"api_key": "# people"}):
            assert server.ask("/translate", text | given)[0] == 403
        for key in (KEY, OTHER_KEY):
            assert server.ask("/translate", text | {"api_key": key})[0] == 200
            assert server.ask("/translate", text, {"Authorization": f"Bearer {key}"})[0] == 200
        assert server.ask("/v1/translate", {"text": "one."})[0] == 403
        assert server.ask("/v1/translate", {"text": "one."}, {"Authorization": f"Bearer {KEY}"})[0] == 200
        assert server.ask("/v1/translate", {"text": "one.", "api_key": KEY})[0] == 200
        assert server.ask("/v1/translate", {"text": "one.", "api_key": KEY[:-1]})[0] == 403
        assert server.ask("/detect", {"q": "one"})[0] == 403 and server.ask("/metrics")[0] == 403
        body, headers = form(file=("a.txt", b"one."), source="en", target="xx")
        assert server.ask("/translate_file", body, headers)[0] == 403
        body, headers = form(file=("a.txt", b"one."), source="en", target="xx", api_key=KEY)
        assert server.ask("/translate_file", body, headers)[0] == 200
        assert server.ask("/health")[0] == server.ask("/languages")[0] == server.ask("/")[0] == 200
        assert server.json("/frontend/settings")["keyRequired"] is True


@pytest.mark.parametrize("content", ["", "# none\n", "short\n", "with a space in the key\n", "schlüssel-1234567890\n"])
def test_keys_that_are_none_are_refused_at_the_start(mt, trained, tmp_path, content):
    (tmp_path / "keys.txt").write_text(content, encoding="utf-8")
    status, out, err = mt("serve", "--run", trained, "--keys", "keys.txt", "--port", "0")
    assert (status, out) == (2, "") and "keys.txt" in err and "16 characters" in err


def test_a_client_that_asks_too_often_is_told_when_to_come_back(models, serve):
    with serve(Service(models, rates=Rates(3))) as server:
        answers = [server.ask("/detect", {"q": "one"}) for _ in range(5)]
    assert [status for status, _, _ in answers] == [200, 200, 200, 429, 429]
    assert 1 <= int(answers[-1][1]["Retry-After"]) <= 20


def test_rates_are_counted_by_client_and_recover():
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])
    for client in ("a", "a", "b"):
        rates.check(client)
    with pytest.raises(Exception, match="2 requests in a minute"):
        rates.check("a")
    now[0] += 30
    rates.check("a")
    rates.check("b")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "[::1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost", "Host": "localhost"}, 200),
        ({"Origin": "https://good.example"}, 200),
    ],
)
def test_pages_of_other_sites_cannot_use_a_server_of_this_machine(models, serve, headers, status):
    hosts = Hosts.of("127.0.0.1", [], ["https://good.example"])
    with serve(Service(models, hosts=hosts)) as server:
        received, answer, _ = server.ask("/detect", {"q": "one"}, headers)
        assert received == status
        allowed = answer.get("Access-Control-Allow-Origin")
        assert allowed == ("https://good.example" if headers.get("Origin") == "https://good.example" else None)


def test_without_cors_no_site_may_read_an_answer(server):
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
        _, received, _ = server.ask("/languages", headers=headers, method=method)
        assert not [name for name in received if name.lower().startswith("access-control")]


@pytest.mark.parametrize("origin", ["*", "good.example", "https://good.example/", "https://"])
def test_an_origin_that_is_none_is_refused_at_the_start(mt, trained, origin):
    status, out, err = mt("serve", "--run", trained, "--cors", origin)
    assert (status, out) == (2, "") and "--cors" in err


@pytest.mark.parametrize("proxy", ["proxy.example.org", "*", "10.0.0.1/8", ""])
def test_a_proxy_that_is_no_address_is_refused_at_the_start(mt, trained, proxy):
    status, _, err = mt("serve", "--run", trained, "--proxy", proxy)
    assert status == 2 and err.startswith(f"mt: --proxy {proxy}: ")


def test_every_answer_has_the_headers_that_browsers_need(server):
    for path in ("/", "/languages", "/nothing", "/page/style.css", "/docs", "/openapi.json"):
        _, headers, _ = server.ask(path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"] is None


def test_the_description_names_every_path_and_key(server):
    description = server.json("/openapi.json")
    for path, operations in description["paths"].items():
        method = next(iter(operations)).upper()
        status, _, _ = server.ask(path.replace("{name}", "x"), b"{}" if method == "POST" else None)
        assert status != 405 and (status != 404 or "{" in path)
    keys = description["paths"]["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(keys["properties"]) == {
        "text",
        "source",
        "target",
        "model",
        "format",
        "alternatives",
        "details",
        "api_key",
    }
    assert all(key.get("description") for key in keys["properties"].values())
    page = server.ask("/docs")[2].decode()
    assert all(path in page for path in description["paths"]) and "<script" not in page
    assert "`" not in page and "<code>Retry-After</code>" in page


def test_the_answers_have_the_keys_that_the_description_shows(server):
    form_body, form_headers = form(file=("a.txt", b"one."), source="en", target="xx")
    requests = {
        "/languages": (None, None),
        "/health": (None, None),
        "/v1/models": (None, None),
        "/translate": ({"q": "one.", "source": "en", "target": "xx"}, None),
        "/detect": ({"q": "one."}, None),
        "/v1/translate": ({"text": "one."}, None),
        "/translate_file": (form_body, form_headers),
    }
    assert set(requests) == ANSWERS.keys()
    page = html.unescape(server.ask("/docs")[2].decode())
    for path, (body, headers) in requests.items():
        answer, shown = server.ask(path, body, headers)[2], ANSWERS[path]
        for real, example in [*zip(answer, shown, strict=False)] if isinstance(shown, list) else [(answer, shown)]:
            assert real.keys() == example.keys()
        assert json.dumps(shown, ensure_ascii=False) in page


def test_fifty_clients_get_the_translations_of_one(server):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    texts = [f"{first} {second}." for first in words for second in words]
    with ThreadPoolExecutor(50) as pool:
        together = list(pool.map(lambda text: server.json("/v1/translate", {"text": text}), texts))
    alone = server.service.models.models[0].translator.translate(texts)
    assert [answer["translations"][0]["text"] for answer in together] == alone
    metrics = server.ask("/metrics")[2].decode()
    assert 'mt_requests_total{path="/v1/translate",status="200"} 100' in metrics
    assert int(re.search(r"mt_batch_rows_count (\d+)", metrics)[1]) < 100


def test_small_answers_are_sent_at_once(server):
    with raw_socket(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        (connection,) = server.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_models_are_loaded_in_threads_that_end(trained, monkeypatch):
    threads = []
    load = Source.load
    monkeypatch.setattr(Source, "load", lambda *args: (threads.append(threading.current_thread()), load(*args))[1])
    models = Models.load([Source(trained, device="cpu")])
    os.utime(trained / "checkpoints" / "best.safetensors")
    models.reload()
    assert len(threads) == 2 and not any(thread.is_alive() for thread in threads)


def test_a_full_server_says_when_to_come_back_and_recovers(models, serve):
    with serve(Service(models, Limits(max_requests=2))) as server:
        release = block_search(server.service)
        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(server.ask, "/v1/translate", {"text": "one."}) for _ in range(2)]
            wait_for(lambda: server.service.num_running == 2)
            status, headers, content = server.ask("/v1/translate", {"text": "one."})
            assert status == 429 and int(headers["Retry-After"]) >= 1 and "busy" in content["error"]
            assert server.ask("/health")[0] == 200
            release()
            assert [call.result()[0] for call in waiting] == [200, 200]
        assert server.ask("/v1/translate", {"text": "one."})[0] == 200


def block_search(service):
    """Let the scheduler wait; returns the function that ends this."""
    gate = threading.Event()
    compute = service.scheduler._compute
    service.scheduler._compute = lambda batch: (gate.wait(), compute(batch))
    return gate.set


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_request_that_takes_too_long_ends_and_leaves_nothing(models, serve):
    with serve(Service(models, Limits(text_seconds=0.2))) as server:
        release = block_search(server.service)
        status, _, content = server.ask("/v1/translate", {"text": "one."})
        assert status == 504 and "0.2 seconds" in content["error"]
        wait_for(lambda: server.service.num_running == 0)
        release()


def test_work_for_a_client_that_has_gone_is_dropped(server):
    release = block_search(server.service)
    body = json.dumps({"text": "one. two. three."}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with raw_socket(server) as client:
        client.sendall(head + body)
        wait_for(lambda: server.service.num_running == 1)
    wait_for(lambda: server.service.num_running == 0)
    release()
    assert server.json("/v1/translate", {"text": "one."})["translations"][0]["text"] == "ONE."


def test_a_client_that_sends_slowly_holds_nobody_up(models, serve, monkeypatch):
    monkeypatch.setattr("mt_cli.features.serving.server._SECONDS_OF_HEAD", 0.3)
    with serve(Service(models, Limits(body_seconds=0.3))) as server:
        clients = [raw_socket(server) for _ in range(40)]
        for number, client in enumerate(clients):
            head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
            client.sendall(b"" if number % 3 == 0 else head[:20] if number % 3 == 1 else head)
        assert server.json("/translate", {"q": "one.", "source": "en", "target": "xx"})["translatedText"] == "ONE."
        for number, client in enumerate(clients):
            with client:
                received = client.recv(1000)
                assert received.startswith(b"HTTP/1.1 408") if number % 3 == 2 else not received


def test_a_run_that_is_trained_further_is_loaded_without_a_lost_request(trained, serve, tmp_path, monkeypatch):
    run = tmp_path / "tiny"
    shutil.copytree(trained, run)
    service = Service(Models.load([Source(run, device="cpu", precision="fp32")]))
    with serve(service, watch_seconds=0.05) as server:
        before = service.models.models[0]
        is_done = threading.Event()

        def ask():
            statuses = []
            while not is_done.is_set():
                statuses.append(server.ask("/v1/translate", {"text": "one two."})[0])
            return statuses

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            for _ in range(2):
                known = service.models.models[0]
                new = tmp_path / "new"
                shutil.copyfile(run / "checkpoints" / "best.safetensors", new)
                os.replace(new, run / "checkpoints" / "best.safetensors")
                wait_for(lambda known=known: service.models.models[0] is not known)
            (run / "checkpoints" / "best.safetensors").write_bytes(b"damaged")
            time.sleep(0.5)
            is_done.set()
            statuses = [status for call in asking for status in call.result()]
        assert set(statuses) == {200} and len(statuses) > 10
        assert service.models.models[0] is not before
        assert server.json("/v1/translate", {"text": "one two."})["translations"][0]["text"] == "ONE TWO."


def test_the_address_for_other_machines_is_named_in_a_way_that_they_can_use(start, trained):
    process, url, _ = serving(start, "--run", trained, "--host", "0.0.0.0")
    assert url.startswith(f"http://{socket.gethostname()}:")
    process.send_signal(signal.SIGINT)
    assert "every machine that reaches this address" in process.stderr.read() and process.wait(60) == 0


def test_a_stop_finishes_what_was_accepted(start, trained):
    process, url, _ = serving(start, "--run", trained)
    text = json.dumps({"text": "One two three. " * 600, "alternatives": 5}).encode()
    request = urllib.request.Request(f"{url}/v1/translate", text, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: json.load(opener.open(request, timeout=60)))
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        translation = answer.result()["translations"][0]
    assert len(translation["sentences"]) == 600
    assert process.wait(60) == 0 and "Stopped." in process.stderr.read()
    with pytest.raises(OSError):
        opener.open(f"{url}/health", timeout=5)


def test_the_log_has_no_text_and_hangup_loads_again(start, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "tiny")
    process, url, lines = serving(start, "--run", tmp_path / "tiny", "--log-requests")
    process.send_signal(signal.SIGHUP)
    lines.append(process.stderr.readline())
    assert "nothing is loaded again" in lines[-1]
    best = tmp_path / "tiny" / "checkpoints" / "best.safetensors"
    os.utime(best)
    process.send_signal(signal.SIGHUP)
    while not any("loaded again" in line for line in lines):
        lines.append(process.stderr.readline())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(f"{url}/detect?secret", b"q=secret", timeout=60).close()
    for path in ("languages", "secret"):
        with pytest.raises(urllib.error.HTTPError, match="421"):
            opener.open(urllib.request.Request(f"{url}/{path}", headers={"Host": "example.org"}), timeout=60)
    process.send_signal(signal.SIGINT)
    log = "".join([*lines, process.stderr.read()])
    assert process.wait(60) == 0 and "POST /detect 200" in log and "secret" not in log
    assert "GET /languages 421" in log and "GET other 421" in log


def test_an_address_that_is_taken_is_refused_before_anything_is_loaded(mt, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, out, err = mt("serve", "--run", "nothing", "--port", taken.getsockname()[1])
    assert (status, out) == (2, "") and "--port" in err and "another address or port" in err
    status, _, err = mt("serve", "--run", "nothing", "--port", "0")
    assert status == 2 and "nothing" in err


@pytest.mark.parametrize(
    ("tags", "direction", "tag"),
    [
        ((), ("en", "de"), None),
        (("<2de>", "<2en>"), ("de", "en"), "<2en>"),
        (("<en>de>", "<de>en>"), ("de", "en"), "<de>en>"),
        (("<eng_Latn>fao_Latn>",), ("eng_Latn", "fao_Latn"), "<eng_Latn>fao_Latn>"),
    ],
)
def test_a_direction_has_the_tag_that_training_put_before_it(tags, direction, tag):
    assert tag_of_direction(Tagging(tags), Direction(*direction)) == tag


@pytest.mark.parametrize("language", ["de", "zh", "ja", "th"])
def test_sentences_and_what_is_between_them_are_the_text(language):
    text = " One two. Three?\r\n\tFour!  \n\nFive.   Six "
    split = SplitText.of(text, Direction("en", language), UNPROTECTED)
    assert "".join(row.before + row.text for row in split.sentences) + split.after == text
    assert [row.text for row in split.sentences] == ["One two.", "Three?", "Four!", "Five.", "Six"]
    assert [row.target_before for row in split.sentences][0:3:2] == [" ", "\r\n\t"]


def test_the_server_tells_what_is_missing_to_install(mt, trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "mt_cli.features.serving.server", raising=False)
    status, out, err = mt("serve", "--run", trained)
    assert (status, out) == (2, "") and "pip install" in err and "serve" in err


def test_an_origin_that_is_none_is_refused(server):
    for origin in ("http://[::1", "http://[x]", "//"):
        status, _, answer = server.ask("/detect", {"q": "one"}, {"Origin": origin})
        assert status == 403 and "other sites" in answer["error"]


def test_forms_with_files_or_half_characters_for_texts_are_refused(server):
    body, headers = form(q=("two.txt", b"one."), source="en", target="xx")
    status, _, answer = server.ask("/translate", body, headers)
    assert status == 400 and "/translate_file" in answer["error"]
    for path, fields in (("/translate", {"q": "\\ud800"}), ("/translate_file", {"file": ("\\ud800.txt", b"one.")})):
        body, headers = form(source="en", target="xx", **fields)
        headers["Content-Type"] += "; charset=unicode_escape"
        status, _, answer = server.ask(path, body, headers)
        assert status == 400 and "well formed" in answer["error"]


def test_a_name_that_is_too_long_for_a_file_is_not_found(server):
    assert server.ask(f"/page/{'a' * 5_000}.js")[0] == 404


def test_addresses_of_ipv4_have_rates_of_their_own_on_a_socket_for_both_kinds():
    assert client_of("::ffff:192.0.2.1", None) == client_of("192.0.2.1", None) != client_of("::ffff:192.0.2.2", None)
    assert client_of("2001:db8::1", None) == client_of("2001:db8::2", None) != client_of("2001:db8:0:1::1", None)
    assert client_of("fe80::1%eth0", None) == client_of("fe80::2", None)


def test_wrong_keys_count_for_the_address_that_sends_them(models, serve):
    with serve(Service(models, keys=Keys((_digest(KEY),)), rates=Rates(2))) as server:
        statuses = [server.ask("/detect", {"q": "one", "api_key": f"{number:020}"})[0] for number in range(4)]
        assert statuses == [403, 403, 429, 429]
        assert server.ask("/detect", {"q": "one", "api_key": KEY})[0] == 200


def test_a_folder_for_files_that_was_removed_comes_back_and_its_files_are_missing():
    store = FileStore()
    first = store.add(b"text", "a.txt")
    shutil.rmtree(store.get(first).path.parent)
    second = store.add(b"text", "a.txt")
    assert store.get(second).path.read_bytes() == b"text"
    with pytest.raises(RequestError, match="no such file"):
        store.get(first)
    store.close()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_compressed_requests_are_refused(server, encoding):
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    for path in ("/translate", "/v1/translate", "/translate_file"):
        status, _, answer = server.ask(path, b"\x1f\x8b", headers)
        assert status == 415 and "Content-Encoding" in answer["error"]


def test_a_full_disk_is_told_to_the_client(server, monkeypatch):
    def write_bytes(path, content):
        raise OSError(errno.ENOSPC, "no space")

    body, headers = form(file=("a.txt", b"one two."), source="en", target="xx")
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    status, _, answer = server.ask("/translate_file", body, headers)
    assert status == 507 and "full" in answer["error"]


def test_weights_that_cannot_be_loaded_are_reported_once(trained, tmp_path, capsys, monkeypatch):
    shutil.copytree(trained, tmp_path / "tiny")
    models = Models.load([Source(tmp_path / "tiny", device="cpu", precision="fp32")])
    best = tmp_path / "tiny" / "checkpoints" / "best.safetensors"
    content = best.read_bytes()
    best.write_bytes(b"damaged")
    capsys.readouterr()
    assert models.reload(with_refused=False) == models.reload(with_refused=False) == []
    assert capsys.readouterr().err.count("served as before") == 1
    assert models.reload() == [] and "served as before" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "load", lambda *_, **__: 1 / 0)
        os.utime(best, ns=(1, 1))
        assert models.reload(with_refused=False) == [] and "ZeroDivisionError" in capsys.readouterr().err
    best.write_bytes(content)
    assert models.reload(with_refused=False) == ["tiny"]


def lacking(*arguments, **options):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_too_little_memory_is_told_to_the_client_who_may_ask_again(models, serve, monkeypatch):
    monkeypatch.setattr("mt_cli.decoding.engine.start_search", lacking)
    with serve(Service(models)) as server:
        status, headers, answer = server.ask("/translate", {"q": "one two.", "source": "en", "target": "xx"})
    assert status == 503 and headers["Retry-After"] == "10" and "too little memory" in answer["error"]


def test_weights_without_room_in_memory_are_tried_again(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "tiny")
    models = Models.load([Source(tmp_path / "tiny", device="cpu", precision="fp32")])
    os.utime(tmp_path / "tiny" / "checkpoints" / "best.safetensors", ns=(1, 1))
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "load", lacking)
        assert models.reload(with_refused=False) == []
    assert models.reload(with_refused=False) == ["tiny"]


def test_a_client_that_does_not_read_is_left(models, serve, monkeypatch):
    monkeypatch.setattr("mt_cli.features.serving.server._SECONDS_OF_READING", 0.3)
    with serve(Service(models)) as server, raw_socket(server) as client:
        client.settimeout(10)
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            while True:
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
