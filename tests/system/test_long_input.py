"""An input of any length needs no more memory than a short one."""

import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow(minutes=4),
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="peak memory is read from /proc"),
]

COMMAND = """
import atexit
from mt_cli.cli.main import main

def write_peak():
    with open("/proc/self/status") as status, open("peak.txt", "w") as file:
        file.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))

atexit.register(write_peak)
main()
"""


def peak_of(tmp_path, trained, num_lines):
    """Peak memory, in bytes, of translating `num_lines` lines, whose output must have as many lines."""
    words = ["one", "two", "three", "four", "five"]
    with (tmp_path / "input.txt").open("w", encoding="utf-8") as file:
        for number in range(num_lines):
            file.write(" ".join(words[number // 5**place % 5] for place in range(4)) + ".\n")
    command = [sys.executable, "-c", COMMAND, "translate", "--run", str(trained), "--input", "input.txt"]
    command += ["--output", "output.txt", "--beam-size", "1", "--progress", "none"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with (tmp_path / "output.txt").open(encoding="utf-8") as file:
        assert sum(1 for _ in file) == num_lines
    return int((tmp_path / "peak.txt").read_text()) * 1024


def test_memory_does_not_grow_with_the_number_of_lines(tmp_path, trained):
    few, many = (peak_of(tmp_path, trained, number) for number in (10_000, 200_000))
    assert many < few + 30e6
