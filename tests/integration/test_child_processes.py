"""What the fixtures `start`, `run` and `fork_server` leave: nothing, however a test or pytest itself ends."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the environment of all processes")

NESTED = """
import subprocess, sys, time
from pathlib import Path

FOLDER = Path(__file__).parent
STUBBORN = '''
import os, signal, subprocess, sys, time
for name in ("SIGHUP", "SIGINT", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, "-c", sys.argv[1], "", ""], start_new_session=True)
open(f"{os.getpid()}.pid", "w").close()
time.sleep(100_000)
'''

def start_all(start, fork_server, tmp_path):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    start([sys.executable, "-c", STUBBORN, STUBBORN], cwd=tmp_path)
    fork_server.start(tmp_path, program=str(tmp_path / "stubborn.py"))
    while len(list(tmp_path.glob("*.pid"))) < 3:
        time.sleep(0.01)

def test_that_fails(start, fork_server, tmp_path):
    start_all(start, fork_server, tmp_path)
    raise ValueError

def test_that_waits(start, fork_server, tmp_path):
    start_all(start, fork_server, tmp_path)
    time.sleep(100_000)
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_neither_a_test_that_fails_nor_a_pytest_that_is_stopped_leaves_a_process(start, root, tmp_path, number):
    """Nor a file outside of the folders of the tests."""
    for name in ("tests", "temporary", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "tests/test_nested.py").write_text(NESTED)
    (tmp_path / "tests/pytest.ini").write_text("[pytest]\n")
    plugins = ("-p", "conftest", "-p", "no:cacheprovider", "-p", "no:randomly")  # In the order of the file.
    nested = [sys.executable, "-m", "pytest", *plugins, "-n", "0", "test_nested.py"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "tests"), str(root)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path / "temporary"),
        "HOME": str(tmp_path / "home"),
    }
    with open(tmp_path / "out", "w") as out:
        pytest_process = start(nested, cwd=tmp_path / "tests", env=environment, stdout=out, stderr=out)

    def pids_of(test):
        return {int(path.stem) for path in tmp_path.glob(f"temporary/*/*/{test}0/*.pid")}

    def has_started_all():
        assert pytest_process.poll() is None, (tmp_path / "out").read_text()
        return len(pids_of("test_that_waits")) == 3

    wait_until(has_started_all)
    assert len(pids_of("test_that_fails")) == 3 and not any(map(is_running, pids_of("test_that_fails")))
    assert all(map(is_running, pids_of("test_that_waits")))
    pytest_process.send_signal(number)
    status = pytest_process.wait(timeout=300)
    assert status == (2 if number == signal.SIGINT else -number)
    wait_until(lambda: not any(map(is_running, pids_of("test_that_waits"))))
    assert [path.name.split("-")[:2] for path in (tmp_path / "temporary").iterdir()] == [["pytest", "of"]]
    assert {path.name for path in (tmp_path / "tests").iterdir()} == {"test_nested.py", "pytest.ini"}
    assert not any((tmp_path / "home").iterdir())
