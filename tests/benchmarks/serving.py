"""Speed of `mt serve`: sentences a second with many clients, against `mt translate` on a file, and time of a request.

    python tests/benchmarks/serving.py --run runs/captions --input ../shared/data/multi30k/test_2016_flickr.en \
        --clients 50 --seconds 120 --output serving

Each client sends a sentence, waits for the translation, and sends the next one, on one connection. The times of single
requests are those of an idle server; the search alone is `Translator.translate` in a process of its own, with the same
sentences. Clients and server share the machine. The file and the clients take turns three times, while the server is
idle or the file is done, because the speed of a machine changes; rates are medians.
"""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

import common

from mt_cli.config.loading import load_config
from mt_cli.translation.translator import Translator

_SINGLE, _ROUNDS = 60, 3


def main() -> None:
    numbers = {"clients": 50, "seconds": 60, "threads": 0}
    options = common.read_options(__doc__, run=Path, input=Path, output=Path, **numbers)
    options.output.mkdir(parents=True, exist_ok=True)
    lines = common.read_lines(options.input)
    source, target = load_config(options.run / "config.yaml").corpus.languages
    direction = {"source": source, "target": target}
    alone = common.in_new_process(search_alone, options.run, options.threads, lines[:_SINGLE])
    times: list[float] = []
    rates, rates_of_file = [], []
    with subprocess.Popen(command(options, "serve", "--port", "0"), stderr=subprocess.PIPE, text=True) as server:
        port = port_of(server)
        single = asyncio.run(measure(port, lines[:_SINGLE], direction, 1, None))[0]
        for _ in range(_ROUNDS):
            rates_of_file.append(len(lines) / translate_file(options))
            of_round, num_requests, seconds = asyncio.run(
                measure(port, lines, direction, options.clients, options.seconds / _ROUNDS)
            )
            rates.append(num_requests / seconds)
            times += of_round
        memory = common.memory_of_process(server.pid)["VmHWM"]
        server.terminate()
    rate, rate_of_file = statistics.median(rates), statistics.median(rates_of_file)
    times.sort()
    common.print_titles("", "sentences a second", "of `mt translate`", "p50 (ms)", "p95", "p99")
    common.print_row("`mt translate`", f"{rate_of_file:,.0f}", "", "", "", "")
    shown = (f"{1000 * times[int(share * (len(times) - 1))]:,.0f}" for share in (0.5, 0.95, 0.99))
    common.print_row(f"{options.clients} clients", f"{rate:,.0f}", f"{rate / rate_of_file:.0%}", *shown)
    request, search = (1000 * statistics.median(values) for values in (single, alone))
    print(f"One request alone: {request:.1f} ms, the search {search:.1f} ms, {request - search:+.1f} ms.")
    print(f"Peak memory of the server: {memory / 2**20:,.0f} MiB.")


def command(options: Namespace, name: str, *arguments: object) -> list[str]:
    threads = ["--threads", options.threads] if options.threads else []
    return [*common.MT, *map(str, [name, "--run", options.run, *threads, *arguments])]


def translate_file(options: Namespace) -> float:
    """Time that `mt translate` needs for the file beyond the time for one line, in seconds."""
    first = options.output / "first.txt"
    first.write_text(common.read_lines(options.input)[0] + "\n", encoding="utf-8")
    times = []
    for path in (first, options.input):
        started_at = time.perf_counter()
        arguments = ("translate", "--input", path, "--output", options.output / "translation.txt", "--as-lines")
        subprocess.run(command(options, *arguments), check=True, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - started_at)
    return times[1] - times[0]


def search_alone(run: Path, num_threads: int, lines: list[str]) -> list[float]:
    """Seconds for each of some sentences, one by one, without a server."""
    translator = Translator.load(run, num_threads=num_threads or None)
    return [common.seconds_of(partial(translator.translate, [line])) for line in lines][5:]


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stderr is not None
    for line in server.stderr:
        if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return int(match[1])
    sys.exit("the server did not start")


async def measure(
    port: int, lines: list[str], direction: dict[str, str], num_clients: int, seconds: float | None
) -> tuple[list[float], int, float]:
    """Seconds of each request, their number, and the seconds of all; without a limit, each line is sent once."""
    started_at = time.perf_counter()
    times: list[float] = []
    numbers = iter(range(10**9))

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            number = next(numbers)
            begun_at = time.perf_counter()
            if begun_at - started_at > seconds if seconds else number >= len(lines):
                break
            body = json.dumps({"q": lines[number % len(lines)], **direction}).encode()
            head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            received = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            answer = await reader.readexactly(int(re.findall(r"content-length: (\d+)", received)[0]))
            if not received.startswith("http/1.1 200"):
                sys.exit(f"{received}{answer.decode()}")
            times.append(time.perf_counter() - begun_at)
        writer.close()

    await asyncio.gather(*(ask() for _ in range(num_clients)))
    return times[5:], len(times), time.perf_counter() - started_at


if __name__ == "__main__":
    main()
