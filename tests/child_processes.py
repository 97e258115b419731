"""Processes of tests, none of which outlives its test, whether that passes, fails or is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).parent.parent
_MARK = "MT_TEST"
"""The variable of the environment by which all descendants of a process of a test are found."""


class Children:
    """Starts commands; `end` ends them, with all that they have started in turn."""

    def __init__(self):
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._started = []

    def start(self, command, ignored="", env=None, **options):
        """A `subprocess.Popen` that ignores the signals with these names, separated by commas, and no others."""
        name, value = self._mark.split("=")
        environment = {**(os.environ if env is None else env), name: value}
        child = [sys.executable, "-I", "-S", str(ROOT / "tests" / "child.py"), ignored, *map(str, command)]
        self._started.append(subprocess.Popen(child, env=environment, start_new_session=True, **options))
        return self._started[-1]

    def run(self, command, timeout=300, capture_output=False, check=False, input=None, **options):
        """The same as `subprocess.run`."""
        if capture_output:
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(command, **options)
        try:
            out, err = process.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            self.end()
            raise
        result = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if check:
            result.check_returncode()
        return result

    def end(self):
        """End all processes that are left."""
        for process in self._started:
            end_group(process.pid)
        while any([kill(pid) for pid in _marked(self._mark)]):
            time.sleep(0.01)
        for process in self._started:
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):  # What was not written has no reader.
                    if pipe:
                        pipe.close()
            process.wait()
        self._started.clear()


def kill(pid):
    """Whether the process was there to be killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def end_group(leader):
    """End the processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # Darwin denies what has ended.
        os.killpg(leader, signal.SIGKILL)


def _marked(mark):
    """The processes, but for those that have ended, with this variable in their environment; none without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


class ForkServer:
    """Client of `tests/fork_server.py`, which starts `mt` and programs in new processes without delay."""

    def __init__(self):
        self._process = None
        self._running = []

    def _ensure_started(self):
        if self._process is None:
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            child = [sys.executable, "-I", "-S", str(ROOT / "tests" / "child.py"), ""]
            command = [*child, sys.executable, str(ROOT / "tests" / "fork_server.py")]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)

    def start(self, folder, arguments=(), number=None, restarts=0, **options):
        """Start a command, or several processes of it as a launcher would; return their process ids.

        `restarts` counts the earlier starts by the same launcher.
        """
        self._ensure_started()
        request = {"folder": str(folder), "name": "stream", "arguments": list(map(str, arguments)), "program": None}
        request |= {"environment": {}, "streams": ("there",) * 3, "encoding": "utf-8", "crash_point": None} | options
        requests = [request] if number is None else list(self._launched(request, number, restarts))
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        self._running = json.loads(self._process.stdout.readline())
        return self._running

    def _launched(self, request, number, restarts):
        from torch.distributed import TCPStore

        if not restarts:
            self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # As a launcher has one.
        common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port)}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        for rank in range(number):
            environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            yield request | {"name": f"stream.{rank}", "environment": request["environment"] | environment}

    def wait(self):
        """Wait until all processes that were started have ended; return their exit statuses."""
        statuses = json.loads(self._process.stdout.readline())
        self._running = []
        return statuses

    def end(self):
        """End the processes that a test has not waited for, with their groups."""
        if self._running:
            for pid in self._running:
                end_group(pid)
            self.wait()

    def stop(self):
        """End the server."""
        if self._process is not None:
            self.end()
            self._process.stdin.close()
            self._process.wait(timeout=60)
            self._process.stdout.close()


class Commands:
    """Runs `mt` commands, each in a new process that may be killed."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder

    def start(self, *arguments, crash_point=None):
        """Start a command and return its process id; it ends itself at a crash point."""
        [child] = self._server.start(self._folder, arguments, crash_point=crash_point)
        return child

    def wait(self):
        """Wait for the command; return its exit status (negative for a signal) and standard error."""
        [status] = self._server.wait()
        return status, (self._folder / "stream.2").read_text(encoding="utf-8")

    def run(self, *arguments, crash_point=None):
        self.start(*arguments, crash_point=crash_point)
        return self.wait()
