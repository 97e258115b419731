import platform
import subprocess
import sys

import pytest
import torch

from mt_cli.hardware import is_out_of_memory

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
