"""Laws on what a stranger sends: work grows with its size, and memory with what was really unpacked."""

import io
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from tempfile import SpooledTemporaryFile

import pytest
from fake_model import known_models
from linear import assert_linear
from serving_server import archive_of, raw_socket, running, wait_for
from starlette.datastructures import UploadFile

from mt_cli.errors import InputError
from mt_cli.serving.access import Keys
from mt_cli.serving.bodies import LibreBody, parsed
from mt_cli.serving.errors import RequestCancelled, RequestError
from mt_cli.serving.files import unpacked_size
from mt_cli.serving.native import described
from mt_cli.serving.processes import Documents, in_process
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Limits, Service, plain_text, read_texts, translations
from mt_cli.translation.texts import SplitText

KEY = "a-key-of-people-1234"
PATTERNS = [
    "{}",
    " ",
    "/",
    "<meta ",
    "{{n, plural, one {{",
    "A. ",
    "[X1X]",
    "%s ",
    "{{a}} ",
    "<b>",
    "</b>",
    "$",
    "http://",
]
PATTERNS += ["\\", '"', "a@", "&amp;", "{{", "é", "。", "\t", "\u2028", "*", "![](", "1️⃣", "<a x=", "a-", "x.y@"]


@pytest.fixture(scope="module")
def service():
    service = Service(known_models())
    yield service
    service.close()


@pytest.mark.parametrize("unit", PATTERNS)
def test_work_on_a_text_grows_with_its_length(service, unit):
    def work(text):
        route = service.choose("en", "de", None, text)
        items = translations(service.job(route, Ticket()), [text], Ticket())
        described(items, service.job(route, Ticket()), False)
        service.rank_languages(text)
        parsed(LibreBody, {"q": text, "target": "de"})

    size = 1_100 // len(unit) + 1  # Both texts are longer than a tag can be, and so are treated alike.
    for before, after in (("", ""), ("a ", " b."), ("<p ", ">a</p>")):
        assert_linear(work, lambda number, ends=(before, after): ends[0] + unit * number + ends[1], size)


@pytest.mark.parametrize("unit", [" ", "/", "<meta ", "<b>", "<a x='", "&", "<!-- -->", "a ", "{", "<td>"])
def test_work_on_a_page_grows_with_its_length(service, unit):
    def work(text):
        try:
            pages = read_texts([text], "html")
        except InputError:
            return
        route = service.choose("en", "de", None, plain_text(pages[0]))
        translations(service.job(route, Ticket()), pages, Ticket())

    for before, after in (("<p>a ", " b</p>"), ("<a ", ">x</a>"), ("", "")):
        assert_linear(work, lambda number, ends=(before, after): ends[0] + unit * number + ends[1], 100)


@pytest.fixture
def serve_known():
    return lambda limits=None, **options: running(Service(known_models(), Limits(**limits or {}), **options))


def test_a_large_document_is_worked_on_alone():
    documents, running_sizes, most = Documents(), [], []

    def work(num_bytes):
        with documents.turn(num_bytes, Ticket()):
            running_sizes.append(num_bytes)
            most.append(sum(running_sizes))
            time.sleep(0.005)
            running_sizes.remove(num_bytes)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, [2**25, 2**20, 2**20, 10] * 8))
    assert max(most) == 2**25 and len([total for total in most if total > 2**20]) > 8
    ticket, held = Ticket(), threading.Event()
    with documents.turn(2**25, Ticket()), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: documents.turn(10, ticket).__enter__())
        ticket.is_cancelled = True
        assert isinstance(waiting.exception(), RequestCancelled) and not held.is_set()


def test_an_archive_counts_as_what_it_unpacks_to():
    content = archive_of(b"<w:document>" + b" " * 2**20)
    assert unpacked_size(UploadFile(io.BytesIO(content), filename="a.docx")) > 2**20 > 100 * len(content)
    assert unpacked_size(UploadFile(io.BytesIO(b"PK"), size=2, filename="a.docx")) == 2


