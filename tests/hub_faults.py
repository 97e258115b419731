"""Faults of a hub and of the network before it, for `hub_server.py`."""

import fnmatch
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """What goes wrong with requests whose path matches a pattern, for a number of times, or always."""

    kind: str
    """`status` and `silence` replace the reply; `truncate`, `stall`, `corrupt` and `slow` change its body."""
    pattern: str
    times: int | None
    method: str | None
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    after: int | None = None
    """Bytes of the body that are sent before it ends or stalls."""
    bytes_per_second: float = 0.0


class Faults:
    """The faults of a server, each with a pattern for paths, the number of times it happens, and a method or any."""

    def __init__(self):
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._released = threading.Event()

    def status(self, pattern, status, times=None, method=None, **headers):
        """Answer with a status, such as 429, 500 or 503, and headers: `Retry_After=1` gives `Retry-After: 1`."""
        named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        self._add("status", pattern, times, method, status=status, headers=named)

    def truncate(self, pattern, after, times=None, method=None):
        """Close the connection after some bytes of a body whose length was announced."""
        self._add("truncate", pattern, times, method, after=after)

    def stall(self, pattern, after=None, times=None, method=None):
        """Send some bytes of a body and then nothing, without closing the connection; without `after`, no reply."""
        self._add("silence" if after is None else "stall", pattern, times, method, after=after)

    def corrupt(self, pattern, times=None, method=None):
        """Send wrong bytes of the right length."""
        self._add("corrupt", pattern, times, method)

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
        return next(iter(self._use(method, path, ("status", "silence"))), None)

    def during(self, method, path):
        """The faults of sending a body; they are counted as used."""
        return self._use(method, path, ("truncate", "stall", "corrupt", "slow"))

    def _use(self, method, path, kinds):
        path, found = path.split("?")[0], []
        with self._lock:
            for fault in self._faults:
                is_meant = fault.kind in kinds and fault.method in (None, method) and fault.times != 0
                if is_meant and fnmatch.fnmatchcase(path, fault.pattern):
                    found.append(fault)
                    fault.times = None if fault.times is None else fault.times - 1
        return found

    def blocks(self, body, faults):
        """The blocks of a body as they are sent; None closes the connection."""
        if any(fault.kind == "corrupt" for fault in faults):
            body = bytes(byte ^ 1 for byte in body)
        end = next((fault for fault in faults if fault.kind in ("truncate", "stall")), None)
        sent = body if end is None else body[: end.after]
        speed = next((fault.bytes_per_second for fault in faults if fault.kind == "slow"), None)
        size = len(sent) if speed is None else max(1, int(speed / 20))
        for first in range(0, len(sent), size or 1):
            yield sent[first : first + size]
            if speed is not None and self.wait(size / speed):
                yield None
        if end is not None and len(sent) < len(body):
            if end.kind == "stall":
                self.wait()
            yield None

    def wait(self, seconds=None):
        """Wait for a time, or for ever; returns whether `release` ended it."""
        return self._released.wait(seconds)

    def release(self):
        """End all that waits."""
        self._released.set()

    def resume(self):
        self._released = threading.Event()
