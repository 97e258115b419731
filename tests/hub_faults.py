"""What goes wrong with a hub and with the network before it, for `hub_server.py`."""

import contextlib
import fnmatch
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What goes wrong with requests whose path matches a pattern, for a number of times, or always."""

    kind: str
    """`status` and `silence` replace the reply; `truncate`, `stall` and `slow` change its body."""
    pattern: str
    times: int | None
    method: str | None
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int | None = None
    """Bytes of the body that are sent before it ends or stalls."""
    bytes_per_second: float = 0.0


class Faults:
    """The faults of a server, each with a pattern for paths, the number of times it happens, and a method or any.

    The reply to a request meets one fault at most, the first that has not happened often enough, and its body another.
    """

    def __init__(self):
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._released = threading.Event()

    def status(self, pattern, status, times=None, method=None, body=b"", **headers):
        """Answer with a status, such as 429, 500 or 503, and headers: `Retry_After=1` gives `Retry-After: 1`.

        With `Content_Length=""`, the body has no length, and ends with the connection.
        """
        named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        self._add("status", pattern, times, method, status=status, headers=named, body=body)

    def truncate(self, pattern, after, times=None, method=None):
        """Close the connection after some bytes of a body whose length was announced."""
        self._add("truncate", pattern, times, method, after=after)

    def stall(self, pattern, after=None, times=None, method=None):
        """Send some bytes of a body and then nothing, without closing the connection; without `after`, no reply."""
        self._add("silence" if after is None else "stall", pattern, times, method, after=after)

    def slow(self, pattern, bytes_per_second, times=None, method=None):
        self._add("slow", pattern, times, method, bytes_per_second=bytes_per_second)

    def clear(self):
        """No more faults; stalled connections are closed."""
        with self._lock:
            self._faults.clear()
        self.release()
        self.resume()

    def _add(self, kind, pattern, times, method, **options):
        with self._lock:
            self._faults.append(Fault(kind, pattern, times, method, **options))

    def instead(self, method, path):
        """The fault that replaces the reply to a request, or None; it is counted as used."""
        return self._use(method, path, ("status", "silence"))

    def during(self, method, path):
        """The fault of sending a body, or None; it is counted as used."""
        return self._use(method, path, ("truncate", "stall", "slow"))

    def _use(self, method, path, kinds):
        """The first fault of some kinds that a request meets."""
        with self._lock:
            for fault in self._faults:
                is_meant = fault.kind in kinds and fault.method in (None, method) and fault.times != 0
                if is_meant and fnmatch.fnmatchcase(path.split("?")[0], fault.pattern):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def blocks(self, body, fault):
        """The blocks of a body as they are sent; None closes the connection."""
        released = self._released  # That of now: `clear` makes another.
        if fault is None:
            yield body
        elif fault.kind == "slow":
            size = max(1, int(fault.bytes_per_second / 20))
            for first in range(0, len(body), size):
                yield body[first : first + size]
                if released.wait(size / fault.bytes_per_second):
                    yield None
        else:
            yield body[: fault.after]
            if fault.kind == "stall":
                released.wait()
            yield None

    def wait(self):
        """Wait until `release`."""
        self._released.wait()

    def release(self):
        """End all that waits."""
        self._released.set()

    def resume(self):
        self._released = threading.Event()


@contextlib.contextmanager
def dead_proxy():
    """The address of a proxy that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
