"""After a crash at any change of a file or a name, a second start completes the work.

The crash points are all renames, removals, new folders, links, truncations and openings for writing that Python
makes, found by an audit hook; what libraries write between two of them is in files that are still to be renamed.
"""

import itertools
import json
import shutil
import subprocess
from contextlib import contextmanager

import pytest
import yaml
from fork_server import CRASHED

pytestmark = [pytest.mark.slow(minutes=12), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def config(tiny_tree, tmp_path, corpus):
    """Seven steps with two validations and rounds of translations, states between them, and a test at the end."""
    shutil.copy(corpus / "train.xx", tmp_path / "mono.xx")
    tiny_tree["corpus"]["monolingual"] = {"target": {"file": str(tmp_path / "mono.xx")}}
    tiny_tree["training"] |= {"max_steps": 7, "max_epochs": None, "validate_every_steps": 3, "log_every_steps": 2}
    tiny_tree["training"] |= {"save_every_minutes": 1e-9}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return path


def crashes(forked, *command):
    """Repeat a command, yielding after each crash, until it succeeds."""
    for number in itertools.count(1):
        status, _, err = forked(*command, crash_point=number)
        if status == 0:
            return
        assert status == CRASHED, err
        yield number


def test_training_resumes_from_every_crash_point(forked, config, assert_same_run, tmp_path):
    command = ("train", "--config", config)
    assert forked(*command, "--set", "name=whole")[0] == 0
    runs, number = tmp_path / "runs", 0
    cache = runs / ".cache"
    assert [*(runs / "whole/rounds").glob("*.arrow")]
    for number in crashes(forked, *command):
        status, _, err = forked(*command)
        assert status == 0, f"crash point {number}: {err}"
        assert "Traceback" not in err and "damaged" not in err, err
        assert_same_run(runs / "tiny", runs / "whole")
        left = [path.name for path in (runs / "tiny").rglob("*") if path.name.endswith(".tmp")]
        assert not left, f"crash point {number}: {left}"
        shutil.rmtree(runs / "tiny")
        if number < 60:
            shutil.rmtree(cache)
    assert number > 100


def test_a_fresh_start_continues_after_every_crash_point(forked, config, assert_same_run, tmp_path):
    command = ("train", "--config", config)
    runs, number = tmp_path / "runs", 0
    assert forked(*command, "--set", "name=whole")[0] == 0
    assert forked(*command)[0] == 0
    shutil.copytree(runs / "tiny", tmp_path / "kept")
    for number in crashes(forked, *command, "--fresh", "--set", "training.max_steps=3"):
        aside = runs / "tiny.old-1"
        old = aside if aside.exists() else runs / "tiny"
        assert (old / "report.json").read_bytes() == (tmp_path / "kept" / "report.json").read_bytes()
        status, _, err = forked(*command, *([] if aside.exists() else ["--fresh"]))
        assert status == 0, f"crash point {number}: {err}"
        assert_same_run(aside, tmp_path / "kept")
        assert_same_run(runs / "tiny", runs / "whole")
        shutil.rmtree(aside)
        shutil.rmtree(runs / "tiny")
        shutil.copytree(tmp_path / "kept", runs / "tiny")
    assert number > 5


def content_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", ["bundle", "ctranslate2"])
def test_an_export_is_whole_or_not_there(forked, trained, tmp_path, kind):
    if kind == "ctranslate2":
        pytest.importorskip("ctranslate2")
    command = ("export", "--run", trained, "--format", kind, "--output")
    assert forked(*command, "whole")[0] == 0
    expected, number = content_of(tmp_path / "whole"), 0
    for number in crashes(forked, *command, "output"):
        if not (tmp_path / "output").exists():
            status, _, err = forked(*command, "output")
            assert status == 0, f"crash point {number}: {err}"
        assert content_of(tmp_path / "output") == expected, f"crash point {number}"
        shutil.rmtree(tmp_path / "output")
        for path in tmp_path.glob("output*"):
            shutil.rmtree(path)
    assert number > 3


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (("translate", "--input", "lines.txt", "--output", "out.txt", "--alignment", "pairs.txt"), "out.txt"),
        (("evaluate",), "run/hypotheses/test.txt"),
        (("report",), "run/report.html"),
    ],
)
def test_a_command_repeated_after_a_crash_writes_the_same(forked, trained, tmp_path, command, output):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "lines.txt").write_text("one two.\n" * 40, encoding="utf-8")
    command = (*command, "--run", "run")
    assert forked(*command)[0] == 0
    expected = (tmp_path / output).read_bytes()
    number = 0
    for number in crashes(forked, *command):
        if "run" in output:  # Either the old file or the new one.
            assert (tmp_path / output).read_bytes() == expected
        assert forked(*command)[0] == 0, f"crash point {number}"
        assert (tmp_path / output).read_bytes() == expected, f"crash point {number}"
        assert not [*tmp_path.glob("out.txt.*")], f"crash point {number}"
    assert number >= 1
    assert json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))["run"] == "tiny"


@contextmanager
def mounted(folder):
    """A file system in memory, as a function that gives it a size; skips the test where there can be none."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_with_a_message_and_costs_nothing(forked, config, assert_same_run, tmp_path):
    command = ("train", "--config", config)
    assert forked(*command)[0] == 0
    (tmp_path / "runs").rename(tmp_path / "kept")
    pages = sum(-(-path.stat().st_size // 4096) + 1 for path in (tmp_path / "kept").rglob("*"))
    with mounted(tmp_path / "runs") as resize:
        num_full = 0
        for share in range(1, 25):
            resize(max(8, pages * share // 22) * 4096)
            status, _, err = forked(*command)
            if status:
                num_full += 1
                assert status == 1, err
                assert "Traceback" not in err and err.splitlines()[-1].startswith("mt: "), err
            resize("100m")
            assert forked(*command)[0] == 0
            assert_same_run(tmp_path / "runs" / "tiny", tmp_path / "kept" / "tiny")
            for path in (tmp_path / "runs").iterdir():
                shutil.rmtree(path)
        assert num_full > 10
