import os
import subprocess
import sys

import pytest

from mt_cli import cpus
from mt_cli.cpus import CpuContention, idle_cpus, spin_less_if_busy

SHARE_OF_WAITING = """
import os, time
from mt_cli import cpus

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


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not count waiting")
def test_a_process_beside_another_on_one_cpu_waits_for_a_good_part_of_its_time():
    command = [sys.executable, "-c", SHARE_OF_WAITING]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(result.stdout) > 0.2


def test_too_little_work_says_nothing_of_waiting(monkeypatch):
    times = iter([(5.0, 1.0), (9.0, 2.0), (15.0, 11.0)])
    monkeypatch.setattr("mt_cli.cpus._seconds_on_cpus", lambda: next(times))
    contention = CpuContention()
    assert contention.waiting_share() is None
    assert contention.waiting_share() == 0.5


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="this system does not say what its CPUs do")
def test_idle_cpus_are_some_of_those_there_are():
    assert 0 <= idle_cpus(0.1) <= os.cpu_count()


@pytest.mark.parametrize(
    ("idle", "variables", "expected"),
    [
        (4.0, {}, None),
        (3.4, {}, "1000"),
        (None, {}, None),
        (0.0, {"GOMP_SPINCOUNT": "7"}, "7"),
        (0.0, {"OMP_WAIT_POLICY": "ACTIVE"}, None),
    ],
)
def test_threads_spin_less_on_a_busy_machine_unless_the_user_has_a_say(monkeypatch, idle, variables, expected):
    monkeypatch.setattr(cpus, "idle_cpus", lambda seconds: idle)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "environ", dict(variables))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    spin_less_if_busy()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
