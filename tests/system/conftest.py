"""What the tests of whole commands share: processes that may be killed."""

import json
import subprocess
import sys

import pytest

CRASHED = 77
"""The exit status of a process that ended itself at a crash point."""

SERVER = '''
import itertools, json, os, sys, time
import torch
torch.set_num_threads(1)
import torch.utils.tensorboard, mt_cli.cli.main, mt_cli.experiment.run
def crash_before(number):
    """Ends this process, as a power cut would, before it changes names or contents of files for the Nth time."""
    counter = itertools.count(1)
    changes = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
    def hook(event, arguments):
        if event in changes or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            if next(counter) == number:
                os._exit(77)
    sys.addaudithook(hook)

# Each look at the clock takes a second: nobody has to wait until event files of TensorBoard sort one after the other.
clock = itertools.count(int(time.time()))

for line in sys.stdin:
    next(itertools.islice(clock, 10_000, None))
    arguments, crash_point = json.loads(line)
    child = os.fork()
    if child == 0:
        errors = os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        if crash_point is not None:
            crash_before(crash_point)
        time.time = lambda: next(clock) + 0.999
        sys.argv = ["mt", *arguments]
        mt_cli.cli.main.main()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
'''


class Commands:
    """Runs `mt` again and again, each time in a new process, without importing everything anew."""

    def __init__(self, folder):
        self.folder = folder
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, *arguments, crash_point=None):
        """Begin; with a crash point, the process ends before it changes a file or a name for so many times."""
        self._server.stdin.write(json.dumps([list(map(str, arguments)), crash_point]) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def wait(self):
        """Exit status, negative for the signal that killed it, and standard error."""
        status = int(self._server.stdout.readline())
        return status, (self.folder / "errors.txt").read_text(encoding="utf-8")

    def run(self, *arguments, crash_point=None):
        self.start(*arguments, crash_point=crash_point)
        return self.wait()

    def stop(self):
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()


@pytest.fixture
def commands(tmp_path):
    commands = Commands(tmp_path)
    yield commands
    commands.stop()
