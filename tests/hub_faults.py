"""Faults of a hub and of the network before it, for `hub_server.py`."""

import contextlib
import fnmatch
import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """A fault of the requests whose path matches a pattern, for a number of times, or always."""

    pattern: str
    times: int | None = None
    method: str | None = None
    status: int | None = None
    """Status of a reply with these headers and this body, instead of the right one."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int | None = None
    """Bytes of a file that are sent before it ends, or stalls."""
    stalls: bool = False
    bytes_per_second: float | None = None


class Faults:
    """Faults of a server. A request meets at most one fault, the first that has not happened often enough."""

    def __init__(self):
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.released = threading.Event()

    def status(self, pattern, status, times=None, method=None, body=b"", **headers):
        """Answer with a status, such as 429, 500 or 503, and headers: `Retry_After=1` gives `Retry-After: 1`."""
        named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        self._faults.append(Fault(pattern, times, method, status, named, body))

    def truncate(self, pattern, after, times=None):
        """Close the connection after some bytes of a file whose length was announced."""
        self._faults.append(Fault(pattern, times, "GET", after=after))

    def stall(self, pattern, after, times=None):
        """Send some bytes of a file and then nothing, without closing the connection."""
        self._faults.append(Fault(pattern, times, "GET", after=after, stalls=True))

    def slow(self, pattern, bytes_per_second):
        self._faults.append(Fault(pattern, None, "GET", bytes_per_second=bytes_per_second))

    def clear(self):
        """Remove all faults; stalled connections are closed."""
        self._faults.clear()
        self.release()

    def release(self):
        """Let all waiting connections end."""
        self.released.set()
        self.released = threading.Event()

    def meet(self, method, path):
        """Fault of a request, or None; it is counted as used."""
        with self._lock:
            for fault in self._faults:
                is_meant = fault.method in (None, method) and fault.times != 0
                if is_meant and fnmatch.fnmatchcase(path.split("?")[0], fault.pattern):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def blocks(self, body, fault):
        """Blocks of a body as they are sent; None closes the connection."""
        released = self.released  # `clear` replaces it.
        if fault is None or (fault.after is None and fault.bytes_per_second is None):
            yield body
        elif fault.bytes_per_second is not None:
            size = max(1, int(fault.bytes_per_second / 20))
            for first in range(0, len(body), size):
                yield body[first : first + size]
                if released.wait(size / fault.bytes_per_second):
                    yield None
        else:
            yield body[: fault.after]
            if fault.stalls:
                released.wait()
            yield None


@contextlib.contextmanager
def dead_proxy():
    """Address of a proxy that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
