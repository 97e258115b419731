"""The lock of a run directory: it ends with the process that holds it, however that ends."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mt_cli.errors import RunError, reason
from mt_cli.machine.console import say
from mt_cli.machine.storage import check_plain, refusal

LOCK = ".lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


class RunLock:
    """The lock of one run directory, at most one at a time in all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: FileLock | None = None

    @property
    def is_taken(self) -> bool:
        """Whether this object has taken the lock."""
        return self._lock is not None

    def take(self) -> None:
        """Make the directory, lock it and write the number of the process into its lock file.

        Where the file system has no locks, a line on the terminal says so.

        Raises RunError if another process trains this run or there is a link in the directory, and InputError or
        MtError if the directory cannot be made.
        """
        path = self.folder / LOCK
        # A lock that is only a file would outlive its process, so that a killed run could not resume.
        lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False, on_acquired=_write_owner)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            check_plain(self.folder)
            lock.acquire()
        except Timeout:
            raise RunError(
                f"{self.folder}: another process ({_owner(path)}) trains this run; wait for it, or give the config "
                "another name"
            ) from None
        except FileExistsError:
            raise RunError(
                f"{self.folder}: a file or a broken link has this name; remove it, or rename the run"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise refusal(self.folder, error) from None
            problem = f"this file system cannot lock files ({reason(error)})"
            say(f"mt: {self.folder}: {problem}; make sure that no other process trains this run")
            with path.open("r+b", buffering=0) as file:
                _write_owner(file.fileno())
        self._lock = lock

    def release(self) -> None:
        """Let others take the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _write_owner(descriptor: int) -> None:
    with suppress(OSError):  # On a full disk the lock still holds.
        os.truncate(descriptor, 0)
        # Windows locks the first byte, which other processes then cannot read.
        os.write(descriptor, f" process {os.getpid()}".encode("ascii"))


def _owner(path: Path) -> str:
    with suppress(OSError), path.open("rb", buffering=0) as file:
        file.seek(1)
        if number := re.search(rb"[0-9]+", file.read(100)):
            return f"process {number[0].decode('ascii')}"
    return "unknown"
