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


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="memory is measured on Linux, and kept by glibc")
def test_memory_grows_by_a_tensor_and_is_kept(run):
    result = run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    growth, faults_of_a_second_allocation = map(int, result.stdout.split())
    assert 200e6 < growth < 250e6
    assert faults_of_a_second_allocation < 1_000  # 12,000 pages of 4 kB, if it were requested again.
