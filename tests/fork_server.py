"""Runs `mt` in a forked process for each request (a line of JSON), which saves the time of the imports.

A process with threads cannot be forked safely; this one has none. It prints the process id of the child when the child
starts, and its exit status (negative for a signal) when it ends. The output of the child is in `stream.1` and
`stream.2` of its folder.
"""

import itertools
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.utils.tensorboard

from mt_cli.cli import main as cli

CRASHED = 77
"""Exit status of a process that ended itself at a crash point."""

SECONDS = 600
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}


def replace_streams(states, encoding):
    """Replace standard input, output and error by streams in these states: there, closed, full, left by the reader."""
    writable = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    files = [os.open(f"stream.{number}", writable) for number in range(3)]
    for number, state in enumerate(states):
        if state == "left":
            files[number] = os.pipe()[1]
        os.dup2(os.open("/dev/full", os.O_RDWR) if state == "full" else files[number], number)
    os.closerange(3, max(files) + 9)  # Leaves the pipes without a reader.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        is_there = states[number] != "closed"
        if not is_there:
            os.close(number)
        mode = "w" if number else "r"
        stream = open(number, mode, encoding=encoding, closefd=False) if is_there else None  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def crash_before(change):
    """End this process, as a power cut would, before its Nth change to the names or contents of files."""
    counter = itertools.count(1)

    def hook(event, arguments):
        is_writing = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in CHANGES or is_writing) and next(counter) == change:
            os._exit(CRASHED)

    sys.addaudithook(hook)


def run(arguments, folder, streams, encoding, crash_point):
    """Run `mt` in the new process; return its exit status."""
    signal.alarm(SECONDS)
    os.chdir(folder)
    replace_streams(streams, encoding)
    if crash_point is not None:
        crash_before(crash_point)
    sys.argv = ["mt", *arguments]
    status = 0
    try:
        cli.main()
    except SystemExit as caught:
        status = caught.code or 0
    except BaseException:
        Path("stream.2").write_text(traceback.format_exc(), encoding="utf-8")
        status = 99
    try:
        sys.stdout.flush()
    except BaseException:
        status = 120  # The status that Python itself uses.
    return status


def main():
    """Serve requests until standard input ends."""
    torch.set_num_threads(1)
    # Each reading of the clock advances it by a second, so no run waits for a new name of its event file.
    clock = itertools.count(int(time.time()))
    for line in sys.stdin:
        next(itertools.islice(clock, 10_000, None))
        child = os.fork()
        if child == 0:
            time.time = lambda: next(clock) + 0.999
            os._exit(run(**json.loads(line)))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
