import os
import platform
import subprocess
import sys

import pytest
import torch

from mt_cli.hardware import CpuContention, idle_cpus, is_out_of_memory

FAULTS_OF_A_SECOND_ALLOCATION = """
import resource
import torch
from mt_cli.hardware import keep_memory

keep_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(50_000_000, dtype=torch.uint8)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is kept with functions of glibc")
def test_memory_that_was_kept_is_not_asked_for_again():
    command = [sys.executable, "-c", FAULTS_OF_A_SECOND_ALLOCATION]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 1_000  # 12,000 pages of 4 kB, if it were asked for again.


def test_a_failed_allocation_is_a_lack_of_memory_and_other_errors_are_not():
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    with pytest.raises(RuntimeError) as failed:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(failed.value)


SHARE_OF_WAITING = """
import os, time
from mt_cli import hardware

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
hog = os.fork()
if hog == 0:
    while True:
        pass
hardware._SECONDS_WORTH_A_SHARE = 0.5
contention = hardware.CpuContention()
ends_at = time.monotonic() + 1
while time.monotonic() < ends_at:
    pass
os.kill(hog, 9)
print(contention.waiting_share())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not count waiting")
def test_a_process_beside_another_on_one_cpu_waits_for_a_good_part_of_its_time():
    command = [sys.executable, "-c", SHARE_OF_WAITING]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(result.stdout) > 0.2


def test_too_little_work_says_nothing_of_waiting(monkeypatch):
    times = iter([(5.0, 1.0), (9.0, 2.0), (15.0, 11.0)])
    monkeypatch.setattr("mt_cli.hardware._seconds_on_cpus", lambda: next(times))
    contention = CpuContention()
    assert contention.waiting_share() is None
    assert contention.waiting_share() == 0.5


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="this system does not say what its CPUs do")
def test_idle_cpus_are_some_of_those_there_are():
    assert 0 <= idle_cpus(0.1) <= os.cpu_count()
