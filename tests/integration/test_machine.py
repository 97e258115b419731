import os
import platform
import sys

import pytest

MEMORY = """
import resource
import torch
from mt_cli.machine.devices import keep_memory, memory_of, memory_used

cpu = torch.device("cpu")
before = memory_used(cpu)
tensor = torch.ones(50_000_000)
assert memory_used(cpu) < memory_of(cpu)
print(memory_used(cpu) - before)
del tensor
keep_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(50_000_000, dtype=torch.uint8)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is measured on Linux, and kept by glibc")
def test_memory_grows_by_the_size_of_a_tensor_and_kept_memory_is_not_requested_again(run):
    result = run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    growth, faults_of_a_second_allocation = map(int, result.stdout.split())
    assert 200e6 < growth < 250e6
    assert faults_of_a_second_allocation < 1_000  # 12,000 pages of 4 kB, if it were requested again.


SHARE_OF_WAITING = """
import os, time
from mt_cli.machine import cpus

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
hog = os.fork()
if hog == 0:
    while True:
        pass
cpus._MIN_SECONDS_OF_A_SHARE = 0.5
contention = cpus.CpuContention()
ends_at = time.monotonic() + 1
while time.monotonic() < ends_at:
    pass
os.kill(hog, 9)
print(contention.waiting_share())
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system has no schedstat")
def test_a_process_that_shares_one_cpu_waits_for_part_of_its_time(run):
    result = run([sys.executable, "-c", SHARE_OF_WAITING], capture_output=True, text=True, check=True)
    assert float(result.stdout) > 0.2
