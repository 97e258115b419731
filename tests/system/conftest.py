"""What the tests of whole commands share."""

import pytest


class Commands:
    """Runs `mt` again and again, each time in a new process, which may be killed."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder

    def start(self, *arguments, crash_point=None):
        """Begin, and return the number of the process; at a crash point it ends by itself."""
        return self._server.start(self._folder, arguments, crash_point=crash_point)

    def wait(self):
        """Exit status, negative for the signal that killed it, and standard error."""
        status = self._server.wait()
        return status, (self._folder / "stream.2").read_text(encoding="utf-8")

    def run(self, *arguments, crash_point=None):
        self.start(*arguments, crash_point=crash_point)
        return self.wait()


@pytest.fixture
def commands(fork_server, tmp_path):
    return Commands(fork_server, tmp_path)
