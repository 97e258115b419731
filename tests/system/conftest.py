"""Fixtures for tests of whole commands."""

import pytest


class Commands:
    """Runs `mt` commands, each in a new process that may be killed."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder

    def start(self, *arguments, crash_point=None):
        """Start a command and return its process id; it ends itself at a crash point."""
        return self._server.start(self._folder, arguments, crash_point=crash_point)

    def wait(self):
        """Wait for the command; return its exit status (negative for a signal) and standard error."""
        status = self._server.wait()
        return status, (self._folder / "stream.2").read_text(encoding="utf-8")

    def run(self, *arguments, crash_point=None):
        self.start(*arguments, crash_point=crash_point)
        return self.wait()


@pytest.fixture
def commands(fork_server, tmp_path):
    return Commands(fork_server, tmp_path)
