"""Runs `mt`, or programs, in forked processes, which saves the time of the imports.

A request is a line of JSON: a list of processes to start together. The answer is a line with their process ids when
they have started, and a line with their exit statuses (negative for a signal) when all have ended. The output of a
process is in the files `stream.1` and `stream.2` of its folder, or with another name than `stream`.

A process with threads cannot be forked safely; this one has only those of jemalloc and OpenBLAS, which allow for forks.
"""

import atexit
import itertools
import json
import os
import resource
import runpy
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import matplotlib.backends.backend_agg
import matplotlib.figure  # noqa: F401
import pandas  # noqa: F401
import sacrebleu  # noqa: F401
import torch
import torch._dynamo
import torch.distributed.fsdp
import torch.utils.tensorboard

import mt_cli.run.train  # noqa: F401
from mt_cli.cli import main as cli
from mt_cli.run import rounds

rounds._LEAST_ROUND_TRIP = rounds._LEAST_OF_SAMPLES = 0.0  # Tiny models translate nothing back.

CRASHED = 77
"""Exit status of a process that ended itself at a crash point."""

SECONDS = 600
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}


def replace_streams(name, states, encoding):
    """Replace standard input, output and error by streams in these states: there, full, left by the reader."""
    writable = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    files = [os.open(f"{name}.{number}", writable) for number in range(3)]
    for number, state in enumerate(states):
        if state == "left":
            files[number] = os.pipe()[1]
        os.dup2(os.open("/dev/full", os.O_RDWR) if state == "full" else files[number], number)
    os.closerange(3, max(files) + 9)  # Leaves the pipes without a reader.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "w" if number else "r", encoding=encoding, closefd=False)  # noqa: SIM115
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


def run_mt(arguments):
    """Run `mt`; return its exit status."""
    sys.argv = ["mt", *arguments]
    try:
        cli.main()
    except SystemExit as caught:
        return caught.code or 0


def run_program(path):
    """Run a Python program as the interpreter would; return its exit status."""
    try:
        runpy.run_path(path, run_name="__main__")
        status = 0
    except SystemExit as caught:
        status = caught.code
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    return status


def limit(seconds, num_bytes):
    """Let this process have no more time of a CPU and, on Linux, no more address space than now and these bytes."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    with suppress(OSError):
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + num_bytes
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def run(folder, name, arguments, program, environment, streams, encoding, crash_point, limits):
    """Do the work of a new process; return its exit status."""
    os.setsid()
    signal.alarm(SECONDS if limits is None else 4 * limits[0])
    if limits is not None:
        limit(*limits)
    os.chdir(folder)
    os.environ.update(environment)
    replace_streams(name, streams, encoding)
    if crash_point is not None:
        crash_before(crash_point)
    try:
        status = run_mt(arguments) if program is None else run_program(program)
    except BaseException:
        Path(f"{name}.2").write_text(traceback.format_exc(), encoding="utf-8")
        status = 99
    try:
        sys.stdout.flush()
    except BaseException:
        status = 120  # The status that Python itself uses.
    return status


def main():
    """Serve requests until standard input ends."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        children = []
        for request in json.loads(line):
            children.append(os.fork())
            if children[-1] == 0:
                os._exit(run(**request))
        print(json.dumps(children), flush=True)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    main()
