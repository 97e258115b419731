"""Memory of uploaded files and of the documents that are read from them, shared by all requests."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mt_cli.serving.errors import RequestError
from mt_cli.serving.scheduling import Ticket

RETRY_SECONDS = 10
_UPLOADED_BYTES = 2**28
_DOCUMENT_BYTES = 2**22
"""Bytes of the documents that are worked on at once; a larger one is worked on alone."""
_LEAST_BYTES = 2**19
"""Bytes that a document counts as at least: the process that works on it needs some memory, too."""
_MEMORY_PER_BYTE = 2**10
"""Memory that the process of a document may take for each byte that counts. Common sentences take a tenth of it, a
single line of millions of short ones half."""
_SECONDS_BETWEEN_LOOKS = 0.2


class UploadMemory:
    """Number of bytes that all uploads hold."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.parsing = asyncio.Lock()
        """Held while a form is parsed, which copies its file: one at a time, between other requests."""

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], None]]:
        """Function that counts further bytes of an upload until the end.

        It raises RequestError (429), and forgets those of this upload, if all uploads hold too many.
        """
        held = 0

        def reserve(num_bytes: int) -> None:
            nonlocal held
            if self.num_bytes + num_bytes > _UPLOADED_BYTES:
                self.num_bytes, held = self.num_bytes - held, 0
                raise RequestError("the server is busy with other files; try again later", 429, RETRY_SECONDS)
            self.num_bytes, held = self.num_bytes + num_bytes, held + num_bytes

        try:
            yield reserve
        finally:
            self.num_bytes -= held


class Documents:
    """Documents that threads work on: small ones together, a large one alone, first come, first served."""

    def __init__(self) -> None:
        self._free = _DOCUMENT_BYTES
        self._queue: deque[Ticket] = deque()
        self._condition = threading.Condition()

    @contextmanager
    def turn(self, num_bytes: int, ticket: Ticket) -> Iterator[int]:
        """Wait until a document of this unpacked size can be worked on, in a process of the returned number of bytes.

        Raises RequestCancelled.
        """
        num_bytes = min(max(num_bytes, _LEAST_BYTES), _DOCUMENT_BYTES)
        with self._condition:
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or self._free < num_bytes:
                    ticket.check()
                    self._condition.wait(_SECONDS_BETWEEN_LOOKS)
                self._free -= num_bytes
            finally:
                self._queue.remove(ticket)
                self._condition.notify_all()
        try:
            yield num_bytes * _MEMORY_PER_BYTE
        finally:
            with self._condition:
                self._free += num_bytes
                self._condition.notify_all()