def upload(key_field=b"", size=2**17):
    head = b"--x\r\nContent-Disposition: form-data; name=target\r\n\r\nde\r\n" + key_field
    file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    return head + file + b"a " * (size // 2) + b"\r\n--x--\r\n", {"Content-Type": "multipart/form-data; boundary=x"}


def test_a_key_is_looked_at_before_a_file_is_kept(serve_known, tmp_path, monkeypatch):
    closed, close = [], SpooledTemporaryFile.close
    monkeypatch.setattr(SpooledTemporaryFile, "close", lambda file: closed.append(file.tell()) or close(file))
    (tmp_path / "keys.txt").write_text(KEY)
    field = b'--x\r\nContent-Disposition: form-data; name="api_key"\r\n\r\n%s\r\n'
    with serve_known(keys=Keys.read(tmp_path / "keys.txt")) as server:
        body, headers = upload()
        head = f"POST /translate_file HTTP/1.1\r\nHost: localhost\r\nContent-Type: {headers['Content-Type']}\r\n"
        with raw_socket(server) as client:  # A wrong key in the header: refused before the body is sent.
            client.sendall(f"{head}Authorization: Bearer {KEY}x\r\nContent-Length: 1000000\r\n\r\n".encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 403")
        with raw_socket(server) as client:  # None in the head of a form: what was kept is dropped.
            client.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + body)
            wait_for(lambda: closed)
        for given, status in ((b"", 403), (field % b"wrong", 403), (field % KEY.encode(), 200)):
            body, headers = upload(given)
            assert server.ask("/translate_file", body, headers)[0] == status
        assert server.ask("/translate_file", upload()[0], headers | {"Authorization": f"Bearer {KEY}"})[0] == 200
        assert closed[0] <= 2**17


def test_work_stops_after_the_time_limit(serve_known, monkeypatch):
    texts, begun = [f"Sentence number {number}." for number in range(50)], []
    split = SplitText.of

    def slow(text, direction, protection):
        begun.append(text)
        time.sleep(0.05)
        return split(text, direction, protection)

    monkeypatch.setattr(SplitText, "of", slow)
    with serve_known({"text_seconds": 0.2}) as server:
        assert server.ask("/translate", {"q": texts, "source": "en", "target": "de"})[0] == 504
        wait_for(lambda: server.service.num_running == 0)
    assert len(begun) < 20


def broken(server, kind):
    if kind == "killed":
        os._exit(9)
    if kind == "too large":
        return len(bytearray(2**27))
    if kind == "waiting":
        server.ask("begin")
        time.sleep(600)
    raise {"of the system": OSError("not the disk of uploads"), "of memory": MemoryError()}[kind]


@pytest.mark.parametrize(("kind", "status"), [("of the system", 500), ("of memory", 503), ("killed", 503)])
def test_a_process_that_fails_fails_its_file_alone(kind, status):
    with pytest.raises(RequestError) as refusal:
        in_process(broken, (kind,), {}, Ticket(), 2**28)
    assert refusal.value.status == status


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")
def test_a_file_takes_no_more_memory_than_its_size_allows():
    assert in_process(broken, ("too large",), {}, Ticket(), 2**28) == 2**27
    with pytest.raises(RequestError) as refusal:
        in_process(broken, ("too large",), {}, Ticket(), 2**26)
    assert refusal.value.status == 503
    with Documents().turn(100, Ticket()) as small, Documents().turn(2**25, Ticket()) as large:
        assert (small, large) == (2**29, 2**32)


def test_a_file_of_a_cancelled_request_ends_its_process():
    ticket, before = Ticket(), {*multiprocessing.active_children()}
    with pytest.raises(RequestCancelled):
        in_process(broken, ("waiting",), {"begin": lambda: setattr(ticket, "is_cancelled", True)}, ticket, 2**28)
    assert {*multiprocessing.active_children()} <= before
