"""Longest wait of a client with short texts while others send what is hard to read, and peak memory of `mt serve`.

    python tests/benchmarks/hostile_requests.py --senders 1 --file-mb 32
    python tests/benchmarks/hostile_requests.py --senders 128 --only docx

The model is a stub, so that nothing is searched. Beside each wait stands the CPU time that the server used in the
meantime, which hardly depends on other work of the machine. Memory is that of the server and its processes, together.
"""

import gc
import io
import json
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import common

sys.path.append(str(common.ROOT / "tests" / "serving"))
import serving_server  # type: ignore[import-not-found]

LANGUAGES = {"source": "en", "target": "de"}
UNITS = ["/", " ", "<meta ", "{n, plural, one {", "{a,plural,", "A. ", "<b>", "[X1X]", "%s ", "*a ", "x.y@", "&amp;"]
BODY = b"<w:document xmlns:w='w'><w:body>%s</w:body></w:document>"
Request = tuple[str, bytes, dict[str, str]]


def serve(pipe: Connection) -> None:
    from fake_model import known_models  # type: ignore[import-not-found]

    from mt_cli.serving.service import Service

    service = Service(known_models())
    service.prepare()
    gc.freeze()  # As `mt serve` does; otherwise collections of garbage look at all that was imported.
    with serving_server.running(service) as server:
        pipe.send(server.url)
        pipe.recv()


def archive(content: bytes, claimed: int) -> bytes:
    """A `.docx` whose text claims a size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("word/document.xml", content)
    return file.getvalue().replace(len(content).to_bytes(4, "little"), claimed.to_bytes(4, "little"))


def requests(num_bytes: int) -> Iterator[tuple[str, Request]]:
    def request(path: str, **fields: object) -> Request:
        return path, json.dumps(LANGUAGES | fields).encode(), {"Content-Type": "application/json"}

    def file(name: str, content: bytes) -> tuple[str, Request]:
        return name, ("/translate_file", *serving_server.file_form(name.split()[0], content, **LANGUAGES))

    yield "short text", request("/translate", q="A dog runs.")
    for unit in UNITS:
        text = unit * (20_000 // len(unit))
        yield f"text {unit!r}", request("/v1/translate", text=text, details=True)
        yield f"html {unit!r}", request("/translate", q=f"<a {text[:19_990]}>x</a>", format="html")
    yield "1,000 texts", request("/v1/translate", text=["A dog {n}. "] * 1_000, alternatives=10, details=True)
    yield "arrays", ("/translate", b"[" * 100_000, {"Content-Type": "application/json"})
    for suffix in (".html", ".txt", ".md", ".properties"):
        for unit in ("<meta ", "{n, plural, one {", "A. ", "a\n", "\r\n--"):
            yield file(f"a{suffix} {unit!r}", (unit * (num_bytes // len(unit))).encode())
    yield file("a.docx of 1.5 GB", archive(bytes(1_500_000_000), 100))
    paragraphs = BODY % (b"<w:p><w:r><w:t>a</w:t></w:r></w:p>" * 40_000)
    yield file("a.docx of 40,000 paragraphs", archive(paragraphs, len(paragraphs)))
    yield file("a.html of 2 million marks", b"<b>a</b>" * 2**20)


def statuses(server: serving_server.Running, request: Request, senders: int) -> Counter[int]:
    """Number of answers with each status to a request that some clients send at once."""
    with ThreadPoolExecutor(senders) as pool:
        return Counter(status for status, _, _ in pool.map(server.ask, *zip(*[request] * senders, strict=True)))


def longest_wait(server: serving_server.Running, pid: int, request: Request, pool: Executor, senders: int) -> str:
    """Longest wait of a client while some send a request, CPU time of the server in it, memory, and answers."""
    (path, body, headers), waits, memory = next(requests(1))[1], [], 0
    sent = pool.submit(statuses, server, request, senders)
    while not (waits and sent.done()):
        begun_at, used = time.monotonic(), time.clock_gettime((~pid << 3) | 2)  # The CPU clock of a process.
        assert server.ask(path, body, headers)[0] == 200
        waits.append((time.monotonic() - begun_at, time.clock_gettime((~pid << 3) | 2) - used))
        memory = max(memory, memory_of(pid))
        time.sleep(0.01)
    wait, cpu = (1000 * max(values) for values in zip(*waits, strict=True))
    return f"{wait:6,.0f} ms, {cpu:5,.0f} ms CPU, {memory / 2**20:6,.0f} MiB, {dict(sent.result())}"


def memory_of(pid: int) -> int:
    """Bytes of a process and of all that it has started; pages that several share count once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = [
            int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
        ]
    except OSError:  # It has ended.
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")) + sum(
        map(memory_of, map(int, children))
    )


def main() -> None:
    options = common.read_options(__doc__, senders=1, file_mb=32, only="")
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    server = serving_server.Running(None, int(ours.recv().rpartition(":")[2]))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # Clients do not wait for each other.
        for name, request in requests(options.file_mb * 2**20 - 100):
            if options.only in name or name == "short text":
                print(f"{name:28} {longest_wait(server, process.pid, request, pool, options.senders)}", flush=True)
    ours.send(None)


if __name__ == "__main__":
    main()
