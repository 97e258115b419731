"""Who may ask the server for what, and how often: hosts, origins, keys and rates."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mt_cli.errors import InputError
from mt_cli.runtime.files import read_regular, reading
from mt_cli.serving.errors import RequestError

_SHORTEST_KEY = 16
_MAX_KEYS_BYTES = 2**20
_MOST_CLIENTS = 10_000
_HOST = r"(?:[\w-]+(?:\.[\w-]+)*|\[[0-9A-Fa-f:.]+\])"
_ORIGIN = re.compile(rf"https?://{_HOST}(?::\d+)?", re.ASCII)


@dataclass(frozen=True)
class Keys:
    """Keys of a file, by their digests; without a file, no key is needed."""

    digests: tuple[bytes, ...] = ()

    @classmethod
    def read(cls, path: Path | None) -> Keys:
        """Read a file with a key on each line; `#` begins a comment line. Raises InputError for a short key."""
        if path is None:
            return cls()
        with reading(path):
            lines = read_regular(path, _MAX_KEYS_BYTES).decode("utf-8-sig").splitlines()
        stripped = enumerate(map(str.strip, lines), start=1)
        keys = {number: key for number, key in stripped if key and not key.startswith("#")}
        if not keys:
            raise InputError(f"{path}: has no keys; write one on each line, of at least {_SHORTEST_KEY} characters")
        for number, key in keys.items():
            if len(key) < _SHORTEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
                raise InputError(
                    f"{path}, line {number:,}: a key has at least {_SHORTEST_KEY} characters of ASCII, and no spaces"
                )
        return cls(tuple(dict.fromkeys(map(_digest, keys.values()))))

    def knows(self, key: str | None) -> bool:
        """True if a key is one of the file; the time depends on digests alone, which nobody can choose."""
        return _digest(key or "") in self.digests

    def check(self, key: str | None) -> None:
        """Raise RequestError (403) unless a key is one of the file, or none is needed."""
        if self.digests and not self.knows(key):
            advice = "a key is needed; send it in the header Authorization (Bearer KEY) or as api_key"
            raise RequestError("the key is not valid" if key else advice, 403)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


@dataclass
class Rates:
    """Numbers of requests by client, as token buckets that hold the requests of a minute."""

    per_minute: int | None = None
    clock: Callable[[], float] = time.monotonic
    _clients: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    """Requests left and time of the last request, by client, the longest unseen first."""

    def check(self, client: str) -> None:
        """Count a request; raise RequestError (429) if a client has sent too many."""
        if self.per_minute is None:
            return
        now = self.clock()
        left, seen_at = self._clients.pop(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - seen_at) * self.per_minute / 60)
        self._clients[client] = (left - 1 if left >= 1 else left, now)
        while len(self._clients) > _MOST_CLIENTS:
            self._clients.popitem(last=False)
        if left < 1:
            seconds = math.ceil((1 - left) * 60 / self.per_minute)
            raise RequestError(f"more than {self.per_minute:,} requests in a minute", 429, seconds)


def client_of(address: str, key: str | None) -> str:
    """Name of a client for its rate: the digest of its key, or its address; of IPv6, its network of 64 bits.

    A socket for both kinds of addresses writes those of IPv4 as `::ffff:192.0.2.1`.
    """
    if key:
        return _digest(key).hex()
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed), 64), strict=False))


def allowed_hosts(host: str, names: Sequence[str]) -> list[str]:
    """Names of the server for an address to listen at: those of this machine if only it is served, otherwise any.

    Raises InputError for a name with a port or a wildcard.
    """
    given = [f"[{name}]" if ":" in name and not name.startswith("[") else name for name in (*names, host)]
    for name in given[:-1]:
        if not re.fullmatch(_HOST, name, re.ASCII):
            raise InputError(f"--allow-host {name}: give a host name or an address, without a port")
    if is_loopback(host):
        return ["localhost", "127.0.0.1", "[::1]", *given]
    return given[:-1] or ["*"]


def check_origins(origins: Sequence[str]) -> Sequence[str]:
    """Origins of `--cors`; raises InputError for one that has more than a scheme, a host and a port."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise InputError(f"--cors {origin}: an origin is a scheme, a host and a port, https://example.org:8443")
    return origins


def is_loopback(host: str) -> bool:
    """True if an address to listen at is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
