"""Processes of tests, none of which outlives its test, whether that passes or fails.

On Linux, all descendants of a process of a test are found by a variable of their environment, also those in a session
of their own; elsewhere, those in its process group.
"""

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
_VARIABLE = "MT_TEST"
"""Has a mark that the processes of a test share."""


def _end_marked(mark):
    """End all processes with this mark; none are found without /proc."""
    while any([_kill(pid) for pid in _marked(mark)]):
        time.sleep(0.01)


def _marked(mark):
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_VARIABLE}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _kill(pid):
    """Whether the process was there to be killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def _end_group(leader):
    """End the processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # Darwin denies what has ended.
        os.killpg(leader, signal.SIGKILL)


def _start(command, **options):
    child = [sys.executable, "-I", "-S", str(ROOT / "tests" / "child.py"), *map(str, command)]
    return subprocess.Popen(child, start_new_session=True, **options)


def _close_pipes(process):
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):  # What was not written has no reader.
            if pipe:
                pipe.close()


class Children:
    """Starts commands; `end` ends them, with all that they have started in turn."""

    def __init__(self):
        self._mark, self._started = uuid.uuid4().hex, []

    def start(self, command, env=None, **options):
        """Start a command as `subprocess.Popen` does."""
        environment = {**(os.environ if env is None else env), _VARIABLE: self._mark}
        self._started.append(_start(command, env=environment, **options))
        return self._started[-1]

    def run(self, command, timeout=300, capture_output=False, check=False, **options):
        """The same as `subprocess.run`."""
        if capture_output:
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.start(command, **options)
        out, err = process.communicate(timeout=timeout)
        result = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        if check:
            result.check_returncode()
        return result

    def end(self):
        """End all processes that are left."""
        for process in self._started:
            _end_group(process.pid)
        _end_marked(self._mark)
        for process in self._started:
            _close_pipes(process)
            process.wait()
        self._started.clear()


class ForkServer:
    """Client of `tests/fork_server.py`, which starts `mt` and programs in new processes without delay."""

    def __init__(self):
        self._mark, self._process, self._running = uuid.uuid4().hex, None, []

    def start(self, folder, arguments=(), number=None, restarts=0, **options):
        """Start a command, or several processes of it as a launcher would; return their process ids.

        `restarts` counts the earlier starts by the same launcher. `limits` are seconds of a CPU, and bytes.
        """
        if self._process is None:
            environment = {**os.environ, _VARIABLE: self._mark, "PYTHONPATH": str(ROOT)}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self._process = _start([sys.executable, ROOT / "tests" / "fork_server.py"], env=environment, **pipes)
        request = {"folder": str(folder), "name": "stream", "arguments": list(map(str, arguments)), "program": None}
        request |= {"environment": {}, "streams": ("there",) * 3, "encoding": "utf-8", "crash_point": None}
        request |= {"limits": None} | options
        requests = [request] if number is None else list(self._launched(request, number, restarts))
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        self._running = json.loads(self._process.stdout.readline())
        return self._running

    def _launched(self, request, number, restarts):
        from torch.distributed import TCPStore

        if not restarts:
            self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # As a launcher has one.
            self._launch_id = uuid.uuid4().hex
        common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port)}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": self._launch_id}
        for rank in range(number):
            environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            environment["TORCHELASTIC_RESTART_COUNT"] = str(restarts)
            yield request | {"name": f"stream.{rank}", "environment": request["environment"] | environment}

    def wait(self):
        """Wait until all processes that were started have ended; return their exit statuses."""
        statuses = json.loads(self._process.stdout.readline())
        self._running = []
        return statuses

    def end(self):
        """End what a test has not waited for, and the server, whose answer may have been read in part."""
        if self._running:
            self.stop()

    def stop(self):
        """End the server, and all that it has started."""
        if self._process is not None:
            for pid in (*self._running, self._process.pid):
                _end_group(pid)
            _end_marked(self._mark)
            _close_pipes(self._process)
            self._process.wait()
            self._process, self._running = None, []
